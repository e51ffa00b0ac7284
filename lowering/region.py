"""The kernel IR: regions, what an engine makes one kernel of.

A region has an iteration space, some axes of which may be *row axes* (the reduced ones). Its nodes are in A-normal form
and refer to one another by position. A node lives at one of two levels: *row* (one value per point of the space) or
*outer* (one value per point of the space without its row axes: results of reductions, and what is computed from them).
Without row axes the two levels are one, and every node counts as row.

Index maps are data: an ``Access`` reaches a slot's elements through views that end in the shape of the space; engines
evaluate it on strides when they bind arrays, and copy only where a reshape has no strided form.
"""

from __future__ import annotations

from typing import Any, Literal as OneOf, TypeAlias

import numpy as np

from tenferro.lowering.tree import accumulator, in_tree_order
from tenferro.tracer.dims import Extent, shape_text, walk_text
from tenferro.tracer.errors import CheckError
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Op, ReductionKind, ViewKind
from tenferro.tracer.program import DimScalar, Literal, Params
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One view, with the parameters of the op of that name."""

    kind: ViewKind
    params: Params

    def __str__(self) -> str:
        return f".{self.kind}({self.params})"


@dataclass(frozen=True, slots=True)
class Access:
    """``views`` applied to the slot's array in order. The result has the rank of the space; an axis of size 1 is
    repeated along the space's axis (a row axis of an outer-level load always is)."""

    slot: int
    views: tuple[ViewStep, ...]

    def __str__(self) -> str:
        return f"s{self.slot}" + "".join(str(v) for v in self.views)


@dataclass(frozen=True, slots=True)
class Window:
    """Along space axis ``axis`` the index into the accessed array is ``offset + step * i``; the element exists where
    that lies in [0, ``size``)."""

    axis: int
    offset: Extent
    step: int
    size: Extent

    def __str__(self) -> str:
        return f"axis {self.axis}: 0 <= {walk_text(self.offset, self.step)} < {self.size}"


@dataclass(frozen=True, slots=True)
class Load:
    """An element. Where a window has no element the value is 0 and nothing is read; the accessed array has size
    ``window.size`` along a windowed axis and the space's size (or 1) along every other."""

    access: Access
    windows: tuple[Window, ...]
    dtype: np.dtype[Any]
    outer: bool

    def __str__(self) -> str:
        windows = f" if {' and '.join(map(str, self.windows))}" if self.windows else ""
        return f"load {self.access}{windows}"


@dataclass(frozen=True, slots=True)
class Valid:
    """True where every window has its element."""

    windows: tuple[Window, ...]
    dtype: np.dtype[Any] = np.dtype(np.bool_)

    def __str__(self) -> str:
        return f"valid {' and '.join(map(str, self.windows))}"


@dataclass(frozen=True, slots=True)
class Gather:
    """``take(array, index, axis)``: ``access`` reaches the array itself (its views do not lead to the space). Space
    axes ``[0, axis)`` and ``[axis + index_rank, …)`` run over the array's other axes, in order. A negative index
    counts from the end; one out of range is recorded in the latch under ``operation`` and reads element 0."""

    access: Access
    axis: int
    index: int
    index_rank: int
    dtype: np.dtype[Any]
    operation: int

    def __str__(self) -> str:
        return f"gather {self.access} axis {self.axis} at v{self.index}"


