"""Transformations where a trace is spread over a mesh: what the function sees in, what stands at each position out.

Every position has operations of its own, and so derivatives of its own. A value that is the same at all positions
along an axis is one value: as a result it is given back to once, at the first of them; as an argument it is given back
the sum of what all of them give. So a gradient is that of the function as it is written, whatever its copies are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.derivation import Derivation
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import collectives
from tenferro.tracer.program import ArrayType, Operand, Value
from tenferro.tracer.spread import NOWHERE, Spread
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.linear import as_recorded

if TYPE_CHECKING:
    from tenferro.tracer.transform.batch import Lanes

Each = Sequence[Operand | None]
"""One for each position; None is 0."""


def everywhere(trace: Trace, x: Operand) -> tuple[Operand, ...]:
    """What an operand is at each position; itself where nothing is spread."""
    return (x,) if trace.spread is None else trace.spread.operands(x)


def given_back(trace: Trace, y: Operand, cotangent: Operand, name: str) -> Each:
    """What a result's copies are given back: the cotangent, where the copy is the first of its like."""
    spread = trace.spread
    if spread is None:
        return (cotangent,)
    further = sorted(spread.axes(cotangent) - spread.axes(y))
    if further:
        raise DerivativeError(
            f"{name}: a cotangent that may differ along mesh axis {further[0]!r}, along which the result is the same; "
            f"one that is the same, such as tn.psum(x, {further[0]!r}), is needed{at(user_line())}"
        )
    same, found = _same_along(spread, y), list[Operand | None]()
    for position, ct in zip(spread.grid.positions, spread.operands(cotangent), strict=True):
        if spread.grid.index(position, same) == 0:
            found.append(ct)
        else:  # other processes must have the same operations as the first one
            found.append(None if spread.grid.remote is None else Derivation(trace).zeros(ct.type))
    return found


def _same_along(spread: Spread, x: Operand) -> tuple[str, ...]:
    """The mesh axes along which a value is the same."""
    return tuple(n for n in spread.grid.names if n not in spread.axes(x))


def summed(trace: Trace, x: Operand, cotangents: Each) -> Operand | None:
    """What an argument is given back, from what its copies are: the sum over positions where it is the same."""
    spread = trace.spread
    if spread is None:
        return cotangents[0]
    same, grid = _same_along(spread, x), spread.grid
    found = list(cotangents)
    if grid.remote is None:
        if all(ct is None for ct in found):
            return None
        groups = grid.groups(same) if same else []
        given = [[found[p] for p in group if found[p] is not None] for group in groups]
        if all(len(mine) < 2 for mine in given):  # one for all of a group, from wherever it is
            for group, mine in zip(groups, given, strict=True):
                for p in group:
                    found[p] = mine[0] if mine else None
            same = ()
    made = spread.standing(_values(trace, spread, found, x.type), spread.axes(x))
    return spread.meet(collectives.all_reduce, made, same, False, reduction="sum") if same else made


def together(trace: Trace, y: Operand, tangents: Each, along: frozenset[str]) -> Operand | None:
    """The tangent of a result, from those of its copies. ``along``: mesh axes along which tangents of arguments may
    differ although the arguments do not."""
    spread = trace.spread
    if spread is None:
        return tangents[0]
    if all(t is None for t in tangents):
        return None
    return spread.standing(_values(trace, spread, tangents, y.type), spread.axes(y) | along)


def differing_further(trace: Trace, values: Sequence[Operand], tangents: Each) -> frozenset[str]:
    """The mesh axes along which tangents may differ, and their values not."""
    spread = trace.spread
    if spread is None:
        return NOWHERE
    pairs = [(x, t) for x, t in zip(values, tangents, strict=True) if t is not None]
    return NOWHERE.union(*(spread.axes(t) - spread.axes(x) for x, t in pairs))


def _values(trace: Trace, spread: Spread, operands: Each, type_: ArrayType) -> list[Value]:
    """A value for each position; 0 for None."""
    b, found = Derivation(trace), list[Value]()
    with as_recorded(trace):
        for x, place in zip(operands, spread.grid.places, strict=True):
            with b.on(place):
                x = b.zeros(type_) if x is None else x
                found.append(x if isinstance(x, Value) else b.copy(x))
    return found


def placeholder(trace: Trace, lanes: Lanes, operand: Operand) -> Value:
    """What stands for one lane of an operand while a mapped function is recorded; at each position its own."""
    type_ = ArrayType(operand.type.dtype, operand.type.shape[1:])
    values = []
    for x in everywhere(trace, operand):
        value = trace.placeholder(type_)
        lanes.put(value, x, True)
        values.append(value)
    return values[0] if trace.spread is None else trace.spread.standing(values, trace.spread.axes(operand))


def of_each(trace: Trace, x: Operand, made: Callable[[Operand], Operand]) -> Operand:
    """What is made of an operand, at each position on its engine."""
    spread = trace.spread
    if spread is None:
        return made(x)
    with as_recorded(trace):
        b, found = Derivation(trace), []
        for copy, place in zip(spread.operands(x), spread.grid.places, strict=True):
            with b.on(place):
                found.append(made(copy))
    return spread.standing(_values(trace, spread, found, found[0].type), spread.axes(x))
