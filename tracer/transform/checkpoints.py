"""``checkpoint``: a function as one operation with a body, whose derivative computes again what it needs.

Forward the operation runs its body. On a tape stands the same operation with a linear body: tangents, the function's
own operands and what the policy saved in; what else the derivative reads is computed again inside. So transposing it
computes again too, once the cotangents are there (Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with
sublinear memory cost"; policies as in JAX).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tenferro.tracer.bodies import Body, Closing, inline, silenced
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent
from tenferro.tracer.op import Tangents
from tenferro.tracer.program import ArrayType, Operand, Operation, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.substitution import bodies
from tenferro.tracer.tape import Tangent
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform import marks
from tenferro.tracer.transform.batch import Lanes
from tenferro.tracer.transform.inputs import Opened, check_sizes, delivered, results_of
from tenferro.tracer.transform.linear import has_tangent, on_tape, pull, push, replay
from tenferro.tracer.transform.recording import Recording, taken_out

Policy: TypeAlias = Callable[..., bool]
"""``policy(op, *operand types, **params)``: whether the results of an operation are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """How a function is checkpointed. ``again``: what is computed again is not merged with what was computed before."""

    policy: Policy | None
    again: bool

    def __repr__(self) -> str:
        return getattr(self.policy, "__name__", "nothing_saveable")


def call(trace: Trace, function: Callable[..., Any], given: Opened, setting: Setting, name: str) -> Any:
    """The function's results, as one operation. ``function`` is called with the pytree of ``given``."""
    with taken_out(trace, name) as recording:
        values = [trace.placeholder(_plain(leaf.operand.type)) for leaf in given.leaves]
        variables = [
            leaf.variable(trace, x, f"argument of {name}") for leaf, x in zip(given.leaves, values, strict=True)
        ]
        with bodies(trace, function) as (body,):
            results = results_of(trace, body(given.hand_on(variables)), f"{name}: the result")
        outputs = [leaf.operand for leaf in results.leaves]
    check_sizes(results.leaves, recording, f"{name}: result")
    operands = [leaf.operand for leaf in given.leaves]
    made = _emit(trace, name, recording, values, operands, outputs, setting, again=False)
    return results.close([delivered(trace, y, leaf) for y, leaf in zip(made, results.leaves, strict=True)])


def _emit(
    trace: Trace, name: str, recording: Recording, parameters: Sequence[Value], operands: Sequence[Operand],
    outputs: Sequence[Operand], setting: Setting, again: bool,
) -> tuple[Value, ...]:  # fmt: skip
    closing = Closing(trace)
    closing.add(name, parameters, recording, outputs)
    (body,) = closing.bodies()
    shapes, _ = marks.types_of(outputs)
    return trace.emit(
        marks.checkpoint, [*operands, *closing.operands()], body=body, shapes=shapes, setting=setting, again=again
    )  # fmt: skip


def _plain(type_: ArrayType) -> ArrayType:
    return ArrayType(type_.dtype, type_.shape)


def _tangents(operands: Sequence[Operand], tangents: Sequence[Operand | None]) -> dict[int, Operand]:
    return {x.id: t for x, t in zip(operands, tangents, strict=True) if isinstance(x, Value) and t is not None}


def _tangent(x: Operand, found: dict[int, Operand]) -> Operand | None:
    return found.get(x.id) if isinstance(x, Value) and has_tangent(x.type.dtype) else None


def _own(trace: Trace, operands: Sequence[Operand]) -> list[Operand]:
    """Placeholders in place of values: two operands that are one value are told apart."""
    return [trace.placeholder(_plain(x.type)) if isinstance(x, Value) else x for x in operands]


def _given(own: Sequence[Operand], operands: Sequence[Operand]) -> tuple[list[Value], list[Operand]]:
    """The placeholders, and what stands in for each."""
    pairs = [(v, x) for v, x in zip(own, operands, strict=True) if isinstance(x, Value) and isinstance(v, Value)]
    return [v for v, _ in pairs], [x for _, x in pairs]


