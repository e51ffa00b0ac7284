"""GPUs as engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenferro.naming import check_count

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine


def cuda_engine(number: int = 0, *, memory_limit: int = 0) -> Engine:
    """GPU ``number`` as the engine ``cuda:{number}`` of the default runtime; the first call registers it.

    memory_limit: bytes of its memory that arrays and temporaries may take, 0 for all; MemoryLimitError beyond.
    ``jit(f, engine="cuda:0")`` registers it by itself, without a limit. ImportError without CuPy, with the command that
    installs it; ConfigurationError without such a GPU."""
    check_count("cuda_engine", "number", number, 0)
    check_count("cuda_engine", "memory_limit", memory_limit, 0)
    from tenferro.runtime import default_runtime

    engine = default_runtime().engine(f"cuda:{number}")
    engine.limit_memory(memory_limit)
    return engine
