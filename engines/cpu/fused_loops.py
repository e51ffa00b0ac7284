"""Loops whose bodies are elementwise, as one kernel each: bodies in, what to emit out; None for any other body.

All values of such a loop have rank 0 or one *lane shape*; nothing goes from one lane to another. So the kernel takes a
vector of lanes through all turns with the carry in registers, and then the next: memory is touched at the ends, and for
what is walked along and stacked. With the empty lane shape it is a loop over scalars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal as OneOf

from tenferro.engines.cpu import elements
from tenferro.lowering import simplify
from tenferro.tracer.bodies import Body
from tenferro.tracer.config import config
from tenferro.tracer.dims import Extent
from tenferro.tracer.op import Pointwise
from tenferro.tracer.ops import layout
from tenferro.tracer.program import DimScalar, Operand, Operation, SemanticProgram, Value
from tenferro.tracer.records import dataclass

Level = OneOf["one", "lane", "array"]
"""Rank 0; one value for each lane; an array that elements are picked from."""


@dataclass(frozen=True, slots=True)
class Part:
    """A body as the kernel runs it. ``levels``: of each of its values. ``invariant``: numbers of the operations that no
    parameter enters, which are done once. ``picks``: of those that pick an element from an array."""

    program: SemanticProgram
    levels: Mapping[int, Level]
    invariant: frozenset[int]

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """The results."""
        return self.program.outputs


@dataclass(frozen=True)
class FusedLoop:
    """What a kernel is made of. ``carry``, ``walked``: how many inputs of the bodies are which. ``stops_lanes``: the
    condition is asked of each lane, and the loop of a vector ends when all of its lanes have stopped."""

    name: str
    body: Part
    condition: Part | None
    carry: int
    walked: int
    lane: tuple[Extent, ...]
    stops_lanes: bool
    sizes: tuple[DimScalar, ...] = field(default=())

    @property
    def rest(self) -> tuple[int, ...]:
        """The inputs behind carry and slices that are arrays or numbers, not sizes."""
        first = self.carry + self.walked
        return tuple(k for k, i in enumerate(self.body.program.inputs) if k >= first and i.kind != "int")

    @property
    def widest(self) -> int:
        """Bytes of the widest component among the values of lanes."""
        found = [1]
        for part in (self.body, self.condition):
            if part is not None:
                values = [v for o in part.program.operations for v in o.outputs]
                values += [i.value for i in part.program.inputs]
                found += [elements.component(v.type.dtype).itemsize for v in values if part.levels[v.id] == "lane"]
        return max(found)

    @property
    def cost(self) -> int:
        """Native operations of a turn, roughly."""
        total = 0
        for part in (self.body, self.condition):
            for o in () if part is None else part.program.operations:
                total += o.op.form.cost if isinstance(o.op.form, Pointwise) else 1
        return total


def fused_scan(body: Body, carry: int, walked: int) -> FusedLoop | None:
    """The kernel of a scan."""
    program = simplify(body.program, config())
    lane = _lane_shape(program, carry)
    part = None if lane is None else _part(program, carry + walked, lane)
    if part is None or lane is None or not _fits(part, carry):
        return None
    return FusedLoop(body.program.name, part, None, carry, walked, lane, False, _sizes(part))


def fused_while(body: Body, condition: Body, carry: int, lanes: int) -> FusedLoop | None:
    """The kernel of a while loop. Of lanes that stop one by one all values must be."""
    program, asked = simplify(body.program, config()), simplify(condition.program, config())
    lane = _lane_shape(program, carry)
    if lane is None or (lanes and len(lane) != lanes):
        return None
    part, question = _part(program, carry, lane), _part(asked, carry, lane)
    if part is None or question is None or not _fits(part, carry):
        return None
    if len(program.outputs) > carry and lane:  # what is stacked while lanes stop one by one
        return None
    wanted: Level = "lane" if lanes else "one"
    if _level(question, question.outputs[0]) != wanted:
        return None
    return FusedLoop(body.program.name, part, question, carry, 0, lane, bool(lanes), (*_sizes(part), *_sizes(question)))


def _lane_shape(program: SemanticProgram, carry: int) -> tuple[Extent, ...] | None:
    """The one shape of all values of the carry that have a rank; empty where none has; None for several."""
    shapes = {i.value.type.shape for i in program.inputs[:carry] if i.value.type.shape}
    if len(shapes) > 1:
        return None
    return shapes.pop() if shapes else ()


def _part(program: SemanticProgram, parameters: int, lane: tuple[Extent, ...]) -> Part | None:
    levels: dict[int, Level] = {}
    for k, i in enumerate(program.inputs):
        shape = i.value.type.shape
        levels[i.value.id] = "one" if not shape else "lane" if shape == lane else "array"
        if levels[i.value.id] == "array" and k < parameters:
            return None
    varies = {i.value.id for i in program.inputs[:parameters]}
    invariant = set()
    for number, o in enumerate(program.operations):
        level = _operation_level(o, levels, lane)
        if level is None:
            return None
        levels[o.outputs[0].id] = level
        if any(isinstance(x, Value) and x.id in varies for x in o.inputs):
            varies.add(o.outputs[0].id)
        else:
            invariant.add(number)
    return Part(program, levels, frozenset(invariant))


def _operation_level(o: Operation, levels: Mapping[int, Level], lane: tuple[Extent, ...]) -> Level | None:
    """Where an operation's result lives; None for one that is not elementwise."""
    mine = {levels[x.id] for x in o.inputs if isinstance(x, Value)}
    shape = o.outputs[0].type.shape
    if o.op is layout.take and _is_pick(o, levels):
        return "one"
    if "array" in mine:
        return None
    if isinstance(o.op.form, Pointwise):
        if o.op.form.is_checked(o.inputs[0].type.dtype):
            return None
        return "lane" if shape == lane and shape else "one" if not shape else None
    if o.op is layout.broadcast_to and not o.inputs[0].type.shape and shape == lane:
        return "lane"
    if o.op is layout.iota and shape == lane and len(lane) == 1:
        return "lane"
    return None


