"""Reductions inside a kernel: what a loop carries, how a chunk ends, how chunks are put together.

In: values of the reduced node, vector by vector. Out: *words* of 8 bytes per chunk, and from all chunks' words the
result. The order of everything here is that of ``tenferro.lowering.tree``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.body import CodeBuilder
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.extremes import end_of, ends, found, initial, key_dtype, key_of
from tenferro.engines.cpu.vector_builder import ModuleText, Vec
from tenferro.lowering.region import Reduce
from tenferro.lowering.tree import CHUNK_STEPS, has_identity, in_tree_order, lanes as tree_lanes
from tenferro.tracer import scalar
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import Complex
from tenferro.tracer.scalar.complex_arithmetic import multiply_into

F16, F32, F64 = (np.dtype(f"f{n}") for n in (2, 4, 8))
BOOL = elements.BOOL
WORD = 8


def words(kind: str, dtype: np.dtype[Any]) -> int:
    """8-byte words of a chunk's result; of an argument reduction the value, whose place is sought when it is known
    which chunk has it."""
    return 2 if kind == "moments" or dtype.kind == "c" else 1


def identity_of(kind: str, dtype: np.dtype[Any]) -> complex:
    """What a reduction starts from: 0, 1, or what no element of the dtype is below (``max``, ``argmax``) or above."""
    if has_identity(kind):
        return int(kind == "product")
    low = kind in ("max", "argmax")
    match dtype.kind:
        case "b":
            return not low
        case "i" | "u":
            return int(np.iinfo(dtype).min if low else np.iinfo(dtype).max)
        case "c":
            return complex(-np.inf, -np.inf) if low else complex(np.inf, np.inf)
        case _:
            return -np.inf if low else np.inf


@dataclass
class Accumulator:
    """One reduction in one loop. ``dtype`` is that of the reduced node."""

    kind: str
    dtype: np.dtype[Any]
    builder: CodeBuilder

    def __post_init__(self) -> None:
        self.kind = end_of(self.kind)

    @property
    def code(self) -> Code:
        return self.builder.code

    @property
    def is_keyed(self) -> bool:
        """Whether integers stand for floats."""
        return not has_identity(self.kind) and self.dtype.kind == "f"

    @property
    def parts(self) -> list[tuple[np.dtype[Any], int]]:
        """dtype and width of what is carried round."""
        part, lanes = elements.component(self.dtype), self.builder.lanes
        if has_identity(self.kind):
            width = tree_lanes(self.dtype) if self.dtype.kind in "fc" else lanes
            return [(part, width)] * (2 if self.dtype.kind == "c" else 1)
        if self.is_keyed:
            return [(key_dtype(self.dtype), lanes)] * 2
        return [(part, lanes)] * (2 if self.dtype.kind == "c" else 1)

    def carried(self) -> list[tuple[str, str]]:
        """LLVM types and initial values."""
        found = []
        for position, (dtype, width) in enumerate(self.parts):
            value = self._initial(position)
            text = CodeBuilder(self.builder.module, width, False, self.code).const(value, dtype).text
            found.append((elements.value_type(width, dtype), text))
        return found

    def _initial(self, position: int) -> float:
        if self.is_keyed:
            return initial(self.kind, self.dtype)[position]
        identity = identity_of(self.kind, self.dtype)
        return identity.imag if position else identity.real

    def step(self, accs: Sequence[str], value: Value, active: str | None, i: str) -> list[str]:
        """The carried values after one vector, before which there were ``i`` elements; ``active`` masks its lanes,
        None: all are."""
        b = self.builder
        if has_identity(self.kind):
            return self._fold(accs, [value.re, value.im] if isinstance(value, Complex) else [value], active)
        if self.is_keyed:
            held, key = [Vec(a, key_dtype(self.dtype)) for a in accs], key_of(b, value)
            after = ends(b, self.kind, held, [key, key])
            if active is None:
                return [x.text for x in after]
            return [b.select(Vec(active, BOOL), x, y).text for x, y in zip(after, held, strict=True)]
        if active is not None:
            identity = scalar.constant(b, identity_of(self.kind, self.dtype), self.dtype)
            value = scalar.where(b, Vec(active, BOOL), value, identity)
        combined = _extreme(b, self.kind, self._value(accs), value)
        return [combined.re.text, combined.im.text] if isinstance(combined, Complex) else [combined.text]

    def _value(self, accs: Sequence[str]) -> Value:
        if self.dtype.kind == "c":
            part = elements.component(self.dtype)
            return Complex(Vec(accs[0], part), Vec(accs[1], part))
        return Vec(accs[0], self.dtype)

    def _fold(self, accs: Sequence[str], values: Sequence[Vec], active: str | None) -> list[str]:
        """A vector into as many lanes as the tree has, one such piece after another."""
        b, (part, width) = self.builder, self.parts[0]
        # What changes nothing, whatever the lane holds.
        neutral = [1, 0] if self.kind == "product" else [-0.0 if part.kind == "f" else 0] * 2
        held = [Vec(a, part) for a in accs]
        masked = list(values)
        if active is not None:
            mask = Vec(active, BOOL)
            masked = [b.select(mask, v, b.const(n, part)) for v, n in zip(values, neutral, strict=False)]
        if width == b.lanes:
            return [v.text for v in combine(b, self.kind, self.dtype, held, masked)]
        element, narrow = elements.memory_type(part), CodeBuilder(b.module, width, False, self.code)
        for first in range(0, b.lanes, width):
            lanes = list(range(first, first + width))
            pieces = [elements.shuffle(self.code, v.text, "poison", b.lanes, element, lanes) for v in masked]
            held = combine(narrow, self.kind, self.dtype, held, [Vec(p, part) for p in pieces])
        return [v.text for v in held]

    def finish(self, accs: Sequence[str]) -> list[Vec]:
        """Halve the lanes to one: the chunk's words as scalars."""
        width = self.parts[0][1]
        current = [Vec(a, d) for a, (d, _) in zip(accs, self.parts, strict=True)]
        while width > 1:
            half = width // 2
            low = [self._half(v, width, 0) for v in current]
            high = [self._half(v, width, half) for v in current]
            narrow = CodeBuilder(self.builder.module, half, False, self.code)
            current = self._combined(narrow, low, high)
            width = half
        if self.is_keyed:
            return [found(CodeBuilder(self.builder.module, 1, False, self.code), self.kind, current, self.dtype)]
        return current

    def _combined(self, b: CodeBuilder, x: Sequence[Vec], y: Sequence[Vec]) -> list[Vec]:
        return ends(b, self.kind, x, y) if self.is_keyed else combine(b, self.kind, self.dtype, x, y)

    def _half(self, value: Vec, width: int, first: int) -> Vec:
        element = elements.value_type(1, value.dtype)
        if width == 2:
            return Vec(self.code.emit(f"extractelement <2 x {element}> {value.text}, i64 {first}"), value.dtype)
        indices = list(range(first, first + width // 2))
        return Vec(elements.shuffle(self.code, value.text, "poison", width, element, indices), value.dtype)


def combine(b: CodeBuilder, kind: str, dtype: np.dtype[Any], x: Sequence[Vec], y: Sequence[Vec]) -> list[Vec]:
    """Two partial results into one; ``x`` comes first in row-major order."""
    if kind == "sum":
        return [b.add(p, q) for p, q in zip(x, y, strict=True)]
    if kind == "product":
        if dtype.kind != "c":
            return [b.mul(x[0], y[0])]
        product = multiply_into(b, Complex(*x), Complex(*y))
        return [product.re, product.im]
    if kind in ("max", "min"):
        if dtype.kind == "c":
            result = _extreme(b, kind, Complex(*x), Complex(*y))
            return [result.re, result.im]
        return [_extreme(b, kind, x[0], y[0])]
    zero = b.const(0, y[1].dtype)
    wins = beats(b, kind, y[0], x[0])
    ties = b.and_(b.not_(beats(b, kind, x[0], y[0])), b.lt(y[1], x[1]))
    better = b.and_(b.le(zero, y[1]), b.or_(b.lt(x[1], zero), b.or_(wins, ties)))
    return [b.select(better, y[0], x[0]), b.select(better, y[1], x[1])]


def _extreme(b: CodeBuilder, kind: str, x: Value, y: Value) -> Value:
    return (scalar.maximum if kind == "max" else scalar.minimum)(b, x, y)


def beats(b: CodeBuilder, kind: str, x: Vec, y: Vec) -> Vec:
    """Whether x goes before y strictly, for ``argmax`` or ``argmin``: it is better, or it is a NaN and y is none."""
    if x.dtype.kind != "f":
        better: Vec = scalar.less(b, y, x) if kind == "argmax" else scalar.less(b, x, y)
        return better
    if x.dtype == F16:
        x, y = b.convert(x, F32), b.convert(y, F32)
    # Greater or unordered, where y is no NaN: two comparisons.
    predicate = "ugt" if kind == "argmax" else "ult"
    beyond = b.emit(f"fcmp {predicate} {b.type_of(x.dtype)} {x.text}, {y.text}", BOOL)
    return b.and_(beyond, b.eq(y, y))


def store_word(code: Code, value: Vec, place: str) -> None:
    elements.store(code, place, value, 1, value.dtype)


class Chunks:
    """Puts the words of all chunks of a row together, in scalar code of an outer-level function."""

    def __init__(self, module: ModuleText, code: Code) -> None:
        self.module = module
        self.code = code
        self.builder = CodeBuilder(module, 1, False, code)

    def result(self, node: Reduce, dtype: np.dtype[Any], base: str, count: str, length: str, chunk: int) -> Value:
        """The reduction from its words: word w of chunk c is at ``base + 8 * (w * count + c)``. ``dtype`` is that of
        the reduced node, ``length`` the elements of a row, ``chunk`` those of a chunk."""
        pitch = self.code.mul(count, WORD)
        places = [base, self.code.at(base, pitch)][: words(node.kind, dtype)]
        if node.kind == "moments":
            return self._moments(dtype, places, count, length, chunk)
        part = elements.component(dtype)
        if in_tree_order(node.kind, dtype):
            total = self._tree(node.kind, dtype, places, count)
            return Complex(*total) if dtype.kind == "c" else total[0]
        final = self._in_order(node.kind, dtype, [(p, part) for p in places], count)
        return Complex(*final) if dtype.kind == "c" else final[0]

    def best_chunk(self, kind: str, dtype: np.dtype[Any], base: str, count: str) -> tuple[str, Vec]:
        """For an argument reduction the first chunk with the best value, and that."""
        code, kinds = self.code, (elements.value_type(1, dtype), "i64")
        first = elements.load(code, base, 1, dtype)

        def body(c: str, accs: list[str]) -> list[str]:
            value = elements.load(code, code.at(base, code.mul(c, WORD)), 1, dtype)
            wins = beats(self.builder, kind, value, Vec(accs[0], dtype)).text
            both = zip(kinds, (value.text, c), accs, strict=True)
            return [code.emit(f"select i1 {wins}, {t} {x}, {t} {y}") for t, x, y in both]

        carried = list(zip(kinds, (first.text, "0"), strict=True))
        best, chunk = code.loop(1, count, 1, carried, body)
        return chunk, Vec(best, dtype)

    def _in_order(
        self, kind: str, dtype: np.dtype[Any], places: Sequence[tuple[str, np.dtype[Any]]], count: str
    ) -> list[Vec]:
        code = self.code

        def read(c: str | int) -> list[Vec]:
            return [elements.load(code, code.at(p, code.mul(c, WORD)), 1, d) for p, d in places]

        first = read(0)

        def body(c: str, accs: list[str]) -> list[str]:
            before = [Vec(a, v.dtype) for a, v in zip(accs, first, strict=True)]
            return [v.text for v in combine(self.builder, kind, dtype, before, read(c))]

        carried = [(elements.value_type(1, v.dtype), v.text) for v in first]
        after = code.loop(1, count, 1, carried, body)
        return [Vec(a, v.dtype) for a, v in zip(after, first, strict=True)]

    def _tree(self, kind: str, dtype: np.dtype[Any], places: Sequence[str], count: str) -> list[Vec]:
        """One chunk is its own result; more go through the tree's function, a level at a time. The parts of a complex
        sum go each for itself, those of a product together."""
        part = elements.component(dtype)
        if kind == "sum" and len(places) > 1:
            return [v for p in places for v in self._tree(kind, part, [p], count)]
        name = f"@tree_{'' if kind == 'sum' else kind + '_'}{dtype.name}"
        key = ("tree", kind, dtype.str)
        if key not in self.module.outlined:
            self.module.outlined[key] = (name, None)
            self.module.functions.append(_tree_function(name, kind, dtype))
        arguments = ", ".join(f"ptr {p}" for p in places)
        self.code.do(f"call void {name}({arguments}, i64 {count})")
        return [elements.load_scalar(self.code, p, part) for p in places]

    def _moments(self, dtype: np.dtype[Any], places: Sequence[str], count: str, length: str, chunk: int) -> Value:
        """Chan, Golub and LeVeque (1979), eq. 2.1, chunk after chunk in float64; words are means and spreads."""
        code, b = self.code, self.builder

        def read(w: int, c: str | int) -> Vec:
            return elements.load_scalar(code, code.at(places[w], code.mul(c, WORD)), F64)

        def number(x: str) -> Vec:
            return Vec(code.emit(f"sitofp i64 {x} to double"), F64)

        def body(c: str, accs: list[str]) -> list[str]:
            mean, spread = Vec(accs[0], F64), Vec(accs[1], F64)
            before = code.mul(c, chunk)
            here = code.minimum(code.sub(length, before), chunk)
            n_a, n_b, n = number(before), number(here), number(code.add(before, here))
            delta = b.sub(read(0, c), mean)
            moved = b.add(mean, b.div(b.mul(delta, n_b), n))
            between = b.div(b.mul(b.mul(b.mul(delta, delta), n_a), n_b), n)
            return [moved.text, b.add(b.add(spread, read(1, c)), between).text]

        start = [("double", read(0, 0).text), ("double", read(1, 0).text)]
        spread = Vec(code.loop(1, count, 1, start, body)[1], F64)
        empty = Vec(code.compare("eq", length, 0), BOOL)
        spread = b.select(empty, b.const(0.0, F64), spread)
        return spread if dtype == F64 else b.convert(spread, dtype)


def _tree_function(name: str, kind: str, dtype: np.dtype[Any]) -> str:
    """Reduces ``count`` words of each part in place, a level at a time: the last one is left in the first place."""
    width, code = tree_lanes(dtype), Code()
    size = width * CHUNK_STEPS
    data = ["%re", "%im"] if dtype.kind == "c" else ["%data"]
    one = _Level(code, kind, dtype, data)
    top, again, done = code.new_label("level"), code.new_label("again"), code.new_label("done")
    code.jump(top)
    code.start(top)
    m = code.fresh()
    mark = len(code.lines)
    code.branch(code.compare("sgt", m, 1), again, done)
    code.start(again)
    groups = code.emit(f"udiv i64 {code.add(m, size - 1)}, {size}")

    def group(g: str, _: list[str]) -> list[str]:
        first = code.mul(g, size)
        one.group(g, first, code.minimum(code.add(first, size), m))
        return []

    code.loop(0, groups, 1, [], group)
    back = code.block
    code.jump(top)
    code.lines.insert(mark, f"  {m} = phi i64 [ %count, %entry ], [ {groups}, %{back} ]")
    code.start(done)
    code.do("ret void")
    pointers = ", ".join(f"ptr {d}" for d in data)
    return code.function(f"define internal void {name}({pointers}, i64 %count) noinline nounwind")


class _Level:
    """A level of the tree in scalar code: lanes on the stack, an array for each part."""

    def __init__(self, code: Code, kind: str, dtype: np.dtype[Any], data: Sequence[str]) -> None:
        self.code, self.kind, self.dtype, self.data = code, kind, dtype, data
        self.part, self.width = elements.component(dtype), tree_lanes(dtype)
        self.builder = CodeBuilder(ModuleText(), 1, False, code)
        self.lanes = [code.alloca(self.width * self.part.itemsize) for _ in data]

    def _read(self, k: str | int) -> list[Vec]:
        places = [self.code.at(p, self.code.mul(k, self.part.itemsize)) for p in self.lanes]
        return [elements.load_scalar(self.code, p, self.part) for p in places]

    def _write(self, k: str | int, values: Sequence[Vec]) -> None:
        for p, value in zip(self.lanes, values, strict=True):
            elements.store(self.code, self.code.at(p, self.code.mul(k, self.part.itemsize)), value, 1, self.part)

    def group(self, g: str, first: str, stop: str) -> None:
        """Words [first, stop) into word g."""
        code, b = self.code, self.builder
        start = [b.const(v, self.part) for v in (int(self.kind == "product"), 0)][: len(self.data)]

        def clear(k: str, _: list[str]) -> list[str]:
            self._write(k, start)
            return []

        code.loop(0, self.width, 1, [], clear)

        def add(e: str, _: list[str]) -> list[str]:
            lane = code.emit(f"and i64 {code.sub(e, first)}, {self.width - 1}")
            new = [elements.load_scalar(code, code.at(d, code.mul(e, WORD)), self.part) for d in self.data]
            self._write(lane, combine(b, self.kind, self.dtype, self._read(lane), new))
            return []

        code.loop(first, stop, 1, [], add)
        self._halve()
        for d, value in zip(self.data, self._read(0), strict=True):
            store_word(code, value, code.at(d, code.mul(g, WORD)))

    def _halve(self) -> None:
        def fold(k: str, half: str) -> None:
            high = self._read(self.code.add(k, half))
            self._write(k, combine(self.builder, self.kind, self.dtype, self._read(k), high))

        self.code.halving(self.width, fold)
