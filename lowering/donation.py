"""Donated inputs: a plan and what a call gives up go in, the plan whose results lie there comes out.

An input is *written* where the function writes into it, and then holds one of the program's outputs when the run is
over; one that is only *offered* may hold any result of its dtype and shape. The memory is written by the step that
makes such an output, and only where nothing can fail from there on, so that an error leaves the input as it was. An
input that cannot be used so is refused with a reason; the caller then copies, or lets it go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenferro.lowering.exec_program import Slot
from tenferro.lowering.in_place import fits, shown
from tenferro.lowering.lifetimes import memory_read, memory_root, update_in_place, updaters_of
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep, lines_of, seam_of
from tenferro.lowering.references import References
from tenferro.lowering.region import Apply, Gather, Region
from tenferro.tracer.dims import Environment, evaluate_shape, leaves
from tenferro.tracer.lines import SourceLine, at
from tenferro.tracer.op import Contraction, Pointwise
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class Donation:
    """What a call gives up, by the positions of inputs and outputs. ``writes``: inputs that were written, each with the
    output that it holds afterwards. ``offers``: inputs that were not. ``groups``: for each output which variable's
    memory it lies in; outputs of other groups share none."""

    writes: tuple[tuple[int, int], ...]
    offers: tuple[int, ...]
    groups: tuple[int, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """All that is given up."""
        return (*(k for k, _ in self.writes), *self.offers)

    def without(self, refused: int) -> Donation:
        """All but one input."""
        writes = tuple(w for w in self.writes if w[0] != refused)
        return replace(self, writes=writes, offers=tuple(k for k in self.offers if k != refused))


class RefusedError(Exception):
    """An engine cannot use a donated input after all (−1: none of them): it binds again without it."""

    def __init__(self, refused: int, reason: str) -> None:
        super().__init__(reason)
        self.refused, self.reason = refused, reason


@dataclass(frozen=True, slots=True)
class Grant:
    """Input ``input`` becomes output ``output``; step ``step`` is the first to write there, into ``slot``."""

    input: int
    output: int
    slot: int
    step: int


@dataclass(frozen=True)
class Donated:
    """``plan`` with the granted inputs' memory used; ``refused``: input → why it is not."""

    plan: Plan
    grants: tuple[Grant, ...]
    refused: dict[int, str]


def donated(plan: Plan, donation: Donation, sizes: Environment) -> Donated:
    """The plan that uses what is given up; it holds for these sizes of the inputs."""
    return _Donor(plan, donation, sizes).run()


