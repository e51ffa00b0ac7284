"""Arguments and results of transformed functions: Python values in, traced variables and operands out, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.cells import Cell
from tenferro.tracer.dim import Dim
from tenferro.tracer.errors import DerivativeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, Operand, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace, is_tenferro_array
from tenferro.tracer.traced import TracedArray, operand
from tenferro.tracer.transform.recording import Recording
from tenferro.tracer.tree import TreeDef, arrangement, opened, paths, unflatten

_ARRAYS = (np.ndarray, np.generic, bool, int, float, complex)


def is_numeric(x: Any) -> bool:
    """Whether a leaf is an array or a number, traced or not."""
    return type(x) in (TracedArray, Dim) or isinstance(x, _ARRAYS) or is_tenferro_array(x)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A numeric leaf: its operand, and what stands for it — a number that gives way, a NumPy scalar, or an array."""

    operand: Operand
    weak: bool
    scalar: bool
    path: str

    @property
    def type(self) -> ArrayType:
        """Type of the leaf as the function sees it."""
        return ArrayType(self.operand.type.dtype, self.operand.type.shape, self.weak)

    def variable(self, trace: Trace, value: Operand, origin: str) -> TracedArray:
        """A variable of this leaf's kind that holds another value; the function may not write it."""
        cell = Cell(trace, value)
        cell.origin = origin
        return TracedArray(cell, ArrayType(value.type.dtype, value.type.shape, self.weak), None, None, self.scalar)


def leaf_of(trace: Trace, x: Any, name: str, path: str = "") -> Leaf:
    """An array or a number as a leaf. DtypeError for anything else."""
    if type(x) is TracedArray:
        return Leaf(x.read(), x.type.weak, x._scalar, path)
    value, kind = operand(trace, x, name)
    weak = isinstance(kind, type) and not isinstance(x, np.generic | np.ndarray)
    return Leaf(value, weak, not value.type.shape and (weak or not isinstance(x, np.ndarray)), path)


def is_size(x: Any) -> bool:
    """Whether a leaf is Python's own int or bool, or a size: the same in all lanes and turns, and handed on as it is
    where nothing is done to it, so that it can be a size or a choice of the function's."""
    return type(x) in (int, bool, Dim)


@dataclass(frozen=True, slots=True)
class Opened:
    """A pytree of which some leaves are numeric: those as leaves, the others as they are."""

    treedef: TreeDef
    values: tuple[Any, ...]
    places: tuple[int, ...]
    leaves: tuple[Leaf, ...]

    def close(self, values: Sequence[Any]) -> Any:
        """The pytree with these in place of the numeric leaves."""
        found = list(self.values)
        for place, value in zip(self.places, values, strict=True):
            found[place] = value
        return unflatten(self.treedef, found)

    def in_order_of(self, treedef: TreeDef) -> Opened:
        """The same with the keys of its dicts in the order of a structure; as it is where more differs than that."""
        order = None if self.treedef == treedef else arrangement(self.treedef, treedef)
        if order is None:
            return self
        leaves = dict(zip(self.places, self.leaves, strict=True))
        places = [place for place, k in enumerate(order) if k in leaves]
        values = tuple([self.values[k] for k in order])
        return Opened(treedef, values, tuple(places), tuple([leaves[order[place]] for place in places]))

    def hand_on(self, values: Sequence[Any]) -> Any:
        """As ``close``, but that ints and sizes are handed on as they are."""
        given = [self.values[k] for k in self.places]
        return self.close([g if is_size(g) else x for g, x in zip(given, values, strict=True)])


def type_text(trace: Trace, type_: ArrayType) -> str:
    """A type as users know it: sizes by their names, or by their numbers where the trace serves one call."""
    sizes = [trace.describe(n) for n in type_.shape]
    return f"{type_.dtype.name} of shape ({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def open_tree(trace: Trace, tree: Any, what: str, takes: Callable[[Any], bool] = is_numeric) -> Opened:
    """The pytree's numeric leaves (those that ``takes`` takes) as leaves of the trace."""
    values, treedef = opened(tree, what)
    names = paths(treedef)
    places = [k for k, x in enumerate(values) if takes(x)]
    found = [leaf_of(trace, values[k], what, names[k]) for k in places]
    return Opened(treedef, tuple(values), tuple(places), tuple(found))


def results_of(trace: Trace, tree: Any, what: str) -> Opened:
    """The pytree that a function returned, whose leaves must all be numeric."""
    found = open_tree(trace, tree, what)
    if len(found.places) != len(found.values):
        wrong = next(x for k, x in enumerate(found.values) if k not in found.places)
        raise TraceError(
            f"{what}: of class {type(wrong).__module__}.{type(wrong).__qualname__}; arrays, numbers and pytrees of "
            f"them are needed{at(user_line())}"
        )
    return found


def check_sizes(leaves: Sequence[Leaf], recording: Recording, what: str) -> None:
    """ShapeError where a result has a size that only the function's own operations tell."""
    for leaf in leaves:
        if any(map(recording.measures, leaf.operand.type.shape)):
            raise ShapeError(
                f"{what}{leaf.path} has a size that is known only when the program runs; results of known sizes are "
                f"needed, numpy.where keeps the size of an array from which elements are selected{at(user_line())}"
            )


def delivered(trace: Trace, value: Operand, like: Leaf) -> TracedArray:
    """A fresh variable with a value, of the kind of a leaf (weak numbers become NumPy scalars)."""
    scalar = not value.type.shape and like.scalar
    return TracedArray(Cell(trace, value), ArrayType(value.type.dtype, value.type.shape), None, None, scalar)


def apart(trace: Trace, leaf: Leaf) -> Value:
    """A value of its own that equals the leaf: a function's use of it is told from other uses of the same array."""
    return build.copied(trace, leaf.operand)


def check_varies(leaf: Leaf, name: str, what: str, holomorphic: bool, forward: bool = False) -> None:
    """DerivativeError unless the leaf has a derivative of the kind that is asked for. ``forward``: one column for each
    number, of which a complex one has two."""
    kind = leaf.operand.type.dtype.kind
    if kind == "f" and not holomorphic:
        return
    if kind == "c" and (holomorphic or not forward):
        return
    cures = {
        "c": "holomorphic=True asks for the derivative of a holomorphic function, tn.jvp differentiates others",
        "f": "complex numbers are needed for holomorphic=True",
    }
    cure = cures.get(kind, "floats are needed: x.astype(float), or 2.0 for 2; ints of jitted functions are sizes")
    raise DerivativeError(f"{name}: {what}{leaf.path} of dtype {leaf.operand.type.dtype.name}; {cure}{at(user_line())}")
