"""Functions with derivatives of their own: ``custom_jvp`` and ``custom_vjp`` inside a trace.

The function is recorded where it is called, on operands that are held constant, and a mark behind it carries the rule:
so Python code sees what it would see without, and every transformation meets one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent
from tenferro.tracer.op import Op, Tangents
from tenferro.tracer.program import ArrayType, Operand, Operation
from tenferro.tracer.records import dataclass
from tenferro.tracer.tape import Tangent
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform import marks
from tenferro.tracer.transform.inputs import Opened, delivered, results_of
from tenferro.tracer.transform.linear import has_tangent
from tenferro.tracer.transform.rules import (
    InLanes,
    Operands,
    Rule,
    guarded,
    name_of_lanes,
    on_tape,
    through,
    users_code,
    varies,
)

Results: TypeAlias = Sequence[ArrayType]
"""Types of the results, which hold the sizes that a rule may ask for."""


def call(trace: Trace, function: Callable[..., Any], given: Opened, mark: Op, rule: Rule) -> Any:
    """The function's results, behind a mark. ``given``: what the rule takes; ``function`` is called with its pytree."""
    with guarded(trace, rule.name):
        held = [trace.emit1(marks.stop_gradient, leaf.operand) for leaf in given.leaves]
        variables = [
            leaf.variable(trace, x, f"argument of {rule.name}") for leaf, x in zip(given.leaves, held, strict=True)
        ]
        results = results_of(trace, function(given.hand_on(variables)), f"{rule.name}: the result")
        found = [leaf.operand for leaf in results.leaves]
    made = trace.emit(mark, [*(leaf.operand for leaf in given.leaves), *found], rule=rule)
    return results.close([delivered(trace, y, leaf) for y, leaf in zip(made, results.leaves, strict=True)])


# -- forward rules -----------------------------------------------------------------------------------------------------

ForwardCode: TypeAlias = Callable[[Trace, Operands, Tangents, Results], tuple[list[Operand], list[Operand | None]]]
"""Primals, their tangents (None is 0) and types of the results in; results and their tangents out."""