@dataclass(frozen=True, slots=True)
class Iota:
    """int64 ``offset + step * i`` along a space axis."""

    axis: int
    offset: Extent
    step: int
    outer: bool
    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __str__(self) -> str:
        return f"iota axis {self.axis}: {walk_text(self.offset, self.step)}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """One value for the whole region: a constant of the text, or a size passed as a parameter."""

    operand: Literal | DimScalar

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.operand.dtype

    def __str__(self) -> str:
        return str(self.operand)


@dataclass(frozen=True, slots=True)
class Apply:
    """A pointwise op on nodes. ``mask``: the node that says which lanes reach a result, for checked ops (None: all)."""

    op: Op
    params: Params
    args: tuple[int, ...]
    dtype: np.dtype[Any]
    operation: int
    mask: int | None = None

    def __str__(self) -> str:
        params = f"[{self.params}]" if len(self.params) else ""
        mask = f" where v{self.mask}" if self.mask is not None else ""
        return f"{self.op.name}{params}({', '.join(f'v{a}' for a in self.args)}){mask}"


@dataclass(frozen=True, slots=True)
class Reduce:
    """Over the row axes, in row-major logical order, along the fixed tree. Its result lives at the outer level."""

    kind: ReductionKind
    arg: int
    dtype: np.dtype[Any]
    operation: int

    def __str__(self) -> str:
        return f"reduce {self.kind} v{self.arg}"


Node: TypeAlias = Load | Valid | Gather | Iota | Uniform | Apply | Reduce


def arguments(node: Node) -> tuple[int, ...]:
    """The nodes that a node reads."""
    match node:
        case Apply(args=args, mask=mask):
            return args if mask is None else (*args, mask)
        case Reduce(arg=arg):
            return (arg,)
        case Gather(index=index):
            return (index,)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Store:
    """Writes a node to a slot. The target (the slot's array through ``views``) has as many elements as the node's
    level has points, in the same row-major order; without views it is the whole, fresh, C-ordered array.

    ``over``: a slot, None for none, where the target may lie: nothing reads it after the region, and each load of it is
    of the element that the store then writes."""

    slot: int
    node: int
    views: tuple[ViewStep, ...] = ()
    over: int | None = None

    def __str__(self) -> str:
        place = "" if self.over is None else f" over s{self.over}"
        return f"s{self.slot}{''.join(map(str, self.views))} = v{self.node}{place}"


@dataclass(frozen=True, repr=False)
class Region:
    """``row_axes`` are increasing axes of ``space``; empty for a region without reductions."""

    name: str
    space: tuple[Extent, ...]
    row_axes: tuple[int, ...]
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]
    instructions: tuple[int, ...]  # of the ExecProgram, that this region covers
    lines: tuple[SourceLine | None, ...] = ()

    def __post_init__(self) -> None:
        validate(self)

    def outer(self) -> tuple[bool, ...]:
        """For each node, whether it lives at the outer level."""
        return levels(self)

    def reads(self) -> tuple[int, ...]:
        """The slots that the region loads from, each once, in order of first use."""
        slots = [n.access.slot for n in self.nodes if isinstance(n, Load | Gather)]
        return tuple(dict.fromkeys(slots))

    def __repr__(self) -> str:  # a prompt shows it: short, str() has it all
        nodes = f"nodes {len(self.nodes)}, stores {len(self.stores)}"
        return f"<region {self.name} over {shape_text(self.space)}: {nodes}; print() shows them>"

    def __str__(self) -> str:
        rows = f" rows over {self.row_axes}" if self.row_axes else ""
        lines = [f"region {self.name} over {shape_text(self.space)}{rows}"]
        outer = self.outer()
        for k, node in enumerate(self.nodes):
            level = "o" if outer[k] and self.row_axes else " "
            lines.append(f"  {level} v{k}: {node.dtype.name} = {node}")
        lines += [f"    {s}" for s in self.stores]
        return "\n".join(lines)


Level = OneOf["row", "outer", "uniform"]


def levels(region: Region) -> tuple[bool, ...]:
    found: list[bool] = []
    for node in region.nodes:
        match node:
            case Load(outer=outer) | Iota(outer=outer):
                found.append(outer)
            case Uniform() | Reduce():
                found.append(True)
            case Valid(windows=windows):
                found.append(bool(region.row_axes) and not any(w.axis in region.row_axes for w in windows))
            case Gather(index=index, axis=axis, index_rank=rank):
                others = [a for a in range(len(region.space)) if not axis <= a < axis + rank]
                found.append(found[index] and bool(region.row_axes) and not set(others) & set(region.row_axes))
            case Apply(args=args):
                found.append(all(found[a] for a in args))
    return tuple(found)


def validate(region: Region) -> None:
    """Arguments come before their users, reductions read row-level values of the accumulator's dtype, stores exist."""

    def fail(what: str) -> None:
        raise CheckError(f"region {region.name}: {what}")

    for k, node in enumerate(region.nodes):
        args = arguments(node)
        if isinstance(node, Reduce):
            if not region.row_axes:
                fail(f"v{k} reduces but there are no row axes")
            reduced = region.nodes[node.arg].dtype
            if in_tree_order(node.kind, reduced) and accumulator(reduced) != reduced:
                fail(f"v{k} accumulates in {reduced.name}")
        if any(not 0 <= a < k for a in args):
            fail(f"v{k} = {node} reads a node that does not come before it")
    if not region.stores:
        fail("it stores nothing")
    if any(not 0 <= s.node < len(region.nodes) for s in region.stores):
        fail("a store of a node that does not exist")