def _is_pick(o: Operation, levels: Mapping[int, Level]) -> bool:
    """One element of a vector, at a place of rank 0."""
    x, place = o.inputs
    return (
        isinstance(x, Value) and levels[x.id] == "array" and x.type.rank == 1 and not place.type.shape
        and x.type.dtype.kind != "c" and not o.params.get("windows", ("",))[0]
    )  # fmt: skip


def _level(part: Part, x: Operand) -> Level:
    return part.levels[x.id] if isinstance(x, Value) else "one"


def _fits(part: Part, carry: int) -> bool:
    """Whether each result has the level of what it is carried as; what is stacked may be of either."""
    for k, y in enumerate(part.outputs):
        level = _level(part, y)
        if level == "array" or (k < carry and level != part.levels[part.program.inputs[k].value.id]):
            return False
    return True


def _sizes(part: Part) -> tuple[DimScalar, ...]:
    """The sizes that are used as numbers, each once."""
    found = [x for o in part.program.operations for x in o.inputs] + list(part.outputs)
    return tuple(dict.fromkeys(x for x in found if isinstance(x, DimScalar)))


def lanes_of(loop: FusedLoop, count: int) -> int:
    """Lanes of a vector, for so many in all: two AVX-512 registers of the widest value, or fewer where there are not as
    many."""
    if not loop.lane:
        return 1
    lanes = 16 if loop.widest == 8 else 32
    while lanes > count:
        lanes //= 2
    return max(lanes, 1)


def vectors(count: int, lanes: int) -> int:
    """How many vectors cover all lanes; the last one overlaps the one before."""
    return -(-count // lanes)


def is_array(loop: FusedLoop, number: int) -> bool:
    """Whether an input is one that elements are picked from."""
    part = loop.body
    return part.levels[part.program.inputs[number].value.id] == "array"


__all__ = ["FusedLoop", "Part", "fused_scan", "fused_while", "is_array", "lanes_of", "vectors"]
