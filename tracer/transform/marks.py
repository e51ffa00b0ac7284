"""Marks: operations that tell transformations something and compute nothing; programs are finished without them.

``stop_gradient`` holds its operand constant, ``checkpoint_name`` gives it a name. ``custom_jvp``, ``custom_vjp`` and
``custom_vmap`` stand behind what a function recorded: their operands are the function's arguments and then its results,
which they pass on; derivatives, or lanes, follow their rule instead of the operations before them.
``custom_vjp_linear`` stands on tapes for what such a rule does with tangents: it can be transposed but not computed.

``checkpoint`` runs a body once (``tenferro.tracer.transform.checkpoints``); the program has the body's operations in
its place, behind a ``barrier`` where they compute again what was computed before: no pass merges them over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.dims import Extent, Leaf, leaf, leaves, mapped, substitute
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Absent, Constant, Control, Library, Op, Tangents
from tenferro.tracer.program import ArrayType, DimScalar, Operand, Operation, Params, SemanticProgram, Value

if TYPE_CHECKING:
    from tenferro.tracer.bodies import Body
    from tenferro.tracer.derivation import Derivation

NO_FORWARD = "its function has a custom_vjp rule, which only reverse mode follows; custom_jvp serves both"


def _same(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    return tuple([ArrayType(t.dtype, t.shape) for t in types])


def _results(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    return _same(types[params["rule"].count :], params)


def _passed(*operands: Any, rule: Any) -> tuple[Any, ...]:
    return tuple(operands[rule.count :])


def _rule_jvp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    found: Tangents = operation.params["rule"].jvp(b, operation, tangents)
    return found


def _rule_batch(b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The rule for all lanes, behind results that all have lanes."""
    rule = operation.params["rule"]
    count = rule.count
    results = [
        x if mine else b.stretched(x, size)
        for x, mine in zip(operation.inputs[count:], has_lanes[count:], strict=True)
    ]  # fmt: skip
    laned = rule.for_lanes(b, operation, has_lanes[:count], size)
    return b.emit(operation.op, [*operation.inputs[:count], *results], rule=laned)


def _lanes_by_rule(
    b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent
) -> Sequence[Operand]:  # fmt: skip
    found: Sequence[Operand] = operation.params["rule"].batch(b, operation, has_lanes, size)
    return found


def _results_transpose(
    b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]
) -> Tangents:  # fmt: skip
    return (*(None for _ in range(operation.params["rule"].count)), *cotangents)


