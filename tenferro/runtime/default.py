"""The runtime that ``@jit`` uses, and the engines of this machine."""

from __future__ import annotations

import os
import threading

from tenferro.engines.engine import Engine
from tenferro.runtime.runtime import Runtime
from tenferro.tracer.config import config
from tenferro.tracer.errors import LoweringError


def _reference_engine() -> Engine:
    from tenferro.engines.reference import ReferenceEngine

    return ReferenceEngine()


def _default_engines() -> list[Engine]:
    """The CPU engines; the reference engine where it is asked for, or where the processor is below the baseline."""
    if config().engine == "reference":
        return [_reference_engine()]
    from tenferro.engines.cpu import native
    from tenferro.engines.cpu.engine import CpuEngine
    from tenferro.engines.cpu.threads import default_count

    try:
        native.module()  # refuses processors below the baseline, and foreign CPython or NumPy layouts
    except LoweringError:
        return [_reference_engine()]
    count = config().cpu_engines
    share = None if count == 1 else max(1, default_count() // count)
    return [CpuEngine(k, share=share) for k in range(count)]


class _Default:
    """The one runtime of the process; threads that ask at the same time get the same."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runtime: Runtime | None = None


_default = _Default()


def _new_lock() -> None:
    _default.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def default_runtime() -> Runtime:
    """The process's runtime, with one engine or ``TENFERRO_CPU_ENGINES``; made at the first call."""
    if _default.runtime is None:
        with _default.lock:
            if _default.runtime is None:
                builder = Runtime.builder()
                for engine in _default_engines():
                    builder.register_engine(engine)
                _default.runtime = builder.build()
    return _default.runtime


def list_engines() -> list[str]:
    """The names of the engines that the default runtime has, such as ``["cpu:0"]``."""
    return [e.id for e in default_runtime().engines()]
