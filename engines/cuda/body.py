"""The nodes of a region at one element: in go the position of a thread in the loops and values, out come statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, assert_never

import numpy as np

from tenferro.engines.cpu.body import OPERATION_SHIFT
from tenferro.engines.cpu.layout import access_keys
from tenferro.engines.cpu.native_entry import WARNING_BIT
from tenferro.engines.cuda import elements
from tenferro.engines.cuda.builder import CudaBuilder, Parts, Val
from tenferro.engines.cuda.code import Code
from tenferro.engines.cuda.elements import POINTER, Value
from tenferro.engines.cuda.params import LATCH, CudaParams, CudaVariant
from tenferro.engines.cuda.prelude import takes_value
from tenferro.lowering.region import Apply, Gather, Iota, Load, Node, Reduce, Region, Uniform, Valid, Window
from tenferro.tracer import scalar
from tenferro.tracer.op import Check, Pointwise
from tenferro.tracer.program import Literal
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import BOOL, I64


@dataclass
class Spot:
    """Where a thread stands. ``outer[j]`` and ``row[j]``: index along loop j; ``element``: index in the row;
    ``bases[a]``: address of access a's first element in the row; ``number``: logical index in the region; ``active``:
    what must hold for a lane to be reported or written ("": nothing). ``arrays``: access → the thread's own copy of its
    elements, of which this is element ``lane``."""

    outer: Sequence[str]
    row: Sequence[str]
    element: str
    bases: Sequence[str]
    number: str
    active: str = ""
    arrays: Mapping[int, str] = field(default_factory=dict)
    lane: str = ""


class Body:
    """Emits nodes of one region and variant into one function."""

    def __init__(
        self, region: Region, variant: CudaVariant, axis_loops: Mapping[int, int], parts: Parts, code: Code
    ) -> None:
        self.region, self.variant, self.axis_loops = region, variant, axis_loops
        self.params = CudaParams(region, variant)
        self.code = code
        self.builder = CudaBuilder(parts, code)
        self.keys = access_keys(region)
        self.index = "long long" if variant.wide else "unsigned"

    # Words and indices.

    def at(self, position: int) -> str:
        """The text of a parameter word."""
        return f"P.w[{position}]" if takes_value(self.params.words) else f"P[{position}]"

    def dtype(self, a: int) -> np.dtype[Any]:
        """What access a reads or writes."""
        kind, k = self.keys[a]
        return self.region.nodes[k if kind == "node" else self.region.stores[k].node].dtype

    def word(self, *name: object) -> str:
        return self.at(self.params[name])

    def divide(self, x: str, j: int, size: str) -> str:
        """``x`` divided by the size of loop j (−1: the row's length)."""
        if self.variant.wide:
            return f"{x} / {size}"
        return f"tn_divide({x}, (unsigned){self.word('m', j)}, (unsigned){self.word('s', j)})"

    def split(self, x: str, names: Sequence[tuple[str, int]], first: int) -> list[str]:
        """Indices along loops from a linear one; ``names`` are the words of their sizes, ``first`` is the first loop's
        number."""
        found: list[str] = []
        rest = x
        for j in reversed(range(len(names))):
            if j == 0:
                found.insert(0, rest)
                continue
            size = f"({self.index}){self.word(*names[j])}"
            quotient = self.code.let(self.index, self.divide(rest, first + j, size), "q")
            found.insert(0, self.code.let(self.index, f"{rest} - {quotient} * {size}", "i"))
            rest = quotient
        return found

    def outer_indices(self, row: str) -> list[str]:
        return self.split(row, [("o", j) for j in range(self.variant.loops.outer_rank)], 0)

    def row_indices(self, element: str) -> list[str]:
        rank = self.variant.loops.outer_rank
        return self.split(element, [("r", j) for j in range(self.variant.loops.row_rank)], rank)

    def bases(self, outer: Sequence[str]) -> list[str]:
        """The address of every access's first element in a row."""
        found = []
        for a in range(len(self.keys)):
            terms = [f"tn_global({self.word('p', a)})"]
            terms += [f"(long long){index} * {self.word('po', a, j)}" for j, index in enumerate(outer)]
            found.append(self.code.let(POINTER, " + ".join(terms), "b"))
        return found

    def address(self, a: int, spot: Spot, itemsize: int) -> str:
        match self.variant.loops.kinds[a]:
            case "uniform":
                return spot.bases[a]
            case "unit":
                return f"{spot.bases[a]} + (long long){spot.element} * {itemsize}"
            case _:
                terms = [f"(long long){index} * {self.word('pr', a, j)}" for j, index in enumerate(spot.row)]
                return " + ".join([spot.bases[a], *terms])

    # Nodes.

    def node(self, k: int, values: Mapping[int, Value], spot: Spot) -> Value:
        node: Node = self.region.nodes[k]
        match node:
            case Load(windows=windows, dtype=dtype):
                a = self.keys.index(("node", k))
                if a in spot.arrays:
                    return elements.from_array(spot.arrays[a], spot.lane, dtype)
                mask = self._inside(k, windows, spot)
                if mask and spot.active:
                    mask = f"({mask} && {spot.active})"
                return elements.load(self.code, self.address(a, spot, dtype.itemsize), dtype, mask)
            case Valid(windows=windows):
                return Val(self._inside(k, windows, spot), BOOL)
            case Iota(axis=axis):
                return Val(self._affine(axis, self.word("i", k, "offset"), self.word("i", k, "step"), spot), I64)
            case Gather():
                return self._gather(k, node, values[node.index], spot)
            case Uniform():
                return self.uniform(k, node)
            case Apply():
                return self._apply(node, values, spot)
            case Reduce():
                raise AssertionError("reductions are not part of an element's body")
            case _:
                assert_never(node)

    def uniform(self, k: int, node: Uniform) -> Value:
        """A constant of the text, or a size from the parameters."""
        operand = node.operand
        if isinstance(operand, Literal):
            return scalar.constant(self.builder, operand.value, operand.dtype)
        return scalar.astype(self.builder, Val(self.word("d", k), I64), operand.dtype)

    def store(self, s: int, value: Value, spot: Spot) -> None:
        """Write a value to store s."""
        a = self.keys.index(("store", s))
        dtype = self.dtype(a)
        if a in spot.arrays:
            elements.to_array(self.code, spot.arrays[a], spot.lane, value)
            return
        elements.store(self.code, self.address(a, spot, dtype.itemsize), value, dtype, spot.active)

    def load_back(self, s: int, spot: Spot) -> Value:
        """What an earlier pass has written to store s."""
        a = self.keys.index(("store", s))
        dtype = self.dtype(a)
        return elements.load(self.code, self.address(a, spot, dtype.itemsize), dtype)

    def _apply(self, node: Apply, values: Mapping[int, Value], spot: Spot) -> Value:
        args = [values[a] for a in node.args]
        form = node.op.form
        if not isinstance(form, Pointwise):
            raise TypeError(f"{node.op.name}: form {type(form).__name__}; only pointwise ops are applied to elements")
        if form.is_checked(node.dtype):
            mask = None if node.mask is None else values[node.mask]
            self._check(form.check, args[1], mask, spot, node.operation)
        return form.scalar(self.builder, *args, **node.params)

    def _check(self, check: Check, operand: Value, mask: Value | None, spot: Spot, operation: int) -> None:
        """Record an element whose second operand is one that the row's check is about."""
        none = self.builder.const(0, operand.dtype)
        if check == "negative_exponent":
            if operand.dtype.kind == "i":  # NumPy raises for elements that a ``where`` then drops, too
                self._record(self.builder.lt(operand, none).text, spot, operation, warning=False)
            return
        zero = self.builder.eq(operand, none).text
        if check == "unmet":
            self._record(zero, spot, operation, warning=False)
            return
        self._record(zero if mask is None else f"{zero} && {mask.text}", spot, operation, warning=True)

    def _record(self, bad: str, spot: Spot, operation: int, warning: bool) -> None:
        """Smallest (raises before warns, operation, index) first."""
        key = (WARNING_BIT if warning else 0) | (max(operation, 0) << OPERATION_SHIFT)
        guard = f"{bad} && {spot.active}" if spot.active else bad
        word = f"(unsigned long long)({spot.number}) | {key}ull"
        self.code.do(f"if ({guard}) tn_record({self.at(LATCH)}, {word});")

    def _coordinate(self, axis: int, spot: Spot) -> str:
        loop, rank = self.axis_loops[axis], self.variant.loops.outer_rank
        return spot.outer[loop] if loop < rank else spot.row[loop - rank]

    def _affine(self, axis: int, offset: str, step: str, spot: Spot) -> str:
        return self.code.let("long long", f"{offset} + {step} * (long long){self._coordinate(axis, spot)}")

    def _inside(self, k: int, windows: Sequence[Window], spot: Spot) -> str:
        """Whether every window has its element; "" for no windows."""
        tests = []
        for w, window in enumerate(windows):
            offset, step, size = (self.word("w", k, w, name) for name in ("offset", "step", "size"))
            place = self._affine(window.axis, offset, step, spot)
            # One unsigned comparison: a negative place is beyond every size.
            tests.append(f"(unsigned long long){place} < (unsigned long long){size}")
        return self.code.let("bool", " && ".join(tests)) if tests else ""

    def _gather(self, k: int, node: Gather, index: Value, spot: Spot) -> Value:
        code, extent = self.code, self.word("g", k, "extent")
        wrapped = code.let("long long", f"{index.text} < 0 ? {index.text} + {extent} : {index.text}")
        inside = code.let("bool", f"(unsigned long long){wrapped} < (unsigned long long){extent}")
        self._record(f"!{inside}", spot, node.operation, warning=False)
        a = self.keys.index(("node", k))
        place = f"{self.address(a, spot, node.dtype.itemsize)} + {wrapped} * {self.word('g', k, 'stride')}"
        return elements.load(code, place, node.dtype, inside)
