"""Shapes without values: ``ShapeDtypeStruct``, ``eval_shape``, and programs of functions (``make_program``).

A function is traced on arrays that are nothing but a shape and a dtype; what it returns is told, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer.dim import as_extent
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, Value
from tenferro.tracer.trace import Trace, check_dtype
from tenferro.tracer.transform.inputs import Leaf, Opened, is_numeric, leaf_of
from tenferro.tracer.tree import opened, paths


class ShapeDtypeStruct:
    """An array's shape and dtype without its elements.

    shape: a tuple of ints; dtype: anything that NumPy takes for one."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        if dtype is None:
            raise TypeError(f"ShapeDtypeStruct: dtype is None; a dtype is needed{at(user_line())}")
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


def placeholder_types(trace: Trace, tree: Any, name: str) -> Opened:
    """A pytree of arrays or of ``ShapeDtypeStruct`` and their like, as leaves of their types that hold nothing."""
    values, treedef = opened(tree, f"{name}: the arguments")
    names = paths(treedef)
    places, found = [], []
    for k, x in enumerate(values):
        if isinstance(x, ShapeDtypeStruct) or (not is_numeric(x) and hasattr(x, "shape") and hasattr(x, "dtype")):
            shape: list[Extent] = []
            for n in x.shape:
                extent = as_extent(n)
                assert extent is not None
                shape.append(extent)
            type_ = ArrayType(check_dtype(np.dtype(x.dtype), name), tuple(shape))
            found.append(Leaf(Value(-1, type_), False, False, names[k]))
            places.append(k)
        elif is_numeric(x):
            leaf = leaf_of(trace, x, name, names[k])
            type_ = ArrayType(leaf.operand.type.dtype, leaf.operand.type.shape)
            found.append(Leaf(Value(-1, type_), leaf.weak, leaf.scalar, names[k]))
            places.append(k)
    return Opened(treedef, tuple(values), tuple(places), tuple(found))