class _Donor:
    def __init__(self, plan: Plan, donation: Donation, sizes: Environment) -> None:
        self.plan, self.donation, self.program, self.sizes = plan, donation, plan.program, sizes
        self.references = References(plan.program)
        self.steps = list(plan.steps)
        self.last: dict[int, int] = {}
        for number, step in enumerate(plan.steps):
            self.last.update((root, number) for root in memory_read(self.references, step))
        self.shown = shown(self.references, plan.steps)
        self.grants: list[Grant] = []
        self.refused: dict[int, str] = {}
        self.closed = self._first_safe()

    def run(self) -> Donated:
        for k, output in self.donation.writes:
            self._consider(k, [output])
        taken = {output for _, output in self.donation.writes}
        for k in self.donation.offers:
            free = [o for o, group in enumerate(self.donation.groups) if group >= 0 and o not in taken]
            taken |= self._consider(k, [o for o in free if self._has_type_of(k, o)])
        granted = {g.slot: g.input for g in self.grants}
        plan = replace(self.plan, steps=tuple(self.steps), granted=granted)
        return Donated(plan, tuple(self.grants), self.refused)

    def _consider(self, k: int, outputs: Sequence[int]) -> set[int]:
        """Grant an input to the first output that it can hold."""
        reasons = []
        for output in outputs:
            found = self._grant(k, output)
            if isinstance(found, Grant):
                self.grants.append(found)
                return {output}
            reasons.append(found)
        self.refused[k] = reasons[0] if reasons else "no result has its dtype and shape"
        return set()

    def _has_type_of(self, k: int, output: int) -> bool:
        kind, source = self.program.inputs[k].type, self.program.outputs[output]
        if not isinstance(source, Slot) or not kind.shape:
            return False
        found = self.references.types[source.index]
        if found.dtype != kind.dtype or any(leaf.kind == "runtime" for n in found.shape for leaf in leaves(n)):
            return False
        return evaluate_shape(found.shape, self.sizes) == evaluate_shape(kind.shape, self.sizes)

    def _grant(self, k: int, output: int) -> Grant | str:
        given, source = self.program.inputs[k].slot.index, self.program.outputs[output]
        if not isinstance(source, Slot) or not self._has_type_of(k, output):
            return "what it is to hold has another dtype or shape"
        if given in self.shown:
            return "an extension's executor sees it, and may keep it"
        root = memory_root(self.references, source.index)
        reference = self.references.of(source.index)
        if root not in self.references.producer or not reference.affine.is_identity or reference.source != Slot(root):
            return "what it is to hold is a view"
        kept = [o for o in range(len(self.program.outputs)) if self._root_of(o) == given]
        if kept:
            return f"result {kept[0]} shows it as it was"
        group = self.donation.groups[output]
        shared = [o for o, g in enumerate(self.donation.groups) if g != group and self._root_of(o) == root]
        if shared:
            return f"result {shared[0]} is to be another array of the same values"
        return self._made(k, output, given, root)

    def _root_of(self, output: int) -> int:
        source = self.program.outputs[output]
        return memory_root(self.references, source.index) if isinstance(source, Slot) else -1

    def _made(self, k: int, output: int, given: int, slot: int) -> Grant | str:
        """The grant where the step that makes ``slot`` may write to the input; updates in place are followed back."""
        number = self._maker(slot)
        while isinstance(step := self.steps[number], AdoptStep) and step.steal:
            slot = step.base.index
            number = self._maker(slot)
        if number < self.closed:
            return f"{self._obstacle()} may fail after it would be written"
        problem = self._write(number, step, slot, given)
        return problem or Grant(k, output, slot, number)

    def _maker(self, slot: int) -> int:
        """The first step that writes a slot."""
        for number, step in enumerate(self.steps):
            match step:
                case RegionStep(region=region):
                    found = any(s.slot == slot for s in region.stores)
                case AdoptStep(target=target):
                    found = target.index == slot
                case CallStep(instruction=instruction) | ViewStep(instruction=instruction):
                    found = any(o.index == slot for o in instruction.outputs)
            if found:
                return number
        raise AssertionError(f"no step makes s{slot}")

    def _write(self, number: int, step: Step, slot: int, given: int) -> str:
        """Have the step write ``slot`` into the input's memory; a reason where it cannot."""
        read = self.last.get(given, -1)
        is_update = isinstance(step, AdoptStep) and step.base.index == given
        if not is_update and read < number:
            if isinstance(step, RegionStep):
                self._store_over(number, step, slot, None)
            return ""
        if is_update:
            updater = updaters_of(self.steps)[slot]
            if update_in_place(self.references, self.steps, number, self.last, updater):
                return ""
            return f"an update of it reads other elements, or something reads it later{at(self._line(read))}"
        line = at(self._line(read))
        if read > number:
            return f"it is read after what it is to hold is made{line}"
        if not isinstance(step, RegionStep):
            return f"all of it is read while what it is to hold is made{line}"
        store = next(s for s in step.region.stores if s.slot == slot)
        if not fits(self.references, step.region, store, given):
            return f"what it is to hold is made from other elements of it{line}"
        self._store_over(number, step, slot, given)
        return ""

    def _store_over(self, number: int, step: RegionStep, slot: int, over: int | None) -> None:
        """The slot takes the place of no other one, or of this one."""
        stores = tuple([replace(s, over=over) if s.slot == slot else s for s in step.region.stores])
        self.steps[number] = RegionStep(replace(step.region, stores=stores))

    def _line(self, number: int) -> SourceLine | None:
        lines = lines_of(self.steps[number])
        return lines[-1] if lines else None

    # What may fail.

    def _first_safe(self) -> int:
        """The first step from which on nothing can fail."""
        for number in reversed(range(len(self.steps))):
            if _may_fail(self.references, self.steps[number]):
                return number + 1
        return 0

    def _obstacle(self) -> str:
        step = self.steps[self.closed - 1]
        if isinstance(step, CallStep):
            return f"{seam_of(0, step.instruction).function}{at(step.instruction.line)}"
        line = self._line(self.closed - 1)
        return f"a check{at(line)}" if isinstance(step, RegionStep) else f"a copy{at(line)}"


def _may_fail(references: References, step: Step) -> bool:
    match step:
        case RegionStep(region=region):
            return is_checked(region)
        case CallStep(instruction=instruction):
            return not isinstance(instruction.op.form, Contraction)
        case ViewStep(instruction=instruction):  # a copy, for which there may be no memory
            return any(o.index in references.own_view for o in instruction.outputs)
        case AdoptStep():
            return False


def is_checked(region: Region) -> bool:
    """Whether the region's kernel may find something that raises or warns."""
    return any(
        isinstance(n, Gather) or (isinstance(n, Apply) and isinstance(n.op.form, Pointwise) and n.op.form.check)
        for n in region.nodes
    )
