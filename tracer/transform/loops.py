"""Derivatives and batches of ``scan``: a scan in, scans with other bodies out.

Forward, the tangents are carried beside the values. On a tape the scan itself stacks what the derivative needs of each
turn (its *residuals*), and the tape gets a scan that is linear: tangents through the same turns. Its transpose walks
the turns backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tenferro.tracer import build
from tenferro.tracer.bodies import Body, Closing, inline
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent, extents_in, mul, product
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops import control, layout, library
from tenferro.tracer.ops.host import TRUTH
from tenferro.tracer.program import ArrayType, DimScalar, Operand, Operation, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.tape import Tangent, Tape
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.batch import Lanes
from tenferro.tracer.transform.linear import has_tangent, on_tape, pull, push, replay
from tenferro.tracer.transform.recording import Recording, taken_out


@dataclass(frozen=True, slots=True)
class Scan:
    """The parts of a scan's operands."""

    body: Body
    initial: tuple[Operand, ...]
    walked: tuple[Operand, ...]
    rest: tuple[Operand, ...]
    length: Extent
    reverse: bool

    @classmethod
    def of(cls, operation: Operation) -> Scan:
        """The parts of an operation."""
        p, inputs = operation.params, operation.inputs
        n, w = p["carry"], p["carry"] + p["walked"]
        return cls(p["body"], inputs[:n], inputs[n:w], inputs[w:], p["length"], p["reverse"])

    def cut(self, xs: Sequence[Operand | None] | Sequence[bool]) -> tuple[list, list, list]:  # type: ignore[type-arg]
        """A sequence with an entry for each operand, in the same three parts."""
        n, w = len(self.initial), len(self.initial) + len(self.walked)
        return list(xs[:n]), list(xs[n:w]), list(xs[w:])

    def placeholders(self, trace: Trace) -> tuple[list[Value], list[Value]]:
        """Values for the carry and the slices of one turn."""
        carry = [trace.placeholder(plain(x.type)) for x in self.initial]
        slices = [trace.placeholder(ArrayType(x.type.dtype, x.type.shape[1:])) for x in self.walked]
        return carry, slices


def plain(type_: ArrayType) -> ArrayType:
    """The type of an array, which gives way to nobody."""
    return ArrayType(type_.dtype, type_.shape)


def emit_scan(
    trace: Trace, name: str, recording: Recording, parameters: Sequence[Value], outputs: Sequence[Operand],
    initial: Sequence[Operand], walked: Sequence[Operand], others: Sequence[Operand], length: Extent, reverse: bool,
) -> tuple[Value, ...]:  # fmt: skip
    """A scan whose body was recorded. ``parameters``: of the carry, the slices and ``others``, which stay the same."""
    closing = Closing(trace)
    tokens = () if outputs else (build.literal(True, TRUTH),)  # an operation is known by its first result
    outputs = (*outputs, *tokens)
    closing.add(name, parameters, recording, outputs)
    (body,) = closing.bodies()
    shapes = tuple((length, *y.type.shape) for y in outputs[len(initial) :])
    found = trace.emit(
        control.scan, [*initial, *walked, *others, *closing.operands()], body=body, carry=len(initial),
        walked=len(walked), length=length, reverse=reverse, shapes=shapes,
    )  # fmt: skip
    return () if tokens else found


def value_tangents(values: Sequence[Operand], tangents: Sequence[Operand | None]) -> dict[int, Operand]:
    """By the values' ids."""
    return {x.id: t for x, t in zip(values, tangents, strict=True) if isinstance(x, Value) and t is not None}


def tangent_of(x: Operand, tangents: dict[int, Operand]) -> Operand | None:
    """The tangent of an operand, None for 0."""
    return tangents.get(x.id) if isinstance(x, Value) and has_tangent(x.type.dtype) else None


