"""Derivatives and batches of ``while``: a loop in, loops with other bodies out.

Backwards a loop is walked turn by turn over what it left: on a tape the loop stacks the residuals of each turn, as many
as there turn out to be, and the tape gets a linear scan over them. Lanes of a loop stop one by one: those that are done
keep what they hold, and the loop ends with the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.bodies import Closing, inline
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent, leaf
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops import control
from tenferro.tracer.program import ArrayType, Operand, Operation, Value
from tenferro.tracer.tape import Tangent
from tenferro.tracer.transform.batch import Lanes
from tenferro.tracer.transform.linear import push
from tenferro.tracer.transform.loops import (
    Scan,
    batch_by_lane,
    emit_scan,
    linear_body,
    plain,
    stable_slopes,
    tangent_of,
    turned,
    value_tangents,
)
from tenferro.tracer.transform.recording import taken_out

if TYPE_CHECKING:
    from tenferro.tracer.trace import Trace


def _as_scan(operation: Operation) -> Scan:
    """The body as one of turns without slices."""
    p, inputs = operation.params, operation.inputs
    return Scan(p["body"], inputs[: p["carry"]], (), inputs[p["carry"] :], 0, False)


def jvp_while(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Tangents beside values; on a tape, and where the loop stacks something, a linear scan of what the loop leaves."""
    is_ordered = operation.op.is_ordered(operation.params)
    if operation.params["shapes"] or is_ordered or any(type(t) is Tangent for t in tangents):
        return _linearized(b, operation, tangents)
    trace, loop = b.trace, _as_scan(operation)
    count = len(loop.initial)
    active = [t is not None for t in tangents[:count]]
    while True:
        with taken_out(trace, "while_loop") as recording:
            carry, _ = loop.placeholders(trace)
            moving = [trace.placeholder(c.type) if on else None for c, on in zip(carry, active, strict=True)]
            found = value_tangents([*carry, *loop.rest], [*moving, *tangents[count:]])
            start = len(trace.operations)
            results = inline(trace, loop.body, [*carry, *loop.rest])
            push(trace, trace.operations[start:], found)
            slopes = [tangent_of(y, found) for y in results]
            outputs = [*results[:count], *(_filled(b, slopes[k], carry[k].type) for k in range(count) if active[k])]
        grown = [on or t is not None for on, t in zip(active, slopes, strict=False)]
        if grown == active:
            break
        active = grown
    kept = [k for k, on in enumerate(active) if on]
    with taken_out(trace, "while_loop") as condition:
        again = [trace.placeholder(c.type) for c in (*carry, *(m for m in moving if m is not None))]
        (holds,) = inline(trace, operation.params["condition"], [*again[:count], *loop.rest])
    closing = Closing(trace)
    closing.add(operation.params["condition"].program.name, again, condition, [holds])
    closing.add(loop.body.program.name, [*carry, *(m for m in moving if m is not None)], recording, outputs)
    initial = [*loop.initial, *(_filled(b, tangents[k], loop.initial[k].type) for k in kept)]
    made = _emit(trace, closing, initial, operation.params["lanes"])
    answer: list[Operand | None] = [None] * len(operation.outputs)
    for place, k in enumerate(kept):
        answer[k] = made[count + place]
    return answer


def _emit(trace: Trace, closing: Closing, initial: Sequence[Operand], lanes: int) -> tuple[Value, ...]:
    condition, body = closing.bodies()
    return trace.emit(
        control.while_,
        [*initial, *closing.operands()],
        condition=condition,
        body=body,
        carry=len(initial),
        shapes=(),
        lanes=lanes,
    )


def _filled(b: Derivation, x: Operand | None, type_: ArrayType) -> Operand:
    return b.zeros(plain(type_)) if x is None else x


