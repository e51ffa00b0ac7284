"""Reductions in a kernel: what a thread carries, how a chunk ends, how chunks are put together.

In: values of the reduced node, element by element. Out: the *words* of a chunk (one or two values that every thread of
the team gets), and from all chunks' words the result. The order is that of ``tenferro.lowering.tree``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tenferro.engines.cpu.elements import component
from tenferro.engines.cpu.reduce import identity_of
from tenferro.engines.cuda.body import Body
from tenferro.engines.cuda.builder import CudaBuilder, Val, c_type
from tenferro.engines.cuda.elements import Value
from tenferro.engines.cuda.params import LENGTH
from tenferro.engines.cuda.teams import Team
from tenferro.lowering.region import Reduce
from tenferro.lowering.tree import CHUNK_STEPS, in_tree_order
from tenferro.tracer import scalar
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import F16, F32, F64, I64, Complex, Dtype
from tenferro.tracer.scalar.complex_arithmetic import multiply_into


def parts_of(value: Value) -> list[Val]:
    return [value.re, value.im] if isinstance(value, Complex) else [value]


def words(kind: str, dtype: Dtype) -> int:
    """8-byte words of a chunk's result: of an argument reduction the value and its place."""
    return 2 if kind in ("argmax", "argmin", "moments") or dtype.kind == "c" else 1


def whole(dtype: Dtype, values: Sequence[Val]) -> Value:
    return Complex(*values) if dtype.kind == "c" else values[0]


def combine(b: CudaBuilder, kind: str, dtype: Dtype, x: Sequence[Val], y: Sequence[Val]) -> list[Val]:
    """Two partial results into one; ``x`` comes first in row-major order."""
    match kind:
        case "sum" | "moments":
            return [b.add(p, q) for p, q in zip(x, y, strict=True)]
        case "product":
            return parts_of(multiply_into(b, Complex(*x), Complex(*y))) if dtype.kind == "c" else [b.mul(x[0], y[0])]
        case "max" | "min":
            extreme = scalar.maximum if kind == "max" else scalar.minimum
            return parts_of(extreme(b, whole(dtype, x), whole(dtype, y)))
        case _:
            zero = b.const(0, I64)
            ties = b.and_(b.not_(_beats(b, kind, x[0], y[0])), b.lt(y[1], x[1]))
            ahead = b.or_(b.lt(x[1], zero), b.or_(_beats(b, kind, y[0], x[0]), ties))
            better = b.and_(b.le(zero, y[1]), ahead)
            return [b.select(better, y[0], x[0]), b.select(better, y[1], x[1])]


def _beats(b: CudaBuilder, kind: str, x: Val, y: Val) -> Val:
    """x goes before y strictly: it is better, or it is a NaN and y is none."""
    better: Val = scalar.less(b, y, x) if kind == "argmax" else scalar.less(b, x, y)
    if x.dtype.kind != "f":
        return better
    if x.dtype == F16:
        x, y = b.convert(x, F32), b.convert(y, F32)
    return b.or_(better, b.and_(b.ne(x, x), b.eq(y, y)))