def jvp_scan(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Tangents beside values; on a tape, a linear scan of what the scan itself stacks."""
    if any(type(t) is Tangent for t in tangents) or operation.op.is_ordered(operation.params):
        return _linearized(b, operation, tangents)  # which runs the turns once
    trace, scan = b.trace, Scan.of(operation)
    initial, walked, rest = scan.cut(tangents)
    active = [t is not None for t in initial]
    while True:
        with taken_out(trace, "scan") as recording:
            carry, slices = scan.placeholders(trace)
            moving = [trace.placeholder(c.type) if mine else None for c, mine in zip(carry, active, strict=True)]
            passing = [None if t is None else trace.placeholder(x.type) for x, t in zip(slices, walked, strict=True)]
            found = value_tangents([*carry, *slices, *scan.rest], [*moving, *passing, *rest])
            start = len(trace.operations)
            results = inline(trace, scan.body, [*carry, *slices, *scan.rest])
            push(trace, trace.operations[start:], found)
            slopes = [tangent_of(y, found) for y in results]
            grown = [mine or t is not None for mine, t in zip(active, slopes, strict=False)]
            stacked = [k for k in range(len(carry), len(results)) if slopes[k] is not None]
            outputs = [
                *results[: len(carry)], *(_or_zeros(b, slopes[k], carry[k].type) for k, on in enumerate(active) if on),
                *results[len(carry) :], *(slopes[k] for k in stacked),
            ]  # fmt: skip
        if grown == active:
            break
        active = grown
    kept = [k for k, on in enumerate(active) if on]
    made = emit_scan(
        trace, scan.body.program.name, recording,
        [*carry, *(m for m in moving if m is not None), *slices, *(m for m in passing if m is not None)],
        outputs,  # type: ignore[arg-type]
        [*scan.initial, *(_or_zeros(b, initial[k], scan.initial[k].type) for k in kept)],
        [*scan.walked, *(t for t in walked if t is not None)], [], scan.length, scan.reverse,
    )  # fmt: skip
    count, total = len(carry), len(results)
    answer: list[Operand | None] = [None] * total
    for place, k in enumerate(kept):
        answer[k] = made[count + place]
    for place, k in enumerate(stacked):
        answer[k] = made[len(kept) + total + place]
    return answer


def _or_zeros(b: Derivation, x: Operand | None, type_: ArrayType) -> Operand:
    return b.zeros(plain(type_)) if x is None else x


@dataclass(frozen=True, slots=True)
class Slopes:
    """A body differentiated at a turn: its tape, with the tape's inputs, and the tangents of its results."""

    recording: Recording
    carry: tuple[Value, ...]
    slices: tuple[Value, ...]
    results: tuple[Operand, ...]
    tape: Tape
    inputs: tuple[Tangent | None, ...]
    outputs: tuple[Operand | None, ...]

    @property
    def residuals(self) -> list[Value]:
        """What the derivative keeps of the turn: what the tape reads, or all that the turn was given, to compute it
        again, where the tape needs a size that the turn alone knows."""
        return [*self.carry, *self.slices] if self.recomputes else self._read

    @property
    def recomputes(self) -> bool:
        """Whether the tape needs a size that is known only within the turn, and so cannot be kept."""
        return any(self.recording.measures(n) for n in self._sizes())

    def _sizes(self) -> Iterator[Extent]:
        """The sizes on the tape: of tangents and of what is read, in parameters, and as numbers."""
        for o in self.tape.operations:
            for x in (*o.inputs, *o.outputs):
                yield from x.type.shape
                if isinstance(x, DimScalar):
                    yield x.expr
            for param in o.params.values():
                yield from extents_in(param)

    @property
    def _read(self) -> list[Value]:
        """What the tape reads of the turn, each once: values that it was given or made."""
        own = {v.id for v in (*self.carry, *self.slices)}
        own |= {v.id for o in self.recording.operations for v in o.outputs}
        read = [x for o in self.tape.operations for x in o.inputs]
        return list({x.id: x for x in read if type(x) is Value and x.id in own}.values())


def slopes_of(trace: Trace, scan: Scan, active: Sequence[bool], walked: Sequence[bool], rest: Sequence[bool]) -> Slopes:
    """Differentiate the body with respect to some of its inputs."""
    with taken_out(trace, "scan") as recording, on_tape(trace) as tape:
        carry, slices = scan.placeholders(trace)
        given = [*carry, *slices, *scan.rest]
        inputs = [
            tape.input(plain(x.type)) if mine else None
            for x, mine in zip(given, [*active, *walked, *rest], strict=True)
        ]
        found = value_tangents(given, inputs)
        start = len(trace.operations)
        results = inline(trace, scan.body, given)
        push(trace, trace.operations[start:], found)
        outputs = tuple(tangent_of(y, found) for y in results)
    return Slopes(recording, tuple(carry), tuple(slices), tuple(results), tape, tuple(inputs), outputs)


def stable_slopes(trace: Trace, scan: Scan, tangents: Sequence[Operand | None]) -> tuple[Slopes, list[bool]]:
    """The same with respect to all that varies once some inputs do, and which of the carry that is."""
    initial, walked, rest = ([t is not None for t in part] for part in scan.cut(tangents))
    active = initial
    while True:
        found = slopes_of(trace, scan, active, walked, rest)
        grown = [mine or t is not None for mine, t in zip(active, found.outputs, strict=False)]
        if grown == active:
            return found, active
        active = grown


def _linearized(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    trace, scan = b.trace, Scan.of(operation)
    found, active = stable_slopes(trace, scan, tangents)
    count = len(scan.initial)
    walked = {v.id: x for v, x in zip(found.slices, scan.walked, strict=True)}
    residuals = found.residuals
    stacked = [r for r in residuals if r.id not in walked]
    closing = Closing(trace)
    closing.add(scan.body.program.name, [*found.carry, *found.slices], found.recording, [*found.results, *stacked])
    (body,) = closing.bodies()
    shapes = (*operation.params["shapes"], *((scan.length, *r.type.shape) for r in stacked))
    params = {**operation.params, "body": body, "shapes": shapes}
    inputs = [*scan.initial, *scan.walked, *closing.operands()]
    stacks = dict(zip((r.id for r in stacked), trace.extend(operation, inputs, params), strict=True))
    initial, passing, rest = scan.cut(tangents)
    moving = [k for k, on in enumerate(active) if on]
    outputs = [k for k in range(count, len(found.results)) if found.outputs[k] is not None]
    recording, parameters, results = linear_body(b, scan, found, residuals, moving, outputs)
    made = emit_scan(
        trace, f"tangents of {scan.body.program.name}", recording, parameters, results,
        [_or_zeros(b, initial[k], scan.initial[k].type) for k in moving],
        [*(t for t in passing if t is not None), *(walked.get(r.id) or stacks[r.id] for r in residuals)],
        [t for t in rest if t is not None], scan.length, scan.reverse,
    )  # fmt: skip
    answer: list[Operand | None] = [None] * len(found.results)
    for place, k in enumerate((*moving, *outputs)):
        answer[k] = made[place]
    return answer


def linear_body(
    b: Derivation, scan: Scan, found: Slopes, residuals: Sequence[Value], moving: Sequence[int],
    outputs: Sequence[int],
    around: Callable[[list[Operand], list[Value], list[Value]], list[Operand]] | None = None,
) -> tuple[Recording, list[Value], list[Operand]]:  # fmt: skip
    """The tape as a recording of its own. Its parameters: tangents of the carry, of the slices, residuals (the last of
    them those of ``found``), and tangents of what stays the same."""
    trace = b.trace
    with taken_out(trace, "scan") as recording:
        inputs = [None if t is None else trace.placeholder(plain(t.type)) for t in found.inputs]
        values = [trace.placeholder(plain(r.type)) for r in residuals]
        kept = dict(zip((r.id for r in residuals), values, strict=True))
        if found.recomputes:
            given_again = [kept[v.id] for v in (*found.carry, *found.slices)]
            slopes = _replayed(trace, slopes_at(trace, scan, given_again, found.inputs), inputs, {})
        else:
            slopes = _replayed(trace, (found.tape, found.inputs, found.outputs), inputs, kept)
        results = [_or_zeros(b, slopes[k], found.results[k].type) for k in (*moving, *outputs)]
        n, w = len(found.carry), len(found.carry) + len(found.slices)
        given = [x for x in inputs[:n] if x is not None]
        if around is not None:
            results = around(results, given, values)
    passing, rest = (
        [x for x in part if x is not None] for part in (inputs[n:w], inputs[w:])
    )  # fmt: skip
    return recording, [*given, *passing, *values, *rest], results


def slopes_at(
    trace: Trace, scan: Scan, given: Sequence[Operand], like: Sequence[Tangent | None]
) -> tuple[Tape, Sequence[Tangent | None], Sequence[Operand | None]]:
    """A turn computed again, in the recording that runs: its tape, the tape's inputs, and the results' tangents."""
    operands = [*given, *scan.rest]
    with on_tape(trace) as tape:
        inputs = [None if t is None else tape.input(plain(x.type)) for t, x in zip(like, operands, strict=True)]
        found = value_tangents(operands, inputs)
        start = len(trace.operations)
        results = inline(trace, scan.body, operands, is_again=True)
        push(trace, trace.operations[start:], found)
        outputs = [tangent_of(y, found) for y in results]
    return tape, inputs, outputs


def _replayed(
    trace: Trace, slopes: tuple[Tape, Sequence[Tangent | None], Sequence[Operand | None]],
    inputs: Sequence[Operand | None], values: Mapping[int, Operand],
) -> list[Operand | None]:  # fmt: skip
    """The results' tangents for these of the tape's inputs."""
    tape, given, outputs = slopes
    tangents = {t.id: x for t, x in zip(given, inputs, strict=True) if t is not None and x is not None}
    replay(trace, tape, tangents, values)
    return [tangents.get(y.id) if type(y) is Tangent else y for y in outputs]


def transpose_scan(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    """The turns backwards: cotangents of the carry go on, those of what stays the same are added up."""
    trace, scan = b.trace, Scan.of(operation)
    count = len(scan.initial)
    _, moved, held = scan.cut(is_linear)
    with taken_out(trace, "scan") as recording:
        carried = [trace.placeholder(plain(x.type)) for x in scan.initial]
        sums = [trace.placeholder(plain(x.type)) for x, mine in zip(scan.rest, held, strict=True) if mine]
        _, slices = scan.placeholders(trace)
        stacked = [
            None if ct is None else trace.placeholder(ArrayType(ct.type.dtype, ct.type.shape[1:]))
            for ct in cotangents[count:]
        ]
        with on_tape(trace) as tape:
            tangents = [tape.input(plain(x.type)) for x in scan.initial]
            passing = [tape.input(s.type) if mine else None for s, mine in zip(slices, moved, strict=True)]
            rest = [tape.input(plain(x.type)) if mine else None for x, mine in zip(scan.rest, held, strict=True)]
            given = [
                *tangents, *(s if t is None else t for s, t in zip(slices, passing, strict=True)),
                *(x if t is None else t for x, t in zip(scan.rest, rest, strict=True)),
            ]  # fmt: skip
            results = inline(trace, scan.body, given)
        seeds: dict[int, Operand] = {}
        for y, ct in zip(results, [*carried, *stacked], strict=True):
            if type(y) is Tangent and ct is not None:
                total = b.plus(seeds.get(y.id), ct)
                assert total is not None
                seeds[y.id] = total
        found = pull(trace, tape, seeds)
        outputs = [_or_zeros(b, found.get(t.id), t.type) for t in tangents]
        kept = [t for t in rest if t is not None]
        products = [_product_of(trace, recording.start, found.get(t.id)) for t in kept]
        added = [(s, t) for s, t, p in zip(sums, kept, products, strict=True) if p is None]
        outputs += [b.plus(s, found.get(t.id)) or s for s, t in added]
        outputs += [_or_zeros(b, found.get(t.id), t.type) for t in passing if t is not None]
        stacks = {s.id: x for s, x in zip(slices, scan.walked, strict=True)}
        factors = [f for p in products if p is not None for f in p]
        outputs += [f.value for f in factors if f.value.id not in stacks]
        sums = [s for s, _ in added]
    walked = [x for x, mine in zip(scan.walked, moved, strict=True) if not mine]
    residuals = [s for s, mine in zip(slices, moved, strict=True) if not mine]
    made = emit_scan(
        trace, f"cotangents of {scan.body.program.name}", recording,
        [*carried, *sums, *(s for s in stacked if s is not None), *residuals], outputs,
        [*(_or_zeros(b, ct, x.type) for ct, x in zip(cotangents[:count], scan.initial, strict=True)),
         *(b.zeros(plain(s.type)) for s in sums)],
        [*(ct for ct in cotangents[count:] if ct is not None), *walked], [], scan.length, not scan.reverse,
    )  # fmt: skip
    answers = iter(made)
    first = [next(answers) for _ in scan.initial]
    totals = [next(answers) if p is None else None for p in products]
    middle = [next(answers) if mine else None for mine in moved]
    stacked_factors = iter([stacks[f.value.id] if f.value.id in stacks else next(answers) for f in factors])
    ends = iter([
        _sum_of_products(b, p, next(stacked_factors), next(stacked_factors)) if p is not None else t
        for p, t in zip(products, totals, strict=True)
    ])  # fmt: skip
    return [*first, *middle, *(next(ends) if mine else None for mine in held)]


@dataclass(frozen=True, slots=True)
class Factor:
    """A value of a turn, which is a factor of a product as it is or with its axes exchanged."""

    value: Value
    is_swapped: bool


def _product_of(trace: Trace, start: int, x: Operand | None) -> tuple[Factor, Factor] | None:
    """The factors of what a turn adds to a sum, where it is a product of matrices that are smaller than it: they are
    stacked, and the sum over all turns is one product."""
    made = trace.producer(x.id) if isinstance(x, Value) else None
    if (
        made is None
        or made.op is not library.matmul
        or trace.number(made) < start
        or x is None
        or len(x.type.shape) != 2
    ):
        return None
    left, right = made.inputs
    sizes = [trace.hint(product(y.type.shape)) for y in (left, right, x)]
    if None in sizes or sizes[0] + sizes[1] >= sizes[2]:  # type: ignore[operator]
        return None
    if not (isinstance(left, Value) and isinstance(right, Value)):
        return None
    return _factor(trace, start, left), _factor(trace, start, right)


def _factor(trace: Trace, start: int, x: Value) -> Factor:
    made = trace.producer(x.id)
    if made is None or made.op is not layout.transpose or trace.number(made) < start:
        return Factor(x, False)
    (inner,) = made.inputs
    return Factor(inner, True) if isinstance(inner, Value) else Factor(x, False)


def _sum_of_products(b: Derivation, factors: tuple[Factor, Factor], left: Operand, right: Operand) -> Operand:
    """The sum of left[k] @ right[k], from the factors' stacks."""
    turns = left.type.shape[0]
    rows, inner = left.type.shape[1:] if not factors[0].is_swapped else left.type.shape[:0:-1]
    flat = b.permuted(left, [2, 0, 1] if factors[0].is_swapped else [1, 0, 2])
    tall = b.permuted(right, [0, 2, 1]) if factors[1].is_swapped else right
    count = mul(turns, inner)
    return b.matmul(b.reshaped(flat, (rows, count)), b.reshaped(tall, (count, tall.type.shape[2])))


def batch_scan(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """All lanes take each turn together. What is walked along keeps the turns in front."""
    trace, scan = b.trace, Scan.of(operation)
    initial, walked, rest = scan.cut(batched)
    turns = [turned(b, x) if mine else x for x, mine in zip(scan.walked, walked, strict=True)]
    flags = initial
    while True:
        with taken_out(trace, "scan") as recording:
            carry = [
                trace.placeholder(_lane_type(x.type, was, on, size))
                for x, was, on in zip(scan.initial, initial, flags, strict=True)
            ]
            slices = [trace.placeholder(ArrayType(x.type.dtype, x.type.shape[1:])) for x in turns]
            lanes = Lanes(trace, size, part_of=trace.mapping)
            results = lanes.enter(scan.body, [*carry, *slices, *scan.rest], [*flags, *walked, *rest])
            grown = [on or lanes.of(y)[1] for on, y in zip(flags, results, strict=False)]
            outputs = [lanes.full(y) if k >= len(flags) or flags[k] else lanes.of(y)[0] for k, y in enumerate(results)]
        if grown == flags:
            break
        flags = grown
    begun = [
        b.stretched(x, size) if on and not was else x for x, was, on in zip(scan.initial, initial, flags, strict=True)
    ]
    made = emit_scan(
        trace,
        scan.body.program.name,
        recording,
        [*carry, *slices],
        outputs,
        begun,
        turns,
        [],
        scan.length,
        scan.reverse,
    )
    last = [y if on else b.stretched(y, size) for y, on in zip(made, flags, strict=False)]
    return [*last, *(turned(b, y) for y in made[len(flags) :])]


def batch_by_lane(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The operation for one lane after the other: none of them runs what is another one's alone."""
    trace = b.trace
    with taken_out(trace, "vmap") as recording:
        given = [
            trace.placeholder(ArrayType(x.type.dtype, x.type.shape[1:])) if on else x
            for x, on in zip(operation.inputs, batched, strict=True)
        ]
        results = trace.emit(operation.op, given, **operation.params)
    slices = [x for x, on in zip(given, batched, strict=True) if on and isinstance(x, Value)]
    lanes = [x for x, on in zip(operation.inputs, batched, strict=True) if on]
    name = f"lanes of {operation.op.name}"
    return emit_scan(trace, name, recording, slices, results, [], lanes, [], size, False)


def turned(b: Derivation, x: Operand) -> Operand:
    """The first two axes exchanged: lanes of turns as turns of lanes."""
    return b.permuted(x, [1, 0, *range(2, len(x.type.shape))])


def _lane_type(type_: ArrayType, has_lanes: bool, wanted: bool, size: Extent) -> ArrayType:
    if wanted and not has_lanes:
        return ArrayType(type_.dtype, (size, *type_.shape))
    return plain(type_)
