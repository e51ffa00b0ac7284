"""One turn of a kernel's innermost loop: the nodes of a pass on one vector of elements.

In: the nodes of a pass, pointers to the elements of every access, the position in the loops. Out: a value per node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, assert_never

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.layout import Variant
from tenferro.engines.cpu.native_entry import WARNING_BIT
from tenferro.engines.cpu.params import LATCH, ParamMap
from tenferro.engines.cpu.vector_builder import ModuleText, Vec, VectorBuilder, apply
from tenferro.lowering.region import Apply, Gather, Iota, Load, Node, Reduce, Region, Uniform, Valid, Window
from tenferro.tracer import scalar
from tenferro.tracer.op import Check, Pointwise
from tenferro.tracer.program import Literal
from tenferro.tracer.records import dataclass

INT64, BOOL = elements.INT64, elements.BOOL

OPERATION_SHIFT = 40
"""Bits of the logical index below the operation's number."""


class CodeBuilder(VectorBuilder):
    """A vector builder that writes into a Code, beside other builders of other widths."""

    def __init__(self, module: ModuleText, lanes: int, outline: bool, code: Code) -> None:
        self.code = code
        block = code.block
        super().__init__(module, lanes, outline)
        self.lines = code.lines
        code.block = block

    @property
    def block(self) -> str:
        return self.code.block

    @block.setter
    def block(self, label: str) -> None:
        self.code.block = label

    def fresh(self) -> str:
        return self.code.fresh()

    def new_label(self) -> str:
        return self.code.new_label()


@dataclass
class Position:
    """Where the vector stands. ``scalars[j]`` is the index of outer loop j; ``row`` gives row loop j's index per lane;
    ``active`` the mask of lanes below the end (None: all); ``number`` the logical index of lane 0 in the region.

    ``first`` is for accesses that are neighbours along the row. ``column``: where lanes run along the last outer loop
    instead, its index of lane 0; then ``row`` gives one index for all lanes."""

    scalars: Sequence[str]
    row: Callable[[int], str]
    active: str | None
    number: str
    first: str = "0"  # row index of lane 0, for a row of one loop
    column: str | None = None