def _each(b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Sequence[Operand]:
    return b.emit(operation.op, operation.inputs, **operation.params)


def _named_jvp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    return tangents


def _named_transpose(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    return cotangents


def _linear_types(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    return tuple([ArrayType(d, s) for d, s in zip(params["dtypes"], params["shapes"], strict=True)])


def _no_forward(*operands: Any, **params: Any) -> tuple[Any, ...]:
    raise DerivativeError(f"custom_vjp: a derivative in forward mode; {NO_FORWARD}")


def _linear_jvp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """It is linear: itself, on tangents."""
    count = operation.params["count"]
    if any(t is not None for t in tangents[:count]):
        raise _no_rule(operation)
    given = [
        b.zeros(x.type) if t is None else t for x, t in zip(operation.inputs[count:], tangents[count:], strict=True)
    ]  # fmt: skip
    return b.emit(operation.op, [*operation.inputs[:count], *given], **operation.params)


def _no_rule(operation: Operation) -> DerivativeError:
    return DerivativeError(
        f"{operation.params['rule']}: a derivative in forward mode; {NO_FORWARD}{at(operation.line)}"
    )


def _linear_transpose(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    count = operation.params["count"]
    found = operation.params["rule"].pull(b, operation, cotangents)
    places = operation.params["places"]
    return (*(None for _ in range(count)), *(found[k] for k in places))


def _linear_batch(b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Sequence[Operand]:
    params = {**operation.params, "shapes": tuple([(size, *s) for s in operation.params["shapes"]])}
    return b.emit(operation.op, operation.inputs, **params)


def _body_results(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    return tuple([ArrayType(t.dtype, s) for t, s in zip(params["body"].outputs, params["shapes"], strict=True)])


def _interpreted(*operands: Any, **params: Any) -> tuple[Any, ...]:
    from tenferro.tracer.ops.control import interpreted

    return interpreted(params["body"], operands)


def _later(name: str) -> Callable[..., Any]:
    """A rule of ``checkpoint``, imported when it is first used, since it is made of the other rows."""

    def rule(*args: Any) -> Any:
        return getattr(import_module("tenferro.tracer.transform.checkpoints"), name)(*args)

    return rule


_PASSES = Absent("it is no step of a tape")
_MARK = Library(())

stop_gradient = Op(
    "stop_gradient", _MARK, _same, lambda x: x, Constant("held constant by stop_gradient"), _PASSES, _each
)  # fmt: skip
checkpoint_name = Op(
    "checkpoint_name", _MARK, _same, lambda x, name: x, _named_jvp, _named_transpose, _each,
)  # fmt: skip
custom_jvp = Op("custom_jvp", _MARK, _results, _passed, _rule_jvp, _PASSES, _rule_batch)
custom_vjp = Op("custom_vjp", _MARK, _results, _passed, _rule_jvp, _PASSES, _rule_batch)
custom_vmap = Op("custom_vmap", _MARK, _results, _passed, _rule_jvp, _results_transpose, _lanes_by_rule)
barrier = Op(
    "barrier", _MARK, _same, lambda *xs: xs, Absent("it is made when a program is finished"),
    Absent("it is made when a program is finished"), Absent("it is made when a program is finished"),
)  # fmt: skip
checkpoint = Op(
    "checkpoint", _MARK, _body_results, _interpreted, _later("jvp_checkpoint"), _later("transpose_checkpoint"),
    _later("batch_checkpoint"),
)  # fmt: skip
custom_vjp_linear = Op(
    "custom_vjp_linear", _MARK, _linear_types, _no_forward, _linear_jvp, _linear_transpose, _linear_batch,
)  # fmt: skip

_ONE = frozenset({stop_gradient, checkpoint_name})
_BEHIND = frozenset({custom_jvp, custom_vjp, custom_vmap})
MARKS = _ONE | _BEHIND | {custom_vjp_linear, checkpoint}
PLAIN = _ONE
"""Those that say all that there is to them."""


def has_marks(operations: Sequence[Operation]) -> bool:
    """Whether a mark is among the operations, or in a body that one of them runs."""
    return any(o.op in MARKS or (type(o.op.form) is Control and _in_bodies(o.params)) for o in operations)


def has_rules(params: Params) -> bool:
    """Whether a body among the parameters has marks that are more than they say."""
    operations = [o for body in _bodies(params) for o in body.program.operations]
    return any(
        (o.op in MARKS and o.op not in PLAIN) or (type(o.op.form) is Control and has_rules(o.params))
        for o in operations
    )


def _bodies(params: Params) -> list[Body]:
    from tenferro.tracer.bodies import Body

    found: list[Body] = []
    for value in params.values():
        found += [x for x in (value if type(value) is tuple else (value,)) if type(x) is Body]
    return found


def _in_bodies(params: Params) -> bool:
    return any(has_marks(body.program.operations) for body in _bodies(params))


def without_marks(program: SemanticProgram) -> SemanticProgram:
    """The program without its marks. DerivativeError where a result needs a derivative that no rule gives."""
    return _Unmarking(program).program() if has_marks(program.operations) else program


class _Scope:
    """What values and sizes of the old program, or of a body that takes part in it, are in the new one."""

    def __init__(self) -> None:
        self.values: dict[int, Operand] = {}
        self.leaves: dict[Leaf, Extent] = {}

    def operand(self, x: Operand) -> Operand:
        if isinstance(x, Value):
            return self.values[x.id]
        if isinstance(x, DimScalar):
            extent = self.extent(x.expr)
            return build.literal(extent, x.dtype) if isinstance(extent, int) else DimScalar(extent, x.dtype)
        return x

    def type(self, t: ArrayType) -> ArrayType:
        return ArrayType(t.dtype, tuple([self.extent(n) for n in t.shape]), t.weak)

    def extent(self, extent: Extent) -> Extent:
        if isinstance(extent, int) or not any(s in self.leaves for s in leaves(extent)):
            return extent
        return substitute(extent, lambda s: self.leaves.get(s, leaf(s.kind, s.index, s.axis)))


class _Unmarking:
    """The making of one program without marks; values and run-time sizes are numbered anew."""

    def __init__(self, program: SemanticProgram) -> None:
        self._old = program
        self._operations: list[Operation] = []
        self._next = len(program.inputs)

    def program(self) -> SemanticProgram:
        """The program."""
        scope = _Scope()
        scope.values = {i.value.id: i.value for i in self._old.inputs}
        self._add_all(scope, self._old.operations)
        outputs = tuple([scope.operand(o) for o in self._old.outputs])
        found = replace(self._old, operations=tuple(self._operations), outputs=outputs)
        _check_computable(found)
        return found

    def _add_all(self, scope: _Scope, operations: Sequence[Operation]) -> None:
        for number, operation in enumerate(operations):
            self._add(scope, number, operation)

    def _add(self, scope: _Scope, number: int, operation: Operation) -> None:
        inputs = [scope.operand(x) for x in operation.inputs]
        if operation.op in _ONE:
            passed = inputs
        elif operation.op in _BEHIND:
            passed = inputs[operation.params["rule"].count :]
        elif operation.op is checkpoint:
            passed = self._inlined(operation, inputs)
        else:
            for _, axis in operation.op.measures(operation.params):
                scope.leaves[Leaf("runtime", number, axis)] = leaf("runtime", len(self._operations), axis)
            params = Params(**{k: _plain(mapped(v, scope.extent)) for k, v in operation.params.items()})
            types = [scope.type(v.type) for v in operation.outputs]
            passed = self._appended(replace(operation, params=params), inputs, types)
        scope.values.update((v.id, x) for v, x in zip(operation.outputs, passed, strict=True))

    def _appended(self, like: Operation, inputs: Sequence[Operand], types: Sequence[ArrayType]) -> list[Operand]:
        outputs = tuple([Value(self._next + k, t) for k, t in enumerate(types)])
        self._next += len(outputs)
        self._operations.append(replace(like, inputs=tuple(inputs), outputs=outputs))
        return list(outputs)

    def _inlined(self, operation: Operation, inputs: list[Operand]) -> list[Operand]:
        """The results of a body whose operations are added."""
        program = operation.params["body"].program
        if operation.params["again"]:
            places = [k for k, x in enumerate(inputs) if isinstance(x, Value)]
            kept = [inputs[k] for k in places]
            like = replace(operation, op=barrier, params=Params())
            for k, x in zip(places, self._appended(like, kept, [x.type for x in kept]), strict=True):
                inputs[k] = x
        scope = _Scope()
        for declared, x in zip(program.inputs, inputs, strict=True):
            scope.values[declared.value.id] = x
            if declared.kind == "int":
                scope.leaves[Leaf("int", declared.value.id)] = _extent_of(x)
        self._add_all(scope, program.operations)
        return [scope.operand(o) for o in program.outputs]


def _extent_of(x: Operand) -> Extent:
    from tenferro.tracer.bodies import as_extent

    return as_extent(x)


def _plain(param: Any) -> Any:
    """A parameter whose bodies have no marks either."""
    from tenferro.tracer.bodies import Body

    if type(param) is tuple:
        return tuple([_plain(p) for p in param])
    return Body(without_marks(param.program)) if type(param) is Body and has_marks(param.program.operations) else param


def _check_computable(program: SemanticProgram) -> None:
    """DerivativeError where a result needs what only a transpose gives."""
    if not any(o.op is custom_vjp_linear for o in program.operations):
        return
    needed = {o.id for o in program.outputs if isinstance(o, Value)}
    for operation in reversed(program.operations):
        if any(v.id in needed for v in operation.outputs):
            needed.update(x.id for x in operation.inputs if isinstance(x, Value))
            if operation.op is custom_vjp_linear:
                raise _no_rule(operation)


def types_of(values: Sequence[Operand]) -> tuple[tuple[tuple[Extent, ...], ...], tuple[np.dtype[Any], ...]]:
    """Shapes and dtypes, as parameters."""
    return tuple([x.type.shape for x in values]), tuple([x.type.dtype for x in values])
