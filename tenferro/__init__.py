"""tenferro: NumPy code, traced once, compiled in milliseconds, run on every core, with the same bits everywhere."""

from typing import Any as _Any

from tenferro import tree as tree
from tenferro.array import Array as Array, array as array, asarray as asarray, from_dlpack as from_dlpack
from tenferro.jit import jit as jit
from tenferro.runtime import default_runtime as default_runtime, list_engines as list_engines
from tenferro.threads import cpu_engines as cpu_engines, threads as threads
from tenferro.tracer.errors import (
    BoundsError as BoundsError,
    CheckError as CheckError,
    DivisionError as DivisionError,
    DtypeError as DtypeError,
    LeakError as LeakError,
    LoweringError as LoweringError,
    MemoryLimitError as MemoryLimitError,
    MutationError as MutationError,
    RecompileError as RecompileError,
    RecompileWarning as RecompileWarning,
    ShapeError as ShapeError,
    TenferroError as TenferroError,
    TraceError as TraceError,
    UnrolledLoopWarning as UnrolledLoopWarning,
)

__version__ = "0.1.0"


def __getattr__(name: str) -> _Any:
    # The NumPy namespace and the runtime are modules of their own, loaded when they are first named.
    if name in ("numpy", "runtime"):
        import importlib

        return importlib.import_module(f"tenferro.{name}")
    raise AttributeError(f"module 'tenferro' has no attribute {name!r}")