class ForwardRule(Rule):
    """Of ``custom_jvp``."""

    def __init__(self, name: str, count: int, code: ForwardCode) -> None:
        super().__init__(name, count)
        self._code = code

    def jvp(self, b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        self.check_closed(operation, tangents)
        trace = b.trace
        primals, mine = operation.inputs[: self.count], tangents[: self.count]
        wanted = [v.type for v in operation.outputs]
        if not varies(mine, trace):
            return [None] * len(wanted)
        if self.is_followed(trace):
            nothing: list[Operand | None] = [None] * self.count
            return through(b, primals, mine, lambda xs: self._code(trace, xs, nothing, wanted)[0])
        self.depth = trace.depth
        if trace.tape is not None:
            return on_tape(trace, self.name, mine, lambda ts: self._code(trace, primals, ts, wanted)[1])
        with users_code(trace):
            return self._code(trace, primals, mine, wanted)[1]

    def for_lanes(self, b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Rule:
        code = _lanes_of_forward(self._code, tuple(has_lanes), name_of_lanes(b.trace))
        made = ForwardRule(self.name, self.count, code)
        made.depth = self.depth
        return made


def _lanes_of_forward(code: ForwardCode, has_lanes: tuple[bool, ...], name: str | None) -> ForwardCode:
    count = len(has_lanes)

    def all_lanes(
        trace: Trace, primals: Operands, tangents: Tangents, wanted: Results
    ) -> tuple[list[Operand], list[Operand | None]]:
        lane = [ArrayType(t.dtype, t.shape[1:]) for t in wanted]
        run = InLanes(trace, wanted[0].shape[0], name)

        def one(given: list[Operand | None]) -> Tangents:
            values = [x for x in given[:count] if x is not None]
            results, slopes = code(trace, values, given[count:], lane)
            return [*results, *slopes]

        found = run.run([*primals, *tangents], [*has_lanes, *has_lanes], one)
        full = [None if y is None else run.lanes.full(y) for y in found]
        results = [y for y in full[: len(wanted)] if y is not None]
        return results, full[len(wanted) :]

    return all_lanes


# -- reverse rules -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forth:
    """What the forward half of a reverse rule gave: results, what it keeps, and the other half."""

    results: list[Operand]
    residuals: list[Operand]
    back: BackCode


BackCode: TypeAlias = Callable[[Trace, Operands, Operands, Sequence[ArrayType]], list[Operand | None]]
"""Residuals, cotangents of the results and types of the arguments in; cotangents of the arguments out, None for 0."""

ForthCode: TypeAlias = Callable[[Trace, Operands, Results], Forth]
"""Primals and types of the results in."""


class ReverseRule(Rule):
    """Of ``custom_vjp``."""

    def __init__(self, name: str, count: int, code: ForthCode) -> None:
        super().__init__(name, count)
        self._code = code

    def jvp(self, b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        self.check_closed(operation, tangents)
        trace = b.trace
        primals, mine = operation.inputs[: self.count], tangents[: self.count]
        wanted = [v.type for v in operation.outputs]
        if not varies(mine, trace):
            return [None] * len(wanted)
        if self.is_followed(trace):
            return through(b, primals, mine, lambda xs: self._code(trace, xs, wanted).results)
        self.depth = trace.depth
        with users_code(trace):
            forth = self._code(trace, primals, wanted)
        return self._linear(trace, operation, forth, mine)

    def _linear(self, trace: Trace, operation: Operation, forth: Forth, tangents: Tangents) -> Tangents:
        """The step whose transpose is the rule's other half. Off a tape it stands in the trace, and what needs it is
        refused when the program is finished."""
        varying = tuple([has_tangent(v.type.dtype) for v in operation.outputs])
        results = [v for v, mine in zip(operation.outputs, varying, strict=True) if mine]
        if not results:
            return [None] * len(varying)
        shapes, dtypes = marks.types_of(results)
        argument_shapes, argument_dtypes = marks.types_of(operation.inputs[: self.count])
        on_tape = trace.tape is not None
        places = tuple([k for k, t in enumerate(tangents) if t is not None and (type(t) is Tangent or not on_tape)])
        given = [t for k, t in enumerate(tangents) if k in places and t is not None]
        made = iter(
            trace.emit(
                marks.custom_vjp_linear, [*forth.residuals, *given], rule=Back(self.name, forth.back, varying),
                count=len(forth.residuals), places=places, shapes=shapes, dtypes=dtypes,
                argument_shapes=argument_shapes, argument_dtypes=argument_dtypes,
            )
        )  # fmt: skip
        return [next(made) if mine else None for mine in varying]

    def for_lanes(self, b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Rule:
        code = _lanes_of_reverse(self._code, tuple(has_lanes), name_of_lanes(b.trace))
        made = ReverseRule(self.name, self.count, code)
        made.depth = self.depth
        return made


@dataclass(frozen=True, slots=True, eq=False)
class Back:
    """The other half of a reverse rule. ``varying``: which of the results have tangents."""

    name: str
    code: BackCode
    varying: tuple[bool, ...]

    def __repr__(self) -> str:
        return self.name

    def pull(self, b: Derivation, operation: Operation, cotangents: Tangents) -> list[Operand | None]:
        """The cotangents of all arguments."""
        params = operation.params
        types = [ArrayType(d, s) for d, s in zip(params["argument_dtypes"], params["argument_shapes"], strict=True)]
        given = [b.zeros(v.type) if t is None else t for v, t in zip(operation.outputs, cotangents, strict=True)]
        with users_code(b.trace):
            return self.code(b.trace, operation.inputs[: params["count"]], given, types)


def _lanes_of_reverse(code: ForthCode, has_lanes: tuple[bool, ...], name: str | None) -> ForthCode:
    def forth(trace: Trace, primals: Operands, wanted: Results) -> Forth:
        lane = [ArrayType(t.dtype, t.shape[1:]) for t in wanted]
        run, inner = InLanes(trace, wanted[0].shape[0], name), list[Forth]()

        def one(given: list[Operand | None]) -> Tangents:
            inner.append(code(trace, [x for x in given if x is not None], lane))
            return [*inner[0].results, *inner[0].residuals]

        run.run(primals, has_lanes, one)
        found = inner[0]
        kept = [run.lanes.of(r) for r in found.residuals]
        results = [run.lanes.full(y) for y in found.results]
        back = _lanes_of_back(found.back, tuple([mine for _, mine in kept]), has_lanes, name)
        return Forth(results, [r for r, _ in kept], back)

    return forth


def _lanes_of_back(
    code: BackCode, kept: tuple[bool, ...], has_lanes: tuple[bool, ...], name: str | None
) -> BackCode:  # fmt: skip
    """``kept``: which of the residuals have lanes. What is the same in all lanes gets the sum of theirs."""

    def back(
        trace: Trace, residuals: Operands, cotangents: Operands, types: Sequence[ArrayType]
    ) -> list[Operand | None]:
        b, run = Derivation(trace), InLanes(trace, cotangents[0].type.shape[0], name)
        lane = [ArrayType(t.dtype, t.shape[1:] if mine else t.shape) for t, mine in zip(types, has_lanes, strict=True)]

        def one(given: list[Operand | None]) -> Tangents:
            values = [x for x in given if x is not None]
            return code(trace, values[: len(kept)], values[len(kept) :], lane)

        found = run.run([*residuals, *cotangents], [*kept, *(True for _ in cotangents)], one)
        full = [None if ct is None else run.lanes.full(ct) for ct in found]
        return [
            ct if ct is None or mine else b.sum(ct, axes=(0,), keepdims=False)
            for ct, mine in zip(full, has_lanes, strict=True)
        ]

    return back
