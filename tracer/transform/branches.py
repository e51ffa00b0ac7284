"""Derivatives and batches of ``cond``: a choice among bodies in, a choice among other bodies out."""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.tracer import build
from tenferro.tracer.bodies import Body, Closing, inline
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent
from tenferro.tracer.op import Contraction, Indexed, Pointwise, Reduction, Tangents, Update, View
from tenferro.tracer.ops import control
from tenferro.tracer.ops.host import TRUTH
from tenferro.tracer.program import ArrayType, Operand, Operation, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.tape import Tangent
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.batch import Lanes
from tenferro.tracer.transform.linear import on_tape, pull, push, replay
from tenferro.tracer.transform.loops import Scan, Slopes, batch_by_lane, plain, slopes_at, tangent_of, value_tangents
from tenferro.tracer.transform.recording import Recording, taken_out


@dataclass(frozen=True, slots=True)
class Part:
    """A branch that was recorded, and its results."""

    name: str
    parameters: tuple[Value, ...]
    recording: Recording
    outputs: tuple[Operand, ...]


def emit_cond(
    trace: Trace, index: Operand, parts: Sequence[Part], others: Sequence[Operand], shapes: Sequence[tuple[Extent, ...]]
) -> tuple[Value, ...]:
    """A choice among recorded branches; ``others`` are what their parameters get."""
    closing = Closing(trace)
    tokens = () if shapes else (build.literal(True, TRUTH),)  # an operation is known by its first result
    for part in parts:
        closing.add(part.name, part.parameters, part.recording, (*part.outputs, *tokens))
    branches = tuple(closing.bodies())
    operands = [index, *others, *closing.operands()]
    found = trace.emit(control.cond, operands, branches=branches, shapes=tuple(shapes) or ((),))
    return () if tokens else found