def _linearized(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Each turn leaves whether it was one, which lanes that are done say no to, and its residuals."""
    trace, loop = b.trace, _as_scan(operation)
    count = len(loop.initial)
    found, active = stable_slopes(trace, loop, tangents)
    residuals = found.residuals
    shapes = operation.params["shapes"]
    turns = shapes[0][0] if shapes else leaf("runtime", trace.number(operation), 0)
    stacks = _stack(trace, operation, loop, found, residuals, turns)
    moving = [k for k, on in enumerate(active) if on]
    alive = Value(-1, ArrayType(b.truth(True).dtype, stacks[0].type.shape[1:]))

    def only_alive(results: list[Operand], given: list[Value], values: list[Value]) -> list[Operand]:
        carried = [_where(b, values[0], new, old) for new, old in zip(results, given, strict=False)]
        return [*carried, *results[len(given) :]]

    stacked = [k for k in range(count, len(found.results)) if found.outputs[k] is not None]
    recording, parameters, results = linear_body(b, loop, found, [alive, *residuals], moving, stacked, only_alive)
    made = emit_scan(
        trace, f"tangents of {loop.body.program.name}", recording, parameters, results,
        [_filled(b, tangents[k], loop.initial[k].type) for k in moving], list(stacks),
        [t for t in tangents[count:] if t is not None], turns, False,
    )  # fmt: skip
    answer: list[Operand | None] = [None] * len(operation.outputs)
    for place, k in enumerate((*moving, *stacked)):
        answer[k] = made[place]
    return answer


def _stack(
    trace: Trace, operation: Operation, loop: Scan, found: object, residuals: Sequence[Value], turns: Extent
) -> Sequence[Value]:
    """Have the loop stack the residuals, behind whether the turn was one, which it may do already."""
    from tenferro.tracer.transform.loops import Slopes

    assert isinstance(found, Slopes)
    b, condition = Derivation(trace), operation.params["condition"]
    with taken_out(trace, "while_loop") as recorded:
        again, _ = loop.placeholders(trace)
        (holds,) = inline(trace, condition, [*again, *loop.rest])
    closing = Closing(trace)
    closing.add(condition.program.name, again, recorded, [holds])
    is_noted = bool(operation.params["shapes"])
    noted: list[Operand] = [] if is_noted else [b.truth(True)]
    outputs = [*found.results, *noted, *residuals]
    closing.add(loop.body.program.name, found.carry, found.recording, outputs)
    condition, body = closing.bodies()
    shapes = (*operation.params["shapes"], *((turns,) for _ in noted), *((turns, *r.type.shape) for r in residuals))
    params = {**operation.params, "condition": condition, "body": body, "shapes": shapes}
    more = trace.extend(operation, [*loop.initial, *closing.operands()], params)
    return (operation.outputs[len(loop.initial)], *more) if is_noted else more


def _where(b: Derivation, mask: Operand, new: Operand, old: Operand) -> Operand:
    """Chosen by a mask of rank 0, or of lanes in front."""
    shape = new.type.shape
    if shape and mask.type.shape and len(mask.type.shape) < len(shape):
        mask = b.broadcast_to(mask, shape=shape, axes=tuple(range(len(mask.type.shape))))
    return b.where(mask, new, old)


def batch_while(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """All lanes take each turn together, as long as one of them goes on."""
    trace, loop = b.trace, _as_scan(operation)
    count = len(loop.initial)
    flags, rest = list(batched[:count]), batched[count:]
    params = operation.params
    if operation.op.calls_host(params) and not params["shapes"] and not params["lanes"]:
        moving = _moving(b, operation, loop, flags, rest, size)
        if _condition_differs(b, operation, loop, moving, rest, size):
            _check_together(trace, operation)
            return batch_by_lane(b, operation, batched, size)
    lanes_before = operation.params["lanes"]  # whose body leaves the stopped ones as they are
    while True:
        differs = bool(lanes_before) or _condition_differs(b, operation, loop, flags, rest, size)
        if differs:
            _check_together(trace, operation)
            flags = [True] * count
        types = [
            ArrayType(x.type.dtype, (size, *x.type.shape)) if on and not was else plain(x.type)
            for x, was, on in zip(loop.initial, batched, flags, strict=False)
        ]
        with taken_out(trace, "while_loop") as recording:
            carry = [trace.placeholder(t) for t in types]
            lanes = Lanes(trace, size, part_of=trace.mapping)
            results = lanes.enter(loop.body, [*carry, *loop.rest], [*flags, *rest])
            grown = [on or lanes.of(y)[1] for on, y in zip(flags, results, strict=False)]
            outputs = [lanes.full(y) if k >= count or flags[k] else lanes.of(y)[0] for k, y in enumerate(results)]
            if differs and not lanes_before:
                holds = _holds(b, operation, carry, loop.rest, flags, rest, size)
                outputs[:count] = [_where(b, holds, new, old) for new, old in zip(outputs, carry, strict=False)]
                if len(outputs) > count:  # whether the turn was one; of lanes of lanes, where those stop together
                    shape = outputs[count].type.shape
                    outputs[count] = holds if len(shape) == 1 else b.broadcast_to(holds, shape=shape, axes=(0,))
        if grown == flags:
            break
        flags = grown
    with taken_out(trace, "while_loop") as condition:
        again = [trace.placeholder(t) for t in types]
        holds = _holds(b, operation, again, loop.rest, flags, rest, size, bool(differs))
    closing = Closing(trace)
    closing.add(operation.params["condition"].program.name, again, condition, [holds])
    closing.add(loop.body.program.name, carry, recording, outputs)
    begun = [
        b.stretched(x, size) if on and not was else x
        for x, was, on in zip(loop.initial, batched, flags, strict=False)
    ]  # fmt: skip
    new_condition, body = closing.bodies()
    operands = [*begun, *closing.operands()]
    turns = leaf("runtime", len(trace.operations), 0)
    made = trace.emit(
        control.while_, operands, condition=new_condition, body=body, carry=count,
        lanes=lanes_before + 1 if differs else 0,
        shapes=tuple((turns, *y.type.shape) for y in outputs[count:]),
    )  # fmt: skip
    last = [y if on else b.stretched(y, size) for y, on in zip(made, flags, strict=False)]
    return [*last, *(turned(b, y) for y in made[count:])]


def _check_together(trace: Trace, operation: Operation) -> None:
    """BatchError where lanes that stop one by one ask for something across them."""
    if trace.mapping is not None:
        why = "while some go on and others have stopped; one condition for all is needed, such as tn.pmax of it"
        trace.mapping.check_together(operation, "while_loop", why)


def _moving(
    b: Derivation, operation: Operation, loop: Scan, flags: Sequence[bool], rest: Sequence[bool], size: Extent
) -> list[bool]:
    """Which entries of the carry differ between lanes, sooner or later."""
    found = list(flags)
    while True:
        with taken_out(b.trace, "while_loop"):
            carry = _placeholders(b, operation, loop, found, size)
            lanes = Lanes(b.trace, size, part_of=b.trace.mapping)
            results = lanes.enter(loop.body, [*carry, *loop.rest], [*found, *rest])
            grown = [on or lanes.of(y)[1] for on, y in zip(found, results, strict=False)]
        if grown == found:
            return found
        found = grown


def _holds(
    b: Derivation, operation: Operation, carry: Sequence[Operand], outer: Sequence[Operand], flags: Sequence[bool],
    rest: Sequence[bool], size: Extent, in_full: bool = True,
) -> Operand:  # fmt: skip
    """The condition, of each lane or of all."""
    lanes = Lanes(b.trace, size, part_of=b.trace.mapping)
    (found,) = lanes.enter(operation.params["condition"], [*carry, *outer], [*flags, *rest])
    return lanes.full(found) if in_full else lanes.of(found)[0]


def _condition_differs(
    b: Derivation, operation: Operation, loop: Scan, flags: Sequence[bool], rest: Sequence[bool], size: Extent
) -> bool:
    """Whether lanes may stop at different turns."""
    with taken_out(b.trace, "while_loop"):
        carry = _placeholders(b, operation, loop, flags, size)
        lanes = Lanes(b.trace, size, part_of=b.trace.mapping)
        (found,) = lanes.enter(operation.params["condition"], [*carry, *loop.rest], [*flags, *rest])
        return lanes.of(found)[1]


def _placeholders(b: Derivation, operation: Operation, loop: Scan, flags: Sequence[bool], size: Extent) -> list[Value]:
    """Values for the carry, of which some have lanes."""
    return [
        b.trace.placeholder(
            ArrayType(x.type.dtype, (size, *x.type.shape[len(x.type.shape) - _rank(k, loop, operation) :]))
            if on
            else plain(x.type)
        )
        for k, (x, on) in enumerate(zip(loop.initial, flags, strict=True))
    ]


def _rank(k: int, loop: Scan, operation: Operation) -> int:
    """Of one lane's entry of the carry."""
    return loop.body.program.inputs[k].value.type.rank
