"""The settings: the environment's ``TENFERRO_*`` variables in, one frozen ``Config`` out, read once.

Stages receive values of it and never read the environment themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from functools import cache
from typing import Any

from tenferro.tracer.errors import TenferroError
from tenferro.tracer.records import dataclass

SHOW_STAGES = ("program", "exec", "schedule", "regions", "segments", "kernel", "llvm", "asm", "cuda")
ENGINES = ("cpu", "reference")
TIERS = ("auto", "0", "2")
VECTOR_BITS = (0, 256, 512)


class ConfigError(TenferroError, ValueError):
    """A ``TENFERRO_*`` variable holds something that is not one of its legal values."""


def _refuse(name: str, text: str, legal: str) -> ConfigError:
    return ConfigError(f"{name}: found {text!r}; needed {legal}")


def _read_bool(name: str, text: str) -> bool:
    match text:
        case "1" | "true" | "on":
            return True
        case "0" | "false" | "off":
            return False
        case _:
            raise _refuse(name, text, "1, true or on; 0, false or off")


def _read_choice(*legal: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in legal:
            raise _refuse(name, text, "one of " + ", ".join(legal))
        return text

    return read


def _read_stages(name: str, text: str) -> frozenset[str]:
    stages = frozenset(part.strip() for part in text.split(",") if part.strip())
    if stages - set(SHOW_STAGES):
        raise _refuse(name, text, "names from " + ", ".join(SHOW_STAGES) + ", with commas between them")
    return stages


def _read_vector_bits(name: str, text: str) -> int:
    if text not in map(str, VECTOR_BITS):
        raise _refuse(name, text, "0 (the machine's own), 256 or 512")
    return int(text)


def _read_count(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise _refuse(name, text, "a whole number from 1 to 1024")
    return int(text)


def _read_bytes(name: str, text: str) -> int:
    scale = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    if not digits.isascii() or not digits.isdigit():
        raise _refuse(name, text, "a whole number of bytes, or of k, M or G (512M)")
    return int(digits) * scale


def _read_path(name: str, text: str) -> str:
    if not os.path.isabs(text):
        raise _refuse(name, text, "an absolute path")
    return text


def _setting(default: Any, variable: str, read: Callable[[str, str], Any], *, changes_code: bool = False) -> Any:
    return field(default=default, metadata={"variable": variable, "read": read, "changes_code": changes_code})


@dataclass(frozen=True, slots=True)
class Config:
    """All settings. ``None`` means: decided where it is used.

    num_threads: size of the thread pool, None for what affinity and quota allow.
    show: stages that print what they made.
    cache, cache_dir, cache_bytes: the disk cache of objects and traced programs; on or off, where, at most how many
    bytes. cache_traces: whether it has traced programs.
    wrap_numpy: NumPy's creation functions are wrapped while a trace runs.
    check: the checker runs after every pass.
    engine: the default engine.
    tier: code generation level: ``auto`` starts at 0 and goes to 2 where it pays.
    vector_bits: 256 keeps kernels off AVX-512 registers; 0 and 512 take what the machine has. Results keep their bits.
    flush_subnormals: kernels on the CPU take subnormal numbers for zero and give zero for them.
    cpu_engines: how many CPU engines the default runtime has; they share the cores.
    pool_bytes: bytes of dead buffers kept for reuse; memory_limit: bytes of live ones.
    poison: dead temporaries are overwritten, so that what reads them shows.
    """

    num_threads: int | None = _setting(None, "NUM_THREADS", _read_count)
    show: frozenset[str] = _setting(frozenset(), "SHOW", _read_stages)
    cache: bool = _setting(True, "CACHE", _read_bool)
    cache_traces: bool = _setting(True, "CACHE_TRACES", _read_bool)
    cache_dir: str | None = _setting(None, "CACHE_DIR", _read_path)
    cache_bytes: int = _setting(256 << 20, "CACHE_BYTES", _read_bytes)
    wrap_numpy: bool = _setting(True, "WRAP_NUMPY", _read_bool)
    check: bool = _setting(False, "CHECK", _read_bool)
    engine: str = _setting("cpu", "ENGINE", _read_choice(*ENGINES))
    tier: str = _setting("auto", "TIER", _read_choice(*TIERS), changes_code=True)
    vector_bits: int = _setting(0, "VECTOR_BITS", _read_vector_bits, changes_code=True)
    flush_subnormals: bool = _setting(False, "FLUSH_SUBNORMALS", _read_bool)
    cpu_engines: int = _setting(1, "CPU_ENGINES", _read_count)
    pool_bytes: int | None = _setting(None, "POOL_BYTES", _read_bytes)
    memory_limit: int | None = _setting(None, "MEMORY_LIMIT", _read_bytes)
    poison: bool = _setting(False, "POISON", _read_bool)

    def code_key(self) -> tuple[Any, ...]:
        """The values of the fields that change code, for cache keys."""
        return tuple(getattr(self, f.name) for f in fields(self) if f.metadata["changes_code"])


def _value(f: Field[Any], environment: Mapping[str, str]) -> Any:
    name = "TENFERRO_" + f.metadata["variable"]
    text = environment.get(name, "")
    if text == "":
        assert f.default is not MISSING
        return f.default
    return f.metadata["read"](name, text)


def read_config(environment: Mapping[str, str]) -> Config:
    """The Config that these variables ask for; empty ones count as unset. Raises ConfigError.

    A variable that begins with ``TENFERRO_`` and is unknown raises too: a misspelt setting would pass unnoticed."""
    known = {"TENFERRO_" + f.metadata["variable"] for f in fields(Config)}
    for name in environment:
        if name.startswith("TENFERRO_") and name not in known:
            raise ConfigError(f"{name}: no such setting; needed one of {', '.join(sorted(known))}")
    return Config(**{f.name: _value(f, environment) for f in fields(Config)})


@cache
def config() -> Config:
    """The process's Config, read from the environment at the first call."""
    return read_config(os.environ)
