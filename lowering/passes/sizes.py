"""Unify equal sizes: where a guard says that two sizes are equal, one of them is used throughout.

Spaces are compared by their expressions; with ``a.shape == b.shape`` guarded, arrays over both must count as one space.
The guards themselves stay as they were traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenferro.tracer.dims import DimExpr, Extent, Leaf, leaf, leaves, mul, sub, substitute
from tenferro.tracer.program import (
    ArrayType,
    DimScalar,
    Literal,
    Operand,
    Operation,
    Params,
    SemanticProgram,
    ShapeGuard,
    Value,
)
from tenferro.tracer.records import replace

ORDER = {"int": 0, "extent": 1, "runtime": 2}


def unify_sizes(program: SemanticProgram) -> SemanticProgram:
    known = _solve(program.guards)
    return _Substitution(known).program(program) if known else program


def _solve(guards: tuple[ShapeGuard, ...]) -> dict[Leaf, Extent]:
    """Each equation gives away one leaf that occurs in it alone and linearly, with coefficient 1 or −1."""
    known: dict[Leaf, Extent] = {}
    readers: dict[Leaf, set[Leaf]] = {}  # of a leaf, those whose values read it
    for guard in guards:
        if guard.relation != "==" or not guard.holds:
            continue
        difference = _replaced(sub(guard.lhs, guard.rhs), known)
        solved = _isolate(difference)
        if solved is None:
            continue
        gone, value = solved
        changed = readers.pop(gone, set())
        for one in changed:
            known[one] = _replaced(known[one], {gone: value})
        known[gone] = value
        for one in (*changed, gone):
            for read in leaves(known[one]):
                readers.setdefault(read, set()).add(one)
    return known


def _isolate(difference: Extent) -> tuple[Leaf, Extent] | None:
    if isinstance(difference, int):
        return None
    candidates: list[tuple[Leaf, int]] = []
    for monomial, coefficient in difference.terms:
        if len(monomial) == 1 and monomial[0].leaf is not None and abs(coefficient) == 1:
            candidates.append((monomial[0].leaf, coefficient))
    for gone, coefficient in sorted(candidates, key=lambda c: (ORDER[c[0].kind], c[0].index, c[0].axis), reverse=True):
        rest = sub(difference, mul(_alone(gone), coefficient))
        if gone.kind != "runtime" and gone not in leaves(rest):
            return gone, mul(rest, -coefficient)
    return None


def _alone(found: Leaf) -> Extent:
    return leaf(found.kind, found.index, found.axis)


def _replaced(extent: Extent, known: Mapping[Leaf, Extent]) -> Extent:
    return substitute(extent, lambda found: known.get(found, _alone(found)))


class _Substitution:
    """Applies a solution to every size of a program."""

    def __init__(self, known: dict[Leaf, Extent]) -> None:
        self.known = known
        self.memo: dict[DimExpr, Extent] = {}
        self.values: dict[int, Value] = {}

    def program(self, program: SemanticProgram) -> SemanticProgram:
        return replace(
            program,
            inputs=tuple(replace(i, value=self.value(i.value)) for i in program.inputs),
            operations=tuple(self.operation(o) for o in program.operations),
            outputs=tuple(self.operand(o) for o in program.outputs),
        )

    def operation(self, o: Operation) -> Operation:
        params = {k: self.param(v) for k, v in o.params.items()}
        is_same = all(v is o.params[k] for k, v in params.items())
        inputs, outputs = tuple([self.operand(x) for x in o.inputs]), tuple([self.value(v) for v in o.outputs])
        return Operation(o.op, inputs, o.params if is_same else Params(**params), outputs, o.line, o.place)

    def operand(self, operand: Operand) -> Operand:
        match operand:
            case Value():
                return self.value(operand)
            case DimScalar(expr=expr, dtype=dtype):
                size = self.extent(expr)
                return Literal(_number(size, dtype), dtype) if isinstance(size, int) else DimScalar(size, dtype)
            case Literal():
                return operand

    def value(self, value: Value) -> Value:
        found = self.values.get(value.id)
        if found is None:
            kind = value.type
            shape = tuple([self.extent(n) for n in kind.shape])
            is_same = all(a is b for a, b in zip(shape, kind.shape, strict=True))
            found = self.values[value.id] = (
                value if is_same else Value(value.id, ArrayType(kind.dtype, shape, kind.weak))
            )
        return found

    def extent(self, extent: Extent) -> Extent:
        if isinstance(extent, int):
            return extent
        if extent not in self.memo:
            self.memo[extent] = _replaced(extent, self.known)
        return self.memo[extent]

    def param(self, value: Any) -> Any:
        if isinstance(value, DimExpr):
            return self.extent(value)
        if not isinstance(value, tuple):
            return value
        found = tuple([self.param(v) for v in value])
        return value if all(a is b for a, b in zip(found, value, strict=True)) else found


def _number(size: int, dtype: Any) -> int | float | complex:
    match dtype.kind:
        case "f":
            return float(size)
        case "c":
            return complex(size)
        case _:
            return size