@dataclass
class Body:
    """Emits nodes for one region, variant and function."""

    region: Region
    variant: Variant
    params: ParamMap
    code: Code
    builder: CodeBuilder
    params_pointer: str
    axis_loops: Mapping[int, int]
    outer_rank: int = field(init=False)

    def __post_init__(self) -> None:
        self.outer_rank = self.variant.outer_rank

    @property
    def lanes(self) -> int:
        return self.builder.lanes

    def word(self, *name: object) -> str:
        return self.code.word(self.params_pointer, self.params[name])

    def node(self, k: int, values: Mapping[int, Value], pointers: Mapping[int, str], at: Position) -> Value:
        """The value of node k. ``pointers[k]`` is the address of a load's vector (or of its row's first element for
        accesses that compute addresses per lane)."""
        node: Node = self.region.nodes[k]
        match node:
            case Load(windows=(), dtype=dtype):
                return elements.load(self.code, pointers[k], self.lanes, dtype)
            case Load():
                return self._windowed(k, node, pointers[k], at)
            case Valid(windows=windows):
                return Vec(self._mask(*self._inside(k, windows, at)), BOOL)
            case Iota():
                return self._iota(k, node, at)
            case Gather():
                return self._gather(k, node, values[node.index], pointers[k], at)
            case Uniform():
                return self.uniform(k, node)
            case Apply():
                return self._apply(node, values, at)
            case Reduce():
                raise AssertionError("reductions are not part of a vector's body")
            case _:
                assert_never(node)

    def uniform(self, k: int, node: Uniform) -> Value:
        """A constant of the text, or a size from the parameters."""
        operand = node.operand
        if isinstance(operand, Literal):
            return scalar.constant(self.builder, operand.value, operand.dtype)
        size = Vec(elements.splat_text(self.code, self.word("d", k), self.lanes, "i64"), INT64)
        return self._converted(size, operand.dtype)

    def _converted(self, x: Vec, dtype: np.dtype[Any]) -> Value:
        return x if dtype == x.dtype else scalar.astype(self.builder, x, dtype)

    def _apply(self, node: Apply, values: Mapping[int, Value], at: Position) -> Value:
        args = [values[a] for a in node.args]
        form = node.op.form
        if isinstance(form, Pointwise) and form.is_checked(node.dtype):
            mask = None if node.mask is None else values[node.mask]
            self._check(form.check, args[1], mask, at, node.operation)
        return apply(self.builder, node.op, node.params, args)

    def _check(self, check: Check, operand: Value, mask: Value | None, at: Position, operation: int) -> None:
        """Record lanes whose second operand is one that the row's check is about."""
        none = self.builder.const(0, operand.dtype)
        if check == "negative_exponent":
            if operand.dtype.kind == "i":  # NumPy raises for lanes that a ``where`` then drops, too
                self._record(self.builder.lt(operand, none).text, at, operation, warning=False)
            return
        zero = self.builder.eq(operand, none).text
        if check == "unmet":
            self._record(zero, at, operation, warning=False)
            return
        self._record(zero if mask is None else self._and(zero, mask.text), at, operation, warning=True)

    def _and(self, a: str, b: str) -> str:
        return self.code.emit(f"and {elements.vector(self.lanes, 'i1')} {a}, {b}")

    def _record(self, bad: str, at: Position, operation: int, warning: bool) -> None:
        """Put the first bad lane into the latch, smallest (raises before warns, operation, index) first."""
        code, lanes = self.code, self.lanes
        if at.active is not None:
            bad = self._and(bad, at.active)

        def record() -> None:
            first = "0"
            if lanes > 1:
                bits = code.emit(f"bitcast <{lanes} x i1> {bad} to i{lanes}")
                self.builder.module.declare(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
                lane = code.emit(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {bits}, i1 false)")
                first = lane if lanes == 64 else code.emit(f"zext i{lanes} {lane} to i64")
            index = code.add(at.number, first)
            key = (WARNING_BIT if warning else 0) | (max(operation, 0) << OPERATION_SHIFT)
            word = code.emit(f"or i64 {index}, {key}")
            offset = code.mul(code.word(self.params_pointer, LATCH), 8)
            latch = code.at(self.params_pointer, offset)
            code.emit(f"atomicrmw umin ptr {latch}, i64 {word} monotonic")

        code.when(elements.any_lane(code, bad, lanes), record)

    def out_of_range(self, bad: str, at: Position, operation: int) -> None:
        """Record lanes whose index is."""
        self._record(bad, at, operation, warning=False)

    def coordinate(self, axis: int, at: Position) -> tuple[str, bool]:
        """The index along a space axis, and whether it is a scalar."""
        loop = self.axis_loops[axis]
        if at.column is not None and loop == self.outer_rank - 1:
            kind, start = (
                elements.vector(self.lanes, "i64"),
                elements.splat_text(self.code, at.column, self.lanes, "i64"),
            )
            return self.code.emit(f"add {kind} {start}, {elements.lane_numbers(self.lanes)}"), False
        if loop < self.outer_rank:
            return at.scalars[loop], True
        return at.row(loop - self.outer_rank), at.column is not None

    def _affine(self, axis: int, offset: str, step: str, at: Position) -> str:
        """``offset + step * index`` per lane."""
        index, is_scalar = self.coordinate(axis, at)
        lanes, code = self.lanes, self.code
        if is_scalar:
            return elements.splat_text(code, code.add(offset, code.mul(step, index)), lanes, "i64")
        kind = elements.vector(lanes, "i64")
        scaled = code.emit(f"mul {kind} {index}, {elements.splat_text(code, step, lanes, 'i64')}")
        return code.emit(f"add {kind} {scaled}, {elements.splat_text(code, offset, lanes, 'i64')}")

    def _iota(self, k: int, node: Iota, at: Position) -> Value:
        return Vec(self._affine(node.axis, self.word("i", k, "offset"), self.word("i", k, "step"), at), INT64)

    def _inside(self, k: int, windows: Sequence[Window], at: Position) -> tuple[str, str]:
        """Whether the windows along scalar loops have their element, and the mask of those along the row; "" for
        none."""
        code, scalar, mask = self.code, "", ""
        for w, window in enumerate(windows):
            offset, size = self.word("w", k, w, "offset"), self.word("w", k, w, "size")
            index, is_scalar = self.coordinate(window.axis, at)
            if is_scalar:
                place = code.add(offset, code.mul(self.word("w", k, w, "step"), index))
                inside = code.compare("ult", place, size)
                scalar = code.emit(f"and i1 {scalar}, {inside}") if scalar else inside
                continue
            inside = self._row_mask(k, w, window, offset, size, at)
            mask = self._and(mask, inside) if mask else inside
        return scalar, mask

    def _mask(self, scalar: str, mask: str) -> str:
        """Both in one mask."""
        if not scalar:
            return mask
        everywhere = elements.splat_text(self.code, scalar, self.lanes, "i1")
        return self._and(mask, everywhere) if mask else everywhere

    def _row_mask(self, k: int, w: int, window: Window, offset: str, size: str, at: Position) -> str:
        """One window along the row. With step 1 the lanes from ``-start`` to below ``size - start`` are inside, which
        takes two comparisons of 32-bit lane numbers; else an unsigned one of 64-bit indices."""
        code, lanes = self.code, self.lanes
        if window.step == 1 and lanes > 1 and self.variant.row_rank == 1:
            start = code.add(offset, at.first)
            past = code.sub(size, start)
            below = elements.lanes_below(code, self._at_least_0(past), lanes)
            before = elements.lanes_below(code, self._at_least_0(code.sub("0", start)), lanes)
            return self._and(below, code.emit(f"xor <{lanes} x i1> {before}, splat (i1 true)"))
        kind = elements.vector(lanes, "i64")
        index = self._affine(window.axis, offset, self.word("w", k, w, "step"), at)
        return code.emit(f"icmp ult {kind} {index}, {elements.splat_text(code, size, lanes, 'i64')}")

    def _touches(self, k: int, windows: Sequence[Window], scalar: str, at: Position) -> str:
        """Whether a vector may have a lane inside every window: ``scalar``, and the vector's first index is less than a
        vector before each window along the row, and not past it. "" for always."""
        code, found = self.code, scalar
        for w, window in enumerate(windows):
            if self.coordinate(window.axis, at)[1] or window.step != 1 or self.variant.row_rank != 1:
                continue
            start = code.add(self.word("w", k, w, "offset"), at.first)
            tests = (
                code.compare("sgt", start, -self.lanes),
                code.compare("slt", start, self.word("w", k, w, "size")),
            )
            for test in tests:
                found = code.emit(f"and i1 {found}, {test}") if found else test
        return found

    def _at_least_0(self, x: str) -> str:
        return self.code.emit(f"select i1 {self.code.compare('sgt', x, 0)}, i64 {x}, i64 0")

    def _row_offsets(self, k: int, at: Position) -> str:
        """Byte offsets per lane from the row's first element along the row loops."""
        a, lanes, code = self._access(k), self.lanes, self.code
        kind, total = elements.vector(lanes, "i64"), ""
        for j in range(self.variant.row_rank):
            stride = elements.splat_text(code, self.word("pr", a, j), lanes, "i64")
            part = code.emit(f"mul {kind} {at.row(j)}, {stride}")
            total = code.emit(f"add {kind} {total}, {part}") if total else part
        return total

    def _access(self, k: int) -> int:
        """The position of load or gather k among the accesses."""
        return sum(isinstance(n, Load | Gather) for n in self.region.nodes[:k])

    def _windowed(self, k: int, node: Load, base: str, at: Position) -> Value:
        scalar, row = self._inside(k, node.windows, at)
        mask = self._mask(scalar, row)
        if at.active is not None:
            mask = self._and(mask, at.active)
        if self.lanes > 1 and self.variant.kinds[self._access(k)] == "windowed":
            return self._neighbours(base, mask, self._touches(k, node.windows, scalar, at), node.dtype, at)
        return self._fetch(base, self._row_offsets(k, at), mask, node.dtype)

    def _fetch(self, base: str, offsets: str, mask: str, dtype: np.dtype[Any]) -> Value:
        if self.lanes > 1:
            return elements.gather(self.code, self.builder, base, offsets, mask, self.lanes, dtype)
        # One lane: a branch-free read of element 0 of a zero on the stack where the mask is false.
        zero = self.code.alloca(16)
        self.code.do(f"store i128 0, ptr {zero}, align 16")
        place = self.code.emit(f"select i1 {mask}, ptr {self.code.at(base, offsets)}, ptr {zero}")
        return elements.load(self.code, place, 1, dtype)

    def _neighbours(self, base: str, mask: str, touches: str, dtype: np.dtype[Any], at: Position) -> Value:
        """Neighbours along the row whose first element is at ``base``. Where ``touches`` is false the whole vector is
        masked, and its address may be in no page at all, which costs a processor's assist of hundreds of cycles even
        under a mask: then the stack's address serves."""
        code = self.code
        place = code.at(base, code.mul(at.first, dtype.itemsize))
        if touches:
            safe = code.alloca(self.lanes * dtype.itemsize)
            place = code.emit(f"select i1 {touches}, ptr {place}, ptr {safe}")
        return elements.masked_load(code, self.builder, place, mask, self.lanes, dtype)

    def _gather_row(self, k: int, node: Gather, index: Value, base: str, at: Position) -> Value:
        """One index for all lanes: a row of the array, read where the index is in range."""
        code, lanes = self.code, self.lanes
        one = code.emit(f"extractelement <{lanes} x i64> {index.text}, i64 0")
        extent = self.word("g", k, "extent")
        wrapped = code.emit(f"select i1 {code.compare('slt', one, 0)}, i64 {code.add(one, extent)}, i64 {one}")
        inside = code.compare("ult", wrapped, extent)
        outside = elements.splat_text(code, code.emit(f"xor i1 {inside}, true"), lanes, "i1")
        self.out_of_range(outside, at, node.operation)
        mask = elements.splat_text(code, inside, lanes, "i1")
        if at.active is not None:
            mask = self._and(mask, at.active)
        row = code.at(base, code.mul(wrapped, self.word("g", k, "stride")))
        return self._neighbours(row, mask, inside, node.dtype, at)

    def _gather(self, k: int, node: Gather, index: Value, base: str, at: Position) -> Value:
        code, lanes = self.code, self.lanes
        if lanes > 1 and self.variant.kinds[self._access(k)] == "gathered":
            return self._gather_row(k, node, index, base, at)
        kind = elements.vector(lanes, "i64")
        extent = elements.splat_text(code, self.word("g", k, "extent"), lanes, "i64")
        negative = code.emit(f"icmp slt {kind} {index.text}, {'0' if lanes == 1 else 'zeroinitializer'}")
        wrapped = code.emit(f"add {kind} {index.text}, {extent}")
        select = f"select {elements.vector(lanes, 'i1')} {negative}, {kind} {wrapped}, {kind} {index.text}"
        place = code.emit(select)
        inside = code.emit(f"icmp ult {kind} {place}, {extent}")
        outside = code.emit(
            f"xor {elements.vector(lanes, 'i1')} {inside}, {'true' if lanes == 1 else 'splat (i1 true)'}"
        )
        self.out_of_range(outside, at, node.operation)
        mask = inside if at.active is None else self._and(inside, at.active)
        stride = elements.splat_text(code, self.word("g", k, "stride"), lanes, "i64")
        along = code.emit(f"mul {kind} {place}, {stride}")
        offsets = code.emit(f"add {kind} {along}, {self._row_offsets(k, at)}")
        return self._fetch(base, offsets, mask, node.dtype)
