"""Emission: a cluster of instructions goes in, the Region that computes them comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from tenferro.lowering.affine import DROPPED, Affine, AxisMap, onto
from tenferro.lowering.clusters import Cluster, Clusters, Level
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.masks import Conditions
from tenferro.lowering.needs import Needs, is_inside
from tenferro.lowering.references import References
from tenferro.lowering.region import (
    Access,
    Apply,
    Gather,
    Iota,
    Load,
    Node,
    Reduce,
    Region,
    Store,
    Uniform,
    Valid,
    ViewStep,
    Window,
)
from tenferro.lowering.tree import accumulator, in_tree_order
from tenferro.tracer.dims import Extent, add
from tenferro.tracer.op import (
    Collective,
    Contraction,
    Control,
    Extension,
    Host,
    Indexed,
    Library,
    Pointwise,
    Reduction,
    Update,
    View,
)
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import DimScalar, Literal, Params
from tenferro.tracer.records import dataclass, replace

BOOL = np.dtype(np.bool_)
INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Context:
    """What the emission of every region reads. ``conditions``: of checked instructions, by number."""

    program: ExecProgram
    references: References
    clusters: Clusters
    needs: Needs
    conditions: dict[int, Conditions]


class RegionBuilder:
    """Grows the nodes of one region. ``values``: the node of each slot that a member writes. ``loaded``: slots that
    members use as operands, as far as that matters."""

    def __init__(self, context: Context, cluster: Cluster) -> None:
        self.context = context
        self.cluster = cluster
        self.row_axes = cluster.row_axes or ()
        self.nodes: list[Node] = []
        self.outer: list[bool] = []
        self.memo: dict[Node, int] = {}
        self.values: dict[int, int] = {}
        self.loaded: frozenset[int] = frozenset()
        self.stores: list[Store] = []

    # Nodes

    def add(self, node: Node) -> int:
        """The position of ``node``, which is shared with an equal one."""
        key = _without_origin(node)
        known = self.memo.get(key)
        if known is not None:
            return known
        self.memo[key] = len(self.nodes)
        self.nodes.append(node)
        self.outer.append(self._is_outer(node))
        return len(self.nodes) - 1

    def _is_outer(self, node: Node) -> bool:
        match node:
            case Load(outer=outer) | Iota(outer=outer):
                return outer
            case Uniform() | Reduce():
                return True
            case Valid(windows=windows):
                return bool(self.row_axes) and not any(w.axis in self.row_axes for w in windows)
            case Gather(index=index, axis=axis, index_rank=rank):
                others = {a for a in range(len(self.cluster.space)) if not axis <= a < axis + rank}
                return self.outer[index] and bool(self.row_axes) and not others & set(self.row_axes)
            case Apply(args=args):
                return all(self.outer[a] for a in args)
            case _:
                assert_never(node)

    def at_row(self, node: int) -> int:
        """The same value with one copy per point of the space: a select on a condition of that level."""
        if not self.row_axes or not self.outer[node]:
            return node
        axis, dtype = self.row_axes[0], self.nodes[node].dtype
        always = self.add(Valid((Window(axis, 0, 1, self.cluster.space[axis]),)))
        return self.add(Apply(pointwise.where, Params(), (always, node, node), dtype, -1))

    # Operands

    def operand(self, number: int, source: Source, level: Level) -> int:
        if not isinstance(source, Slot):
            return self.add(Uniform(source))
        inner = self.context.clusters.same_as.get(source.index, source.index)
        if inner in self.values and is_inside(self.context.clusters, number, source.index):
            return self.values[inner]
        reference = self.context.references.of(source.index)
        shape = self.context.references.types[source.index].shape
        return self.element(reference.source, reference.reshape, reference.affine.through(self._onto(shape, level)))

    def _onto(self, shape: Sequence[Extent], level: Level) -> Affine:
        """From an array of ``shape`` onto the space, at a level."""
        space = self.cluster.space
        if not shape:
            return Affine((), space)
        if level is Level.ROW or len(shape) == len(space):
            return onto(shape, range(len(shape)), space)
        return onto(shape, [a for a in range(len(space)) if a not in self.row_axes], space)

    def element(self, source: Source, reshape: tuple[ViewStep, ...], seen: Affine) -> int:
        """The node for ``source`` under an index map onto the space."""
        if not isinstance(source, Slot):
            return self.add(Uniform(source))
        if source.index in self.context.needs.virtual:
            instruction = self.context.references.instruction(source.index)
            assert instruction is not None
            return self._computed(instruction, seen)
        dtype = self.context.references.types[source.index].dtype
        access = Access(source.index, (*reshape, *seen.views()))
        return self.add(Load(access, seen.windows(), dtype, self._repeats_along_rows(seen)))

    def _repeats_along_rows(self, seen: Affine) -> bool:
        return bool(self.row_axes) and not any(
            m.target in self.row_axes and (m.window is not None or not (m.fixed or m.size == 1)) for m in seen.axes
        )

    def _computed(self, instruction: Instruction, seen: Affine) -> int:
        """The node for an instruction's result under an index map: no array of it exists."""
        match instruction.op.form:
            case Indexed(kind="iota"):
                return self._iota(instruction, seen)
            case Indexed(kind="pad"):
                return self._pad(instruction, seen)
            case Indexed(kind="concatenate"):
                return self._concatenate(instruction, seen)
            case _:
                args = tuple(self._seen_operand(s, seen) for s in instruction.inputs)
                number = self.context.references.producer[instruction.outputs[0].index]
                return self.add(Apply(instruction.op, instruction.params, args, instruction.types[0].dtype, number))

    def _seen_operand(self, source: Source, seen: Affine) -> int:
        if not isinstance(source, Slot):
            return self.add(Uniform(source))
        reference = self.context.references.of(source.index)
        rank = self.context.references.types[source.index].rank
        if not rank:
            seen = Affine((), seen.shape)
        inner = reference.affine.through(seen)
        return self.element(reference.source, reference.reshape, inner)

    # Index ops

    def _iota(self, instruction: Instruction, seen: Affine) -> int:
        m = seen.axes[instruction.params["axis"]]
        offset, step = m.index
        if m.target == DROPPED or (m.window is None and (m.fixed or m.size == 1)):  # one number, wherever it stands
            return self.add(Uniform(Literal(offset, INT64) if isinstance(offset, int) else DimScalar(offset, INT64)))
        outer = bool(self.row_axes) and m.target not in self.row_axes
        return self.add(Iota(m.target, offset, step, outer))

    def _part(self, source: Source, seen: Affine, low: Sequence[Extent], cut: Sequence[bool]) -> tuple[int, Valid]:
        """An operand that begins at ``low`` in a larger array, along the axes that are ``cut`` by its ends; and where
        it has elements."""
        if not isinstance(source, Slot):
            raise TypeError("a part of an array is an array")
        reference = self.context.references.of(source.index)
        shape = self.context.references.types[source.index].shape
        windows = []
        for k, n in enumerate(shape):
            if cut[k]:
                window = seen.axes[k].shifted(low[k], AxisMap(k, 0, 1, n, n)).window
                assert window is not None
                windows.append(Window(seen.axes[k].target, window[0], window[1], n))
        maps = []
        for m in reference.affine.axes:
            if m.target == DROPPED or not cut[m.target]:
                maps.append(Affine((m,), shape).through(seen).axes[0])
            else:
                maps.append(seen.axes[m.target].shifted(low[m.target], m))
        node = self.element(reference.source, reference.reshape, Affine(tuple(maps), seen.shape))
        return node, Valid(tuple(sorted(windows, key=lambda w: w.axis)))

    def _pad(self, instruction: Instruction, seen: Affine) -> int:
        x, fill = instruction.inputs
        low, high = instruction.params["low"], instruction.params["high"]
        cut = [a != 0 or b != 0 for a, b in zip(low, high, strict=True)]
        inner, valid = self._part(x, seen, low, cut)
        if not valid.windows:
            return inner
        node = self.nodes[inner]
        if isinstance(node, Load) and node.windows == valid.windows and _is_zero(fill):
            return inner
        return self._select(self.add(valid), inner, self._seen_operand(fill, seen), instruction)

    def _concatenate(self, instruction: Instruction, seen: Affine) -> int:
        axis = instruction.params["axis"]
        types = [self.context.references.types[s.index] for s in instruction.inputs if isinstance(s, Slot)]
        cut = [k == axis for k in range(types[0].rank)]
        parts: list[tuple[int, Valid]] = []
        begin: Extent = 0
        for source, kind in zip(instruction.inputs, types, strict=True):
            parts.append(self._part(source, seen, [begin if c else 0 for c in cut], cut))
            begin = add(begin, kind.shape[axis])
        node = parts[-1][0]
        for part, valid in reversed(parts[:-1]):
            node = self._select(self.add(valid), part, node, instruction)
        return node

    def _select(self, condition: int, x: int, y: int, instruction: Instruction) -> int:
        if self.nodes[x] == Uniform(Literal(True, BOOL)) and self.nodes[y] == Uniform(Literal(False, BOOL)):
            return condition
        number = self.context.references.producer[instruction.outputs[0].index]
        return self.add(Apply(pointwise.where, Params(), (condition, x, y), instruction.types[0].dtype, number))

    def _gather(self, number: int, instruction: Instruction, level: Level) -> int:
        x, index = instruction.inputs
        assert isinstance(x, Slot)
        axis, x_rank = instruction.params["axis"], self.context.references.types[x.index].rank
        index_rank = index.type.rank if not isinstance(index, Slot) else self.context.references.types[index.index].rank
        if x_rank == 1 or not index_rank or not isinstance(index, Slot):
            node = self.operand(number, index, level)
        else:
            reference = self.context.references.of(index.index)
            shape = self.context.references.types[index.index].shape
            along = onto(shape, range(axis, axis + index_rank), self.cluster.space)
            node = self.element(reference.source, reference.reshape, reference.affine.through(along))
        reference = self.context.references.of(x.index)
        source = reference.source if isinstance(reference.source, Slot) else x
        views: tuple[ViewStep, ...] = ()
        if isinstance(reference.source, Slot):
            # An index counts along the whole of a repeated axis, so it must have its size here.
            shape = self.context.references.types[x.index].shape
            stretched = ViewStep("broadcast_to", Params(shape=shape, axes=tuple(range(x_rank))))
            views = (*reference.reshape, *reference.affine.views())
            views = (*views, stretched) if reference.affine.repeats() else views
        spanned = len(self.cluster.space) if x_rank == 1 else index_rank
        access = Access(source.index, views)
        return self.add(Gather(access, axis, node, spanned, instruction.types[0].dtype, number))

    # Members

    def member(self, number: int) -> None:
        """Append the nodes of one instruction; its operands' nodes exist."""
        instruction = self.context.program.instructions[number]
        slot = instruction.outputs[0].index
        level = self.context.clusters.level.get(slot, Level.ROW)
        match instruction.op.form:
            case Pointwise():
                args = tuple(self.operand(number, s, level) for s in instruction.inputs)
                dtype = instruction.types[0].dtype
                mask = self._mask(number, args)
                self.values[slot] = self.add(Apply(instruction.op, instruction.params, args, dtype, number, mask))
            case Reduction():
                self.values[slot] = self._reduce(number, instruction)
            case Indexed(kind="gather"):
                self.values[slot] = self._gather(number, instruction, level)
            case Indexed():
                self.values[slot] = self._computed(instruction, self._onto(instruction.types[0].shape, level))
            case Update():
                self._update(number, instruction)
            case View() | Contraction() | Library() | Control() | Collective() | Extension() | Host():
                raise TypeError(f"{instruction.op.name} is no member of a region")
            case _:
                assert_never(instruction.op.form)

    def _reduce(self, number: int, instruction: Instruction) -> int:
        form = instruction.op.form
        assert isinstance(form, Reduction)
        arg = self.at_row(self.operand(number, instruction.inputs[0], Level.ROW))
        dtype = instruction.types[0].dtype
        if form.kind == "moments" and self.nodes[arg].dtype.kind == "c":
            # |z - mean|**2 is the sum of its parts' squared deviations.
            parts = [self.add(Apply(op, Params(), (arg,), dtype, number)) for op in (pointwise.real, pointwise.imag)]
            spreads = tuple(self.add(Reduce("moments", p, dtype, number)) for p in parts)
            return self.add(Apply(pointwise.add, Params(), spreads, dtype, number))
        if form.kind == "product" and dtype.kind == "c":
            # Starts from 1: an infinite factor by itself becomes what NumPy's formula makes of it.
            total = self.add(Reduce("product", arg, dtype, number))
            one = self.add(Uniform(Literal(1 + 0j, dtype)))
            return self.add(Apply(pointwise.multiply, Params(), (one, total), dtype, number))
        wide = accumulator(self.nodes[arg].dtype)
        if wide == self.nodes[arg].dtype or not in_tree_order(form.kind, wide):
            return self.add(Reduce(form.kind, arg, dtype, number))
        # float16 has no arithmetic of its own: accumulate in float32, round once.
        widened = self.add(Apply(pointwise.astype, Params(dtype=wide), (arg,), wide, number))
        total = self.add(Reduce(form.kind, widened, wide, number))
        return self.add(Apply(pointwise.astype, Params(dtype=dtype), (total,), dtype, number))

    def _update(self, number: int, instruction: Instruction) -> None:
        level = self.context.clusters.update_level[number]
        node = self.operand(number, instruction.inputs[1], level)
        if level is Level.ROW:
            node = self.at_row(node)
        target = instruction.outputs[0].index
        self.stores.append(Store(target, node, (ViewStep("slice", instruction.params),)))

    def _mask(self, number: int, args: Sequence[int]) -> int | None:
        """The node that is True where the lane of a checked instruction reaches a result; None where all do."""
        outer = all(self.outer[a] for a in args)
        mask: int | None = None
        for condition in sorted(self.context.conditions.get(number, ()), key=lambda c: (c.slot, c.holds)):
            node = self._condition(number, condition.slot, Level.OUTER if outer and self.row_axes else Level.ROW)
            if node is None or (outer and not self.outer[node]):
                continue
            if not condition.holds:
                node = self.add(Apply(pointwise.invert, Params(), (node,), BOOL, number))
            if mask is not None:
                node = self.add(Apply(pointwise.bitwise_and, Params(), (mask, node), BOOL, number))
            mask = node
        return mask

    def _condition(self, number: int, slot: int, level: Level) -> int | None:
        """The node of a condition that the region computes, or loads for the ``where`` itself."""
        if is_inside(self.context.clusters, number, slot):
            return self.values.get(self.context.clusters.same_as.get(slot, slot))
        shape = self.context.references.types[slot].shape
        if slot not in self.loaded or (level is Level.OUTER and shape == self.cluster.space):
            return None
        return self.operand(number, Slot(slot), level)

    def store(self, slot: int) -> None:
        node = self.values[slot]
        if self.context.clusters.level.get(slot, Level.ROW) is Level.ROW:
            node = self.at_row(node)
        self.stores.append(Store(slot, node))

    def finish(self, name: str, members: Sequence[int]) -> Region:
        lines = tuple(self.context.program.instructions[n].line for n in members)
        return Region(
            name, self.cluster.space, self.row_axes, tuple(self.nodes), tuple(self.stores), tuple(members), lines
        )


def _without_origin(node: Node) -> Node:
    """The node as nodes are compared: where it comes from tells apart only what may fail at run time."""
    match node:
        case Apply(op=op) if isinstance(op.form, Pointwise) and op.form.check is None:
            return replace(node, operation=-1)
        case Reduce():
            return replace(node, operation=-1)
        case _:
            return node


def _is_zero(fill: Source) -> bool:
    return isinstance(fill, Literal) and not any(fill.bits())


def fill_region(context: Context, slot: int, name: str) -> Region:
    """The region that fills an array with the scalar that ``slot`` is a broadcast of."""
    reference = context.references.of(slot)
    if isinstance(reference.source, Slot):
        raise TypeError(f"s{slot} is a view of an array")
    number = context.references.producer[slot]
    line = context.program.instructions[number].line
    shape = context.references.types[slot].shape
    return Region(name, shape, (), (Uniform(reference.source),), (Store(slot, 0),), (number,), (line,))