def jvp_checkpoint(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Forward, one operation for the tangents; on a tape, one that is linear."""
    if b.trace.tape is not None:
        return _linearized(b, operation, tangents)
    trace, params = b.trace, operation.params
    body: Body = params["body"]
    with taken_out(trace, body.program.name) as recording:
        own = _own(trace, operation.inputs)
        moving = [None if t is None else trace.placeholder(_plain(t.type)) for t in tangents]
        found = _tangents(own, moving)
        start = len(trace.operations)
        results = inline(trace, body, own, is_again=True)
        push(trace, trace.operations[start:], found)
        slopes = [_tangent(y, found) for y in results]
    values, operands = _given(own, operation.inputs)
    active = [t for t in slopes if t is not None]
    made = iter(
        _emit(
            trace, f"tangents of {body.program.name}", recording, [*values, *(m for m in moving if m is not None)],
            [*operands, *(t for t in tangents if t is not None)], active, params["setting"], params["again"],
        )
    )  # fmt: skip
    return [None if t is None else next(made) for t in slopes]


def _linearized(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    trace, params = b.trace, operation.params
    body: Body = params["body"]
    setting: Setting = params["setting"]
    varying = [type(t) is Tangent for t in tangents]
    with taken_out(trace, body.program.name) as recording, on_tape(trace) as tape:
        own = _own(trace, operation.inputs)
        inputs = [tape.input(_plain(x.type)) if mine else None for x, mine in zip(own, varying, strict=True)]
        found = _tangents(own, inputs)
        start = len(trace.operations)
        results = inline(trace, body, own)
        primal = trace.operations[start:]
        push(trace, primal, found)
        slopes = [_tangent(y, found) for y in results]
    values, operands = _given(own, operation.inputs)
    read = [x for o in tape.operations for x in o.inputs if type(x) is Value]
    saved = _saved(recording, {v.id for v in values}, read, setting.policy)
    kept = _extended(trace, operation, recording, (values, operands), results, saved)
    with taken_out(trace, body.program.name) as linear:
        moving = [None if t is None else trace.placeholder(t.type) for t in inputs]
        again = Lanes(trace, 1)  # none has lanes: what is computed again is recorded as it was
        held = [trace.placeholder(_plain(s.type)) for s in saved]
        for s, x in zip(saved, held, strict=True):
            again.put(s, x, False)
        again.replay(_computed_again(recording, read, saved))
        known: dict[int, Operand] = {
            t.id: m for t, m in zip(inputs, moving, strict=True) if t is not None and m is not None
        }
        replay(trace, tape, known, {x.id: again.of(x)[0] for x in read})
        found_again = [known.get(t.id) if type(t) is Tangent else None for t in slopes]
        active = [t for t in found_again if t is not None]
    made = iter(
        _emit(
            trace, f"tangents of {body.program.name}", linear, [*(m for m in moving if m is not None), *values, *held],
            [*(t for t in tangents if type(t) is Tangent), *operands, *kept], active, setting, setting.again,
        )
    )  # fmt: skip
    return [None if t is None else next(made) for t in found_again]


def _saved(recording: Recording, given: set[int], read: Sequence[Value], policy: Policy | None) -> list[Value]:
    """What the policy keeps of what the derivative needs: beyond it nothing is computed again."""
    if policy is None:
        return []
    needed = {x.id for x in read}
    saved: list[Value] = []
    for operation in reversed(recording.operations):
        mine = [v for v in operation.outputs if v.id in needed]
        if not mine:
            continue
        if policy(operation.op, *(x.type for x in operation.inputs), **operation.params):
            saved += mine
        else:
            needed.update(x.id for x in operation.inputs if isinstance(x, Value) and x.id not in given)
    return saved[::-1]


def _computed_again(recording: Recording, read: Sequence[Value], saved: Sequence[Value]) -> list[Operation]:
    """The operations that give what the derivative needs, from what was saved."""
    if any(o.op.measures(o.params) for o in recording.operations):
        return [silenced(o) for o in recording.operations if not o.op.is_silent]
    held, needed = {s.id for s in saved}, {x.id for x in read}
    found = []
    for operation in reversed(recording.operations):
        if any(v.id in needed and v.id not in held for v in operation.outputs):
            found.append(silenced(operation))
            needed.update(x.id for x in operation.inputs if isinstance(x, Value))
    return found[::-1]


def _extended(
    trace: Trace, operation: Operation, recording: Recording, given: tuple[list[Value], list[Operand]],
    results: Sequence[Operand], saved: Sequence[Value],
) -> tuple[Value, ...]:  # fmt: skip
    """What was saved, as further results of the operation itself."""
    if not saved:
        return ()
    values, operands = given
    closing = Closing(trace)
    outputs = [*results, *saved]
    closing.add(operation.params["body"].program.name, values, recording, outputs)
    (body,) = closing.bodies()
    shapes, _ = marks.types_of(outputs)
    params = {**operation.params, "body": body, "shapes": shapes}
    return trace.extend(operation, [*operands, *closing.operands()], params)


def transpose_checkpoint(
    b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]
) -> Tangents:
    """One operation for the cotangents, which computes again what it needs."""
    trace, params = b.trace, operation.params
    body: Body = params["body"]
    others = [x for x, mine in zip(operation.inputs, is_linear, strict=True) if not mine]
    with taken_out(trace, body.program.name) as recording:
        own = _own(trace, others)
        moving = [None if ct is None else trace.placeholder(_plain(ct.type)) for ct in cotangents]
        with on_tape(trace) as tape:
            inputs = [
                tape.input(_plain(x.type)) if on else None for x, on in zip(operation.inputs, is_linear, strict=True)
            ]
            following = iter(own)
            results = inline(trace, body, [next(following) if t is None else t for t in inputs])
        seeds: dict[int, Operand] = {}
        for y, ct in zip(results, moving, strict=True):
            if type(y) is Tangent and ct is not None:
                seeds[y.id] = b.plus(seeds.get(y.id), ct) or ct
        found = pull(trace, tape, seeds)
        slopes = [None if t is None else found.get(t.id) for t in inputs]
    values, operands = _given(own, others)
    made = iter(
        _emit(
            trace, f"cotangents of {body.program.name}", recording, [*(m for m in moving if m is not None), *values],
            [*(ct for ct in cotangents if ct is not None), *operands], [t for t in slopes if t is not None],
            params["setting"], params["again"],
        )
    )  # fmt: skip
    return [None if t is None else next(made) for t in slopes]


def batch_checkpoint(b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The body for all lanes."""
    trace, params = b.trace, operation.params
    body: Body = params["body"]
    with taken_out(trace, body.program.name) as recording:
        own = _own(trace, operation.inputs)
        lanes = Lanes(trace, size, part_of=trace.mapping)
        outputs = [lanes.full(y) for y in lanes.enter(body, own, has_lanes)]
    values, operands = _given(own, operation.inputs)
    return _emit(
        trace, body.program.name, recording, values, operands, outputs, params["setting"], params["again"]
    )  # fmt: skip
