"""What a benchmark is. Array cases are timed in one process, process cases each in a fresh one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from benchmarks.words import Words

Array: TypeAlias = np.ndarray[Any, Any]
Inputs: TypeAlias = tuple[Array, ...]
MakeInputs: TypeAlias = Callable[[np.dtype[Any], float], Inputs]


@dataclass(frozen=True)
class ArrayCase:
    """A function in NumPy's words (what NumPy and tenferro run; the peers' forms stand in ``benchmarks.peers``).

    ``inputs(dtype, scale)`` makes the data; ``scale`` multiplies the number of elements. ``moved(inputs)`` is the least
    number of bytes that must be read and written, None where no array is written. ``tolerance``: the largest allowed
    difference from NumPy in float64, relative to the largest magnitude in the result, in epsilons of the dtype.
    ``written``: the same in the words of tenferro and JAX, where it takes a transformation or a loop."""

    name: str
    formula: str
    function: Callable[..., Any]
    inputs: MakeInputs
    moved: Callable[[Inputs], int] | None = None
    tolerance: float = 32.0
    written: Callable[[Words], Callable[..., Any]] | None = None
    small: bool = False  # microseconds a call: what is timed is the way into the kernel


ProcessKind = Literal["compile", "compile_case", "sizes", "import", "restart"]


@dataclass(frozen=True)
class ProcessCase:
    """Timed by ``benchmarks.child`` in fresh processes. ``against``: the peers that the ratio is taken against;
    ``shown``: the others that are measured. ``array_case``: the name of what ``compile_case`` compiles."""

    name: str
    formula: str
    kind: ProcessKind
    against: tuple[str, ...]
    shown: tuple[str, ...] = ()
    count: int = 0  # operations of the function, or number of sizes
    dtypes: bool = True
    array_case: str = ""


Case: TypeAlias = ArrayCase | ProcessCase


def scaled(shape: tuple[int, ...], scale: float) -> tuple[int, ...]:
    """``shape`` with about ``scale`` times as many elements; every axis shrinks alike."""
    factor = scale ** (1.0 / len(shape))
    return tuple(max(1, round(n * factor)) if n > 1 else n for n in shape)


def normal(count: int, shape: tuple[int, ...]) -> MakeInputs:
    """``count`` arrays of standard normal numbers."""

    def make(dtype: np.dtype[Any], scale: float) -> Inputs:
        rng = np.random.default_rng(0)
        size = scaled(shape, scale)
        if dtype.kind == "c":
            part = np.dtype(f"f{dtype.itemsize // 2}")
            return tuple(rng.standard_normal((*size, 2), part).view(dtype)[..., 0].copy() for _ in range(count))
        return tuple(rng.standard_normal(size, dtype) for _ in range(count))

    return make


def whole(arrays: int) -> Callable[[Inputs], int]:
    """The bytes of ``arrays`` arrays as large as the first input."""
    return lambda inputs: arrays * inputs[0].nbytes
