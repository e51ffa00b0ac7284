"""Peak memory: a Plan goes in, what its run holds at most comes out, as a formula over its sizes and as a number.

Counted are results and temporaries; inputs are borrowed. A size that depends on data counts with its upper bound, where
there is one, and a reshape that may have to copy as a copy. While a loop or a choice runs, what its bodies hold is
there too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tenferro.lowering.bodies import lowered
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Segment, Step, ViewStep
from tenferro.lowering.references import References
from tenferro.tracer.bodies import Body
from tenferro.tracer.dims import (
    Environment,
    Extent,
    Leaf,
    add,
    evaluate,
    leaf,
    leaves,
    maximum,
    mul,
    product,
    sub,
    substitute,
)
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Control, bodies_in
from tenferro.tracer.ops import library
from tenferro.tracer.program import ArrayType, DimScalar, Literal
from tenferro.tracer.records import dataclass

OneKernel: TypeAlias = Callable[[Instruction], bool]
"""Whether an engine runs a loop as one kernel, which keeps what a turn makes in registers."""

MAX_TERMS = 8
"""Steps that may each be the peak for some sizes; beyond this many the formula sums the rest instead."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that step ``first`` makes for ``slot`` and that is held until step ``last`` has run; None for a result,
    which outlives the run. ``line``: the user's, where the slot was made. ``inside``: of a loop or a choice that makes
    ``slot``, all that its bodies hold at most beside its results."""

    slot: int
    size: Extent
    line: SourceLine | None
    first: int
    last: int | None = None
    inside: bool = False


@dataclass(frozen=True)
class Memory:
    """``live[i]``: the bytes held while step i runs. ``peak``: the largest of them for any sizes. ``naive``: what the
    run would take if every array that a step makes had memory of its own for the whole run."""

    live: tuple[Extent, ...]
    peak: Extent
    naive: Extent
    buffers: tuple[Buffer, ...]

    def bytes(self, env: Environment) -> int:
        """The peak under the given sizes."""
        return max((evaluate(n, env) for n in self.live), default=0)

    def step(self, env: Environment) -> int:
        """The first step at which the peak is reached."""
        values = [evaluate(n, env) for n in self.live]
        return values.index(max(values))

    def largest(self, env: Environment) -> list[tuple[int, Buffer]]:
        """The buffers with their bytes under the given sizes, the largest first."""
        sizes = [(evaluate(b.size, env), b) for b in self.buffers]
        return sorted(sizes, key=lambda pair: -pair[0])

    def __str__(self) -> str:
        return f"peak {self.peak} bytes; naive {self.naive} bytes"


def turn_by_turn(instruction: Instruction) -> bool:
    """No loop is one kernel."""
    return False


def memory(plan: Plan, is_one_kernel: OneKernel = turn_by_turn) -> Memory:
    """Follow the steps and frees of ``plan``."""
    types = plan.program.slot_types()
    bounds = upper_bounds(plan.program)
    references = References(plan.program)

    def bounded(extent: Extent) -> Extent:
        return substitute(extent, lambda found: bounds.get(found, leaf(found.kind, found.index, found.axis)))

    def size(slot: int) -> Extent:
        return bounded(_bytes(types[slot]))

    lines = {s.index: i.line for i in plan.program.instructions for s in i.outputs}
    buffers: list[Buffer] = []
    held: dict[int, int] = {}  # slot → its buffer
    now: Extent = 0
    naive: Extent = 0
    live: list[Extent] = []
    for number, (step, dead) in enumerate(zip(plan.steps, plan.frees, strict=True)):
        for target, base in _taken_over(step):
            if base in held:
                held[target] = held.pop(base)
                naive = add(naive, size(target))
        for slot in _allocates(step, references):
            if slot not in held and slot not in plan.granted:
                held[slot] = len(buffers)
                buffers.append(Buffer(slot, size(slot), lines[slot], number))
                now, naive = add(now, buffers[-1].size), add(naive, buffers[-1].size)
        inside = bounded(_inside(step, is_one_kernel))
        if inside != 0:
            slot = _allocates(step, references)[0]
            buffers.append(Buffer(slot, inside, lines[slot], number, number, True))
            naive = add(naive, inside)
        live.append(add(now, inside))
        for k in [held.pop(slot) for slot in dead if slot in held]:
            buffers[k] = replace(buffers[k], last=number)
            now = sub(now, buffers[k].size)
    return Memory(tuple(live), largest(live), naive, tuple(buffers))


def _taken_over(step: Step) -> tuple[tuple[int, int], ...]:
    """Slots that lie where others were, which are dead then."""
    match step:
        case RegionStep(region=region):
            return tuple((s.slot, s.over) for s in region.stores if s.over is not None)
        case AdoptStep(base=base, target=target, steal=True):
            return ((target.index, base.index),)
        case _:
            return ()


def _allocates(step: Step, references: References) -> tuple[int, ...]:
    match step:
        case RegionStep(region=region):
            return tuple(dict.fromkeys(s.slot for s in region.stores if not s.views))
        case CallStep(instruction=instruction):
            return tuple(s.index for s in instruction.outputs)
        case AdoptStep(target=target, steal=steal):
            return () if steal else (target.index,)
        case ViewStep(instruction=instruction):
            (source,) = instruction.inputs
            copies = isinstance(source, Slot) and _may_be_scattered(references, source.index)
            return tuple(s.index for s in instruction.outputs if copies and s.index in references.own_view)


def _inside(step: Step, is_one_kernel: OneKernel) -> Extent:
    """What bodies hold at most beside the results. A turn of a loop makes new results while those of the turn before
    are there, and a loop may hold what its condition and its body take both, but where it is one kernel; what a branch
    gives are the results."""
    total: Extent = 0
    if not isinstance(step, CallStep):
        return total
    instruction = step.instruction
    match instruction.op.form:
        case Control(kind="cond"):
            results: Extent = 0
            for t in instruction.types:
                results = add(results, _bytes(t))
            for branch in instruction.params["branches"]:
                total = maximum(total, sub(_around(branch, instruction.inputs[1:], is_one_kernel), results))
        case Control() if not is_one_kernel(instruction):
            for body in bodies_in(instruction.params):
                carry = instruction.params["carry"]
                total = add(total, _around(body, instruction.inputs, is_one_kernel, carry))
        case _:
            pass
    return total


def _bytes(kind: ArrayType) -> Extent:
    return mul(product(kind.shape), kind.dtype.itemsize)


def _around(body: Body, operands: Sequence[Source], is_one_kernel: OneKernel, carry: int | None = None) -> Extent:
    """The peak of a body in the sizes around it, which are among its operands. ``carry``: of a loop's body, how many of
    its results are carried; where it is one segment it writes the others where they are stacked."""

    def size(found: Leaf) -> Extent:
        match operands[found.index]:
            case DimScalar(expr=expr):
                return expr
            case Literal(value=value):
                return int(value.real)
            case Slot(index=index):  # an int input, whose slot has its number
                return leaf("int", index)

    plan = lowered(body)
    if carry is not None and _is_one_segment(plan):
        stacked = [o.index for o in plan.program.outputs[carry:] if isinstance(o, Slot)]
        plan = replace(plan, granted={**plan.granted, **dict.fromkeys(stacked, -1)})
    return substitute(memory(plan, is_one_kernel).peak, size)


def _is_one_segment(plan: Plan) -> bool:
    """Whether native code can run all of it, each result in memory of its own."""
    outputs = plan.program.outputs
    return len(set(outputs)) == len(outputs) and [type(s) for s in plan.segments()] == [Segment]


def _may_be_scattered(references: References, slot: int) -> bool:
    """Whether a reshape of the slot may have to copy: what a step makes is contiguous, and so is a reshape of it."""
    found = references.of(slot)
    source = found.source
    return not (isinstance(source, Slot) and found.affine.is_identity and source.index in references.producer)


def upper_bounds(program: ExecProgram) -> dict[Leaf, Extent]:
    """Upper bounds of run-time extents: a mask selects no more than all of its elements. What has no bound
    (``unbounded``) counts with the least that it can be."""
    found: dict[Leaf, Extent] = {}
    types = program.slot_types()
    for instruction in program.instructions:
        known: Extent = 0
        if instruction.op is library.bincount:
            known = instruction.params["minlength"]
        elif instruction.op is library.mask_select and not isinstance(instruction.inputs[1], Literal):
            mask = instruction.inputs[1]
            known = product(types[mask.index].shape if hasattr(mask, "index") else ())
        known = substitute(known, lambda s: found.get(s, leaf(s.kind, s.index, s.axis)))
        found.update(dict.fromkeys(_measured(instruction), known))
    return found


def unbounded(program: ExecProgram) -> tuple[Instruction, ...]:
    """Instructions of whose results nobody knows before the run how large they can become: counts, and what a loop
    stacks at each of its turns. Those of bodies follow the operation that runs them."""
    found: list[Instruction] = []
    for i in program.instructions:
        if i.op is not library.mask_select and _measured(i):
            found.append(i)
        if isinstance(i.op.form, Control):
            found += [x for body in bodies_in(i.params) for x in unbounded(lowered(body).program)]
    return tuple(found)


def _measured(instruction: Instruction) -> list[Leaf]:
    extents = [instruction.types[k].shape[axis] for k, axis in instruction.op.measures(instruction.params)]
    return [s for n in extents for s in leaves(n) if s.kind == "runtime"]


def largest(live: list[Extent]) -> Extent:
    """The maximum over all sizes. Sizes are not negative, so that a sum with more or larger terms is larger."""
    kept: list[Extent] = []
    for candidate in dict.fromkeys(live):
        if any(_is_at_least(other, candidate) for other in kept):
            continue
        kept = [k for k in kept if not _is_at_least(candidate, k)] + [candidate]
        if len(kept) > MAX_TERMS:
            kept = [add(kept[0], kept[1]), *kept[2:]]
    peak: Extent = 0
    for extent in kept:
        peak = maximum(peak, extent) if peak != 0 else extent
    return peak


def _is_at_least(a: Extent, b: Extent) -> bool:
    difference = sub(a, b)
    if isinstance(difference, int):
        return difference >= 0
    return all(coefficient >= 0 for _, coefficient in difference.terms)
