"""``ShapeDtypeStruct``: what an array is without its elements, and arrays of any elements in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer.dim import as_extent
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.tree import map as map_tree, opened


class ShapeDtypeStruct:
    """An array's shape and dtype without its elements.

    shape: a tuple of ints; dtype: anything that NumPy takes for one."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        if dtype is None:
            raise TypeError(f"ShapeDtypeStruct: dtype is None; a dtype is needed{at(user_line())}")
        if not isinstance(shape, Sequence | np.ndarray) or isinstance(shape, str | bytes):
            cure = f", ({shape!r},) for a vector," if as_extent(shape) is not None else ""
            raise TypeError(f"ShapeDtypeStruct: shape is {shape!r}; a tuple of ints{cure} is needed{at(user_line())}")
        self.shape: tuple[Any, ...] = tuple(shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        for n in self.shape:
            if as_extent(n) is None or n < 0:
                raise ShapeError(f"ShapeDtypeStruct: size {n!r}; an int of at least 0 is needed{at(user_line())}")

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """How many elements there are."""
        found: Any = 1
        for n in self.shape:
            found = found * n
        return found

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len: a ShapeDtypeStruct of rank 0; rank 1 or more is needed{at(user_line())}")
        return int(self.shape[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name})"


def some_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that is not going to run, with arrays of any elements in place of
    ``ShapeDtypeStruct``."""
    leaves, _ = opened((args, kwargs), "the arguments")
    if not any(isinstance(x, ShapeDtypeStruct) for x in leaves):
        return args, kwargs
    given: tuple[tuple[Any, ...], dict[str, Any]] = map_tree(_some_array, (args, kwargs))
    return given


def _some_array(x: Any) -> Any:
    if not isinstance(x, ShapeDtypeStruct):
        return x
    try:
        return np.empty(x.shape, x.dtype)  # touches no memory
    except MemoryError:
        return np.broadcast_to(np.zeros((), x.dtype), x.shape)
