"""The runtime that ``@jit`` uses, and the engines of this machine."""

from __future__ import annotations

from functools import cache

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


@cache
def default_runtime() -> Runtime:
    """The process's runtime, with one engine; made at the first call."""
    return Runtime.builder().register_engine(_default_engine()).build()


def list_engines() -> list[str]:
    """The names of the engines that the default runtime has, such as ``["cpu:0"]``."""
    return [e.id for e in default_runtime().engines()]
