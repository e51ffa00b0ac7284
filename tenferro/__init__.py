"""tenferro: NumPy code, traced once, compiled in milliseconds, run on every core, with the same bits everywhere."""

from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from tenferro import evaluation as _evaluation, tree as tree
from tenferro.array import Array as Array, array as array, asarray as asarray, from_dlpack as from_dlpack
from tenferro.jit import jit as jit
from tenferro.placing import on as on
from tenferro.threads import cpu_engines as cpu_engines, threads as threads
from tenferro.tracer.errors import (
    AxisError as AxisError,
    BatchError as BatchError,
    BoundsError as BoundsError,
    CallbackError as CallbackError,
    CheckError as CheckError,
    DerivativeError as DerivativeError,
    DivisionError as DivisionError,
    DtypeError as DtypeError,
    ExponentError as ExponentError,
    FailedCheckError as FailedCheckError,
    LeakError as LeakError,
    LinAlgError as LinAlgError,
    LoweringError as LoweringError,
    MemoryLimitError as MemoryLimitError,
    MutationError as MutationError,
    NanError as NanError,
    RangeError as RangeError,
    RecompileError as RecompileError,
    RecompileWarning as RecompileWarning,
    ShapeError as ShapeError,
    TenferroError as TenferroError,
    TraceError as TraceError,
    UnrolledLoopWarning as UnrolledLoopWarning,
)

if _TYPE_CHECKING:
    from tenferro import (
        debug as debug,
        flatten_util as flatten_util,
        lax as lax,
        linalg as linalg,
        nn as nn,
        numpy as numpy,
        random as random,
        runtime as runtime,
        special as special,
    )
    from tenferro.batching import vmap as vmap
    from tenferro.budget import BudgetError as BudgetError, assert_budget as assert_budget
    from tenferro.callbacks import io_callback as io_callback, pure_callback as pure_callback
    from tenferro.checkpointing import (
        checkpoint as checkpoint,
        checkpoint_name as checkpoint_name,
        checkpoint_policies as checkpoint_policies,
        remat as remat,
    )
    from tenferro.collectives import (
        all_gather as all_gather,
        all_to_all as all_to_all,
        axis_index as axis_index,
        axis_size as axis_size,
        pbroadcast as pbroadcast,
        pmax as pmax,
        pmean as pmean,
        pmin as pmin,
        ppermute as ppermute,
        pshuffle as pshuffle,
        psum as psum,
        psum_scatter as psum_scatter,
        pswapaxes as pswapaxes,
    )
    from tenferro.custom_batching import custom_vmap as custom_vmap
    from tenferro.debug import check as check
    from tenferro.disabling import disable_jit as disable_jit
    from tenferro.forward_rules import custom_jvp as custom_jvp
    from tenferro.gpus import cuda_engine as cuda_engine
    from tenferro.gradients import grad as grad, stop_gradient as stop_gradient, value_and_grad as value_and_grad
    from tenferro.jacobians import hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev
    from tenferro.linearization import (
        jvp as jvp,
        linear_transpose as linear_transpose,
        linearize as linearize,
        vjp as vjp,
    )
    from tenferro.mesh import Mesh as Mesh, P as P, PartitionSpec as PartitionSpec
    from tenferro.moving import (
        block_until_ready as block_until_ready,
        device_get as device_get,
        device_put as device_put,
    )
    from tenferro.mpi import mpi_mesh as mpi_mesh
    from tenferro.profiling import profile as profile
    from tenferro.reverse_rules import custom_vjp as custom_vjp
    from tenferro.runtime import default_runtime as default_runtime, list_engines as list_engines
    from tenferro.shapes import eval_shape as eval_shape, make_program as make_program
    from tenferro.sharding import shard_map as shard_map
    from tenferro.structs import ShapeDtypeStruct as ShapeDtypeStruct
    from tenferro.tracer.config import ConfigError as ConfigError

__version__ = "0.1.0"


def _eager() -> _evaluation.Evaluator:
    from tenferro import eager

    return eager


_evaluation.use(_eager)


_COLLECTIVES = (
    "all_gather", "all_to_all", "axis_index", "axis_size", "pbroadcast", "pmax", "pmean", "pmin", "ppermute",
    "pshuffle", "psum", "psum_scatter", "pswapaxes",
)  # fmt: skip
_DERIVATIVES = {
    "gradients": ("grad", "stop_gradient", "value_and_grad"),
    "linearization": ("jvp", "linear_transpose", "linearize", "vjp"),
    "jacobians": ("hessian", "jacfwd", "jacobian", "jacrev"),
    "forward_rules": ("custom_jvp",),
    "reverse_rules": ("custom_vjp",),
    "checkpointing": ("checkpoint", "checkpoint_name", "checkpoint_policies", "remat"),
    "shapes": ("eval_shape", "make_program"),
    "structs": ("ShapeDtypeStruct",),
}
_MOVING = ("block_until_ready", "device_get", "device_put")
_LATER = {
    "ConfigError": "tracer.config", "default_runtime": "runtime", "list_engines": "runtime",
    "Mesh": "mesh", "PartitionSpec": "mesh", "P": "mesh", "shard_map": "sharding", "mpi_mesh": "mpi",
    "vmap": "batching", "cuda_engine": "gpus", "profile": "profiling", "BudgetError": "budget",
    "assert_budget": "budget", "disable_jit": "disabling", "io_callback": "callbacks", "pure_callback": "callbacks",
    "check": "debug", "custom_vmap": "custom_batching", **dict.fromkeys(_COLLECTIVES, "collectives"),
    **dict.fromkeys(_MOVING, "moving"),
    **{name: module for module, names in _DERIVATIVES.items() for name in names},
}  # fmt: skip
"""Name → the module that has it."""
_MODULES = (
    "debug", "flatten_util", "lax", "linalg", "nn", "numpy", "random", "runtime", "test_util", "special", "tree_util",
)  # fmt: skip
"""Modules that are loaded when they are first asked for."""

_PUBLIC = sorted([
    *(n for n, x in globals().items() if not (n.startswith("_") or isinstance(x, _ModuleType))), *_LATER, *_MODULES,
    "tree",
])  # fmt: skip
__all__ = [n for n in _PUBLIC if n not in ("numpy", "random")]  # ``from tenferro import *`` leaves these to others


def __dir__() -> list[str]:
    # Not the modules that the package is made of, which are attributes once they are loaded.
    return sorted([*_PUBLIC, *(n for n in globals() if n.startswith("__"))])


def __getattr__(name: str) -> _Any:
    # What traces, compiles and runs is loaded when it is first needed: importing tenferro costs less than NumPy does.
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"tenferro.{name}")
    if name in _LATER:
        return getattr(importlib.import_module(f"tenferro.{_LATER[name]}"), name)
    from tenferro.names_of_jax import near

    raise AttributeError(f"module 'tenferro' has no attribute {name!r}{near(name)}")