@dataclass
class Reduction:
    """One reduction of a pass. ``chunk``: elements of a chunk; ``width``: the text of the number of lanes in use, for
    teams of one thread with short rows ("": all)."""

    body: Body
    team: Team
    r: int
    chunk: int
    width: str = ""
    kind: str = field(init=False)
    dtype: Dtype = field(init=False)
    state: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        node = self.body.region.nodes[self.r]
        assert isinstance(node, Reduce)
        self.node = node
        self.kind, self.dtype = node.kind, self.body.region.nodes[node.arg].dtype
        self.is_tree = in_tree_order(self.kind, self.dtype)
        self.lanes = self.chunk // CHUNK_STEPS
        self.held = self.lanes // self.team.size if self.is_tree else 1

    # What is carried.

    @property
    def dtypes(self) -> list[Dtype]:
        if self.kind in ("argmax", "argmin"):
            return [self.dtype, I64]
        return [component(self.dtype)] * (2 if self.dtype.kind == "c" else 1)

    @property
    def word_dtypes(self) -> list[Dtype]:
        """What a chunk leaves."""
        return [F64, F64] if self.kind == "moments" else self.dtypes

    @property
    def words(self) -> int:
        return words(self.kind, self.dtype)

    def _identity(self) -> list[Val]:
        b = self.body.builder
        found = parts_of(scalar.constant(b, identity_of(self.kind, self.dtype), self.dtype))
        return [*found, b.const(-1, I64)] if self.kind in ("argmax", "argmin") else found

    def _declare(self, hint: str) -> list[str]:
        """Variables that hold the identity, ``held`` of each."""
        code, names = self.body.code, []
        for initial in self._identity():
            name = code.fresh(hint)
            if self.held == 1:
                code.do(f"{c_type(initial.dtype)} {name} = {initial.text};")
            else:
                code.do(f"{c_type(initial.dtype)} {name}[{self.held}];")
                code.do(f"for (int k = 0; k < {self.width or self.held}; ++k) {name}[k] = {initial.text};")
            names.append(name)
        return names

    def _variables(self, names: Sequence[str], k: str) -> list[Val]:
        suffix = "" if self.held == 1 else f"[{k}]"
        return [Val(f"{name}{suffix}", d) for name, d in zip(names, self.dtypes, strict=True)]

    def _assign(self, targets: Sequence[Val], values: Sequence[Val]) -> None:
        for target, value in zip(targets, values, strict=True):
            self.body.code.do(f"{target.text} = {value.text};")

    def _combined(self, x: Sequence[Val], y: Sequence[Val]) -> list[Val]:
        return combine(self.body.builder, self.kind, self.dtype, x, y)

    # A chunk.

    def open(self) -> None:
        self.state = self._declare("acc")

    def step(self, value: Value, element: str, k: str, centre: Val | None = None) -> None:
        """Add an element to lane k of this thread; with ``centre`` the square of its deviation from it."""
        b = self.body.builder
        new = parts_of(value)
        if centre is not None:
            deviation = b.sub(value, centre)
            new = [b.mul(deviation, deviation)]
        if self.kind in ("argmax", "argmin"):
            new = [*new, Val(f"(long long){element}", I64)]
        held = self._variables(self.state, k)
        self._assign(held, self._combined(held, new))

    def close(self) -> list[Val]:
        """The chunk's values, in every thread of the team."""
        return self._folded(self.state)

    def _folded(self, names: Sequence[str]) -> list[Val]:
        code = self.body.code
        if self.held > 1:
            with code.block(f"for (int h = {self.width or self.held} / 2; h; h >>= 1)"):
                with code.block("for (int k = 0; k < h; ++k)"):
                    low = self._variables(names, "k")
                    self._assign(low, self._combined(low, self._variables(names, "k + h")))
        return self.team.fold(self._variables(names, "0"), self._combined)

    def centre(self, total: Val, count: str) -> Val:
        """The mean of a chunk of ``count`` elements."""
        return self.body.builder.div(total, self.body.builder.convert(Val(f"(long long)({count})", I64), self.dtype))

    def moments_words(self, centre: Val, spread: Val) -> list[Val]:
        b = self.body.builder
        return [b.convert(centre, F64), b.convert(spread, F64)]

    # All chunks.

    def open_total(self) -> None:
        code = self.body.code
        if self.kind == "moments":
            self.sums = [code.fresh("mean"), code.fresh("spread")]
            for name in self.sums:
                code.do(f"double {name} = 0.0;")
            return
        self.sums = self._declare("sum")

    def push(self, c: str, chunk_words: Sequence[Val]) -> None:
        """Add the words of chunk ``c``; chunks come in order."""
        code = self.body.code
        if self.kind == "moments":
            self._push_moments(c, chunk_words)
            return
        if not self.is_tree:
            held = self._variables(self.sums, "0")
            self._assign(held, self._combined(held, chunk_words))
            return
        lane = code.let("unsigned", f"(unsigned)({c} % {self.lanes})", "lane")
        with code.block(f"if ({lane} % {self.team.size} == {self.team.lane})"):
            held = self._variables(self.sums, f"{lane} / {self.team.size}")
            self._assign(held, self._combined(held, chunk_words))

    def _push_moments(self, c: str, chunk_words: Sequence[Val]) -> None:
        """Chan, Golub and LeVeque (1979), eq. 2.1, in float64."""
        code, b = self.body.code, self.body.builder
        mean, spread = (Val(name, F64) for name in self.sums)
        before = code.let("long long", f"(long long){c} * {self.chunk}")
        length = self.body.at(LENGTH)
        here = code.let("long long", f"{length} - {before} < {self.chunk} ? {length} - {before} : {self.chunk}")
        n_a, n_b, n = (b.convert(Val(x, I64), F64) for x in (before, here, f"({before} + {here})"))
        delta = b.sub(chunk_words[0], mean)
        moved = b.add(mean, b.div(b.mul(delta, n_b), n))
        between = b.div(b.mul(b.mul(b.mul(delta, delta), n_a), n_b), n)
        total = b.add(b.add(spread, chunk_words[1]), between)
        is_first = b.eq(Val(before, I64), b.const(0, I64))
        first = [b.select(is_first, x, y) for x, y in zip(chunk_words, (moved, total), strict=True)]
        self._assign([mean, spread], first)

    def total(self) -> Value:
        """The result, from all that was pushed."""
        if self.kind == "moments":
            return self.result([Val(name, F64) for name in self.sums])
        return self.result(self._folded(self.sums) if self.is_tree else self._variables(self.sums, "0"))

    def result(self, final: Sequence[Val]) -> Value:
        """The value of the node from the words of the whole row."""
        b = self.body.builder
        if self.kind in ("argmax", "argmin"):
            return final[1]
        if self.kind == "moments":
            final = [b.convert(final[1], self.dtype)]
        return whole(self.dtype, final)

    # Words in memory, between the kernels of the split schedule.

    def from_memory(self, base: str, count: str) -> Value:
        """The result from the words of ``count`` chunks: word w of chunk c is at ``base + 8 * (w * count + c)``."""
        code = self.body.code
        if self.kind == "moments":
            self.open_total()
            with code.block(f"for (long long c = 0; c < {count}; ++c)"):
                self.push("c", self._read(base, count, "c"))
            return self.total()
        if not self.is_tree:
            self.open()
            with code.block(f"for (long long c = {self.team.lane}; c < {count}; c += {self.team.size})"):
                held = self._variables(self.state, "0")
                self._assign(held, self._combined(held, self._read(base, count, "c")))
            return self.result(self.close())
        return self.result(self._tree(base, count))

    def _read(self, base: str, count: str, c: str) -> list[Val]:
        return [
            Val(self.body.code.let(c_type(d), f"*(const {c_type(d)}*)({base} + 8 * ({w} * {count} + {c}))"), d)
            for w, d in enumerate(self.word_dtypes)
        ]

    def _tree(self, base: str, count: str) -> list[Val]:
        """Level after level, in place: a level writes before the place that it reads next."""
        code, team, one = self.body.code, self.team, Reduction(self.body, self.team, self.r, self.chunk)
        result, left = [code.fresh("result") for _ in self.word_dtypes], code.fresh("left")
        for d, name in zip(self.word_dtypes, result, strict=True):
            code.do(f"{c_type(d)} {name} = 0;")
        code.do(f"long long {left} = {count};")
        with code.block("while (true)"):
            groups = code.let("long long", f"({left} + {self.chunk - 1}) / {self.chunk}", "groups")
            with code.block(f"for (long long g = 0; g < {groups}; ++g)"):
                one.open()
                first = code.let("long long", f"g * {self.chunk}", "first")
                stop = code.let("long long", f"{first} + {self.chunk} < {left} ? {first} + {self.chunk} : {left}")
                with code.block(f"for (long long i = {first} + {team.lane}; i < {stop}; i += {team.size})"):
                    lane = f"(int)((i - {first}) % {self.lanes}) / {team.size}"
                    one.step(whole(self.dtype, self._read(base, count, "i")), "i", lane)
                for w, value in enumerate(one.close()):
                    # NVRTC 13.0 compiles for ever where every turn sets the result.
                    code.do(f"if ({groups} <= 1) {result[w]} = {value.text};")
                    place = f"*({c_type(value.dtype)}*)({base} + 8 * ({w} * {count} + g))"
                    code.do(f"else if ({team.lane} == 0 && live) {place} = {value.text};")
            code.do("__syncwarp();")
            code.do(f"if ({groups} <= 1) break;")
            code.do(f"{left} = {groups};")
        return [Val(name, d) for name, d in zip(result, self.word_dtypes, strict=True)]