def jvp_cond(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Each branch with its tangents; on a tape, a choice among linear branches with what the chosen one left."""
    if any(type(t) is Tangent for t in tangents) or operation.op.is_ordered(operation.params):
        return _linearized(b, operation, tangents)
    trace, (index, *rest) = b.trace, operation.inputs
    found = []
    for body in operation.params["branches"]:
        with taken_out(trace, "cond") as recording:
            known = value_tangents(rest, tangents[1:])
            start = len(trace.operations)
            results = inline(trace, body, rest)
            push(trace, trace.operations[start:], known)
            slopes = [tangent_of(y, known) for y in results]
            zeros = [b.zeros(plain(y.type)) if t is None else t for y, t in zip(results, slopes, strict=True)]
        found.append((body, recording, slopes, zeros))
    active = [k for k in range(len(operation.outputs)) if any(slopes[k] is not None for _, _, slopes, _ in found)]
    parts = [
        Part(body.program.name, (), recording, tuple(zeros[k] for k in active)) for body, recording, _, zeros in found
    ]
    made = iter(emit_cond(trace, index, parts, [], [operation.outputs[k].type.shape for k in active]))
    return [next(made) if k in active else None for k in range(len(operation.outputs))]


class _Again:
    """A branch computed again on its operands, in the recording that runs."""

    def __init__(self, trace: Trace, body: Body, rest: Sequence[Operand], like: Slopes) -> None:
        scan = Scan(body, (), (), tuple(rest), 0, False)
        self.tape, self.inputs, self.outputs = slopes_at(trace, scan, [], like.inputs)


def _slopes(trace: Trace, body: Body, rest: Sequence[Operand], varies: Sequence[bool]) -> Slopes:
    with taken_out(trace, "cond") as recording, on_tape(trace) as tape:
        inputs = [tape.input(plain(x.type)) if mine else None for x, mine in zip(rest, varies, strict=True)]
        known = value_tangents(rest, inputs)
        start = len(trace.operations)
        results = inline(trace, body, rest)
        push(trace, trace.operations[start:], known)
        outputs = tuple(tangent_of(y, known) for y in results)
    return Slopes(recording, (), (), tuple(results), tape, tuple(inputs), outputs)


def _linearized(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    trace, (index, *rest) = b.trace, operation.inputs
    bodies, given = operation.params["branches"], [t for t in tangents[1:] if t is not None]
    found = [_slopes(trace, body, rest, [t is not None for t in tangents[1:]]) for body in bodies]
    residuals = [s.residuals for s in found]
    kept = [r for mine in residuals for r in mine]
    closing = Closing(trace)
    for number, (body, s) in enumerate(zip(bodies, found, strict=True)):
        with taken_out(trace, "cond") as empty:
            filled = [
                r if owner == number else b.zeros(plain(r.type))
                for owner, mine in enumerate(residuals) for r in mine
            ]  # fmt: skip
        s.recording.operations += empty.operations
        closing.add(body.program.name, (), s.recording, [*s.results, *filled])
    shapes = (*operation.params["shapes"], *(r.type.shape for r in kept))
    params = {"branches": tuple(closing.bodies()), "shapes": shapes}
    left = iter(trace.extend(operation, [index, *closing.operands()], params))
    active = [k for k in range(len(operation.outputs)) if any(s.outputs[k] is not None for s in found)]
    parts = []
    for body, s, mine in zip(bodies, found, residuals, strict=True):
        parts.append(_linear_part(b, body, rest, s, mine, residuals, active))
    shapes = tuple(operation.outputs[k].type.shape for k in active)
    made = iter(emit_cond(trace, index, parts, [*given, *left], shapes))
    return [next(made) if k in active else None for k in range(len(operation.outputs))]


def _linear_part(
    b: Derivation, body: Body, rest: Sequence[Operand], s: Slopes, mine: Sequence[Value],
    every: Sequence[Sequence[Value]], active: Sequence[int],
) -> Part:  # fmt: skip
    """A branch's tape; its parameters are the tangents and the residuals of all branches."""
    trace = b.trace
    with taken_out(trace, "cond") as recording:
        inputs = [trace.placeholder(plain(t.type)) for t in s.inputs if t is not None]
        again = _Again(trace, body, rest, s) if s.recomputes else None
        values = [trace.placeholder(plain(r.type)) for group in every for r in group]
        place = next(sum(map(len, every[:k])) for k, group in enumerate(every) if group is mine)
        given = s.inputs if again is None else again.inputs
        known: dict[int, Operand] = {t.id: x for t, x in zip([t for t in given if t is not None], inputs, strict=True)}
        tape, slopes = (s.tape, s.outputs) if again is None else (again.tape, again.outputs)
        replay(trace, tape, known, {r.id: values[place + k] for k, r in enumerate(mine)})
        outputs = []
        for k in active:
            t = slopes[k]
            t = known.get(t.id) if type(t) is Tangent else t
            outputs.append(b.zeros(plain(s.results[k].type)) if t is None else t)
    return Part(f"tangents of {body.program.name}", (*inputs, *values), recording, tuple(outputs))


def transpose_cond(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    """The transpose of the branch that was chosen."""
    trace, (index, *rest) = b.trace, operation.inputs
    mine = [k for k, on in enumerate(is_linear[1:]) if on]
    parts = []
    for body in operation.params["branches"]:
        with taken_out(trace, "cond") as recording:
            with on_tape(trace) as tape:
                tangents = {k: tape.input(plain(rest[k].type)) for k in mine}
                results = inline(trace, body, [tangents.get(k, x) for k, x in enumerate(rest)])
            seeds: dict[int, Operand] = {}
            for y, ct in zip(results, cotangents, strict=True):
                if type(y) is Tangent and ct is not None:
                    total = b.plus(seeds.get(y.id), ct)
                    assert total is not None
                    seeds[y.id] = total
            found = pull(trace, tape, seeds)
            outputs = [
                b.zeros(plain(t.type)) if found.get(t.id) is None else found[t.id] for t in tangents.values()
            ]  # fmt: skip
        parts.append(Part(f"cotangents of {body.program.name}", (), recording, tuple(outputs)))
    made = iter(emit_cond(trace, index, parts, [], [rest[k].type.shape for k in mine]))
    return [None, *(next(made) if k in mine else None for k in range(len(rest)))]


def batch_cond(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """One choice for all lanes, or each lane's own: branches of cheap elements are computed and chosen from; others run
    on just the lanes that chose them, and not at all where there are none."""
    index, *rest = operation.inputs
    if not batched[0]:
        return _same_choice(b, operation, index, rest, batched[1:], size)
    if b.trace.mapping is not None:
        why = "in a branch that some lanes take and others do not; ask before, or choose by numpy.where"
        b.trace.mapping.check_together(operation, "cond", why)
    if operation.op.calls_host(operation.params):
        return batch_by_lane(b, operation, batched, size)
    last = len(operation.params["branches"]) - 1
    chosen = b.minimum(b.maximum(index, b.number(0, b.int64)), b.number(last, b.int64))
    branches = operation.params["branches"]
    if all(_is_cheap(body) for body in branches):
        return _selected(b, operation, chosen, rest, batched[1:], size)
    if not b.trace.axes:
        return _partitioned(b, operation, chosen, rest, batched[1:], size)
    # Lanes of a mapping around will choose as well: how many chose what is then another number in each.
    if all(map(_is_harmless, branches)):
        return _selected(b, operation, chosen, rest, batched[1:], size)
    return batch_by_lane(b, operation, batched, size)


def _same_choice(
    b: Derivation, operation: Operation, index: Operand, rest: Sequence[Operand], batched: Sequence[bool], size: Extent
) -> Sequence[Operand]:
    parts = []
    for body in operation.params["branches"]:
        with taken_out(b.trace, "cond") as recording:
            lanes = Lanes(b.trace, size, part_of=b.trace.mapping)
            outputs = tuple(lanes.full(y) for y in lanes.enter(body, rest, batched))
        parts.append(Part(body.program.name, (), recording, outputs))
    return emit_cond(b.trace, index, parts, [], [(size, *s) for s in _outer_shapes(operation)])


def _outer_shapes(operation: Operation) -> Sequence[tuple[Extent, ...]]:
    shapes: Sequence[tuple[Extent, ...]] = operation.params["shapes"]
    return shapes


MAX_CHEAP = 200
"""Native operations up to which all branches are computed for every lane."""


def _is_cheap(body: Body) -> bool:
    forms = [o.op.form for o in body.program.operations]
    cost = sum(form.cost for form in forms if isinstance(form, Pointwise))
    return cost <= MAX_CHEAP and _is_harmless(body) and not any(isinstance(f, Reduction | Contraction) for f in forms)


def _is_harmless(body: Body) -> bool:
    """Whether it can be run for lanes that did not choose it: it raises nothing and comes to an end."""
    for operation in body.program.operations:
        match operation.op.form:
            case Pointwise(check=None) | View() | Reduction() | Contraction() | Update():
                pass
            case Indexed(kind=kind) if kind != "gather":
                pass
            case _:
                return False
    return True


def _selected(
    b: Derivation, operation: Operation, chosen: Operand, rest: Sequence[Operand], batched: Sequence[bool], size: Extent
) -> Sequence[Operand]:
    """Every branch on all lanes, and each lane's own of the results."""
    answers: list[Operand] = []
    for number, body in enumerate(operation.params["branches"]):
        lanes = Lanes(b.trace, size, part_of=b.trace.mapping)
        results = [lanes.full(y) for y in lanes.enter(body, rest, batched)]
        if not number:
            answers = results
            continue
        mine = b.equal(chosen, b.number(number, b.int64))
        answers = [_lane_where(b, mine, y, x) for x, y in zip(answers, results, strict=True)]
    return answers


def _lane_where(b: Derivation, mask: Operand, x: Operand, y: Operand) -> Operand:
    shape = x.type.shape
    full = mask if len(shape) == 1 else b.broadcast_to(mask, shape=shape, axes=(0,))
    return b.where(full, x, y)


def _partitioned(
    b: Derivation, operation: Operation, chosen: Operand, rest: Sequence[Operand], batched: Sequence[bool], size: Extent
) -> Sequence[Operand]:
    """Each branch on the lanes that chose it."""
    trace = b.trace
    answers = [b.zeros(ArrayType(v.type.dtype, (size, *v.type.shape))) for v in operation.outputs]
    for number, body in enumerate(operation.params["branches"]):
        mine = b.equal(chosen, b.number(number, b.int64))
        every = b.iota(shape=(size,), axis=0)
        count = trace.runtime_extent(mine)
        places = b.mask_select(every, mine, extent=count)
        taken = [b.take(x, places, axis=0) if on else x for x, on in zip(rest, batched, strict=True)]
        lanes = Lanes(trace, count)
        results = [lanes.full(y) for y in lanes.enter(body, taken, batched)]
        answers = [
            b.scatter(whole, places, part, axis=0, mode="set") for whole, part in zip(answers, results, strict=True)
        ]
    return answers
