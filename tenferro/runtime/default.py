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


def _default_engine() -> Engine:
    """The CPU engine; the reference engine where it is asked for, or where the processor is below the baseline."""
    if config().engine == "reference":
        return _reference_engine()
    from tenferro.engines.cpu import native
    from tenferro.engines.cpu.engine import CpuEngine

    try:
        native.module()  # refuses processors below the baseline, and foreign CPython or NumPy layouts
    except LoweringError:
        return _reference_engine()
    return CpuEngine()


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
    """The process's runtime, with one engine; made at the first call."""
    if _default.runtime is None:
        with _default.lock:
            if _default.runtime is None:
                _default.runtime = Runtime.builder().register_engine(_default_engine()).build()
    return _default.runtime


def list_engines() -> list[str]:
    """The names of the engines that the default runtime has, such as ``["cpu:0"]``."""
    return [e.id for e in default_runtime().engines()]
