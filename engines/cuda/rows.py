"""Kernels of regions with reductions: teams of threads on rows, in passes.

In: a Region and a CudaVariant of any schedule but *all*. Out: the statements of these entries:

``rows``      every row from beginning to end, by a thread, a team, or the teams of a block.
``sweep{p}``  pass p over chunks of rows, a team each; words of reductions go to ``PARTS``.
``close{p}``  combine pass p's words, row by row; results of reductions go to ``CELLS``, for the sweeps that follow.

The passes are those of ``tenferro.engines.cpu.phases``. Values of the outer level are computed by every thread that
needs them; only thread 0 of a team writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tenferro.engines.cpu.elements import component
from tenferro.engines.cpu.phases import Pass, arguments, chunk_length, cost, schedule
from tenferro.engines.cuda import elements
from tenferro.engines.cuda.body import Body, Spot
from tenferro.engines.cuda.builder import Val, c_type
from tenferro.engines.cuda.elements import POINTER, Value
from tenferro.engines.cuda.params import CELLS, ITEMS, LENGTH, PARTS, CudaVariant
from tenferro.engines.cuda.reduce import Reduction, parts_of, words
from tenferro.engines.cuda.teams import Team, team_size
from tenferro.lowering.region import Apply, Load, Reduce, Region, Uniform
from tenferro.lowering.tree import CHUNK_STEPS
from tenferro.tracer.op import Pointwise
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import Complex

STORE_CHUNK = 4096
"""Elements of a chunk of a pass without reductions in the split schedule."""
UNROLLED_COST = 48
"""Native operations of a pass up to which its loop is unrolled, so that several loads are on their way at a time."""
THREADS = 256


def max_threads(region: Region, variant: CudaVariant) -> int:
    """Threads of a block at most; the compiler divides the registers by it."""
    match variant.schedule:
        case "block":
            return 1024
        case "column" | "split column":
            return 32 * team_size(region, variant.schedule)
        case _:
            return THREADS


def chunk_of(region: Region, one: Pass) -> int:
    """Elements of a chunk of a pass."""
    return chunk_length(region, one.reduces[0]) if one.reduces else STORE_CHUNK


def part_words(region: Region, one: Pass) -> int:
    """Words that a chunk of a pass leaves in ``PARTS``."""
    return sum(_words(region, r) for r in one.reduces)


def cell_words(region: Region) -> int:
    """Words of a row in ``CELLS``: two for each reduction."""
    return 2 * sum(isinstance(n, Reduce) for n in region.nodes)


def _words(region: Region, r: int) -> int:
    node = region.nodes[r]
    assert isinstance(node, Reduce)
    return words(node.kind, region.nodes[node.arg].dtype)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Elements [first, stop) of the row; ``stop`` is ``first`` for threads that are not live. ``whole_stop`` is the
    same for all threads."""

    first: str
    stop: str
    whole_stop: str


class RowKernel:
    """Writes one entry into ``body``."""

    def __init__(self, body: Body) -> None:
        self.body, self.region, self.code = body, body.region, body.code
        self.phases = schedule(body.region)
        self.outer_level = body.region.outer()
        self.values: dict[int, Value] = {}
        self.schedule = body.variant.schedule
        self.team = Team(body, team_size(self.region, self.schedule), False)
        self.spot = Spot([], [], "0", [], "0")

    @staticmethod
    def entries(region: Region, variant: CudaVariant) -> dict[str, Callable[[RowKernel], None]]:
        """Entry → what writes it, in the order in which they run."""
        if not variant.schedule.startswith("split"):
            return {"rows": RowKernel.rows}
        found: dict[str, Callable[[RowKernel], None]] = {}
        for p, one in enumerate(schedule(region).passes):
            found[f"sweep{p}"] = partial(RowKernel.sweep, p=p)
            if one.reduces:
                found[f"close{p}"] = partial(RowKernel.close, p=p)
        return found

    # Entries.

    def rows(self) -> None:
        self.team.is_column = self.schedule == "column"
        if self.schedule == "block":
            self.team.count = ""  # known when the team is located
        self._start(split=False)
        for one in self.phases.passes:
            self._whole_pass(one)
        self._outer_stores()

    def sweep(self, p: int) -> None:
        self.team.is_column = self.schedule == "split column"
        self._start(split=True)
        self._recall(p)
        one = self.phases.passes[p]
        chunk = chunk_of(self.region, one)
        first = self.code.let(self.body.index, f"chunk * {chunk}", "first")
        stretch = self._stretch(first, chunk)
        if not one.reduces:
            self._store_pass(one, stretch)
            return
        found = self._chunk(one, stretch)
        count = self._count(chunk)
        base = self._parts(one, count)
        with self.code.block(f"if ({self.team.lane} == 0 && live)"):
            w = 0
            for r in one.reduces:
                for v in found[r]:
                    self.code.do(f"*({c_type(v.dtype)}*)({base} + 8 * ({w} * {count} + chunk)) = {v.text};")
                    w += 1

    def close(self, p: int) -> None:
        self._start(split=False)
        self._recall(p)
        one = self.phases.passes[p]
        chunk = chunk_of(self.region, one)
        count = self._count(chunk)
        base = self._parts(one, count)
        for r in one.reduces:
            self.values[r] = Reduction(self.body, self.team, r, chunk).from_memory(base, count)
            base = self.code.let(POINTER, f"{base} + 8 * {_words(self.region, r)} * {count}", "base")
            with self.code.block(f"if ({self.team.lane} == 0 && live)"):
                for k, v in enumerate(parts_of(self.values[r])):
                    self.code.do(f"*({c_type(v.dtype)}*)({self._cell(r)} + {8 * k}) = {v.text};")
        last = max(q for q, other in enumerate(self.phases.passes) if other.reduces)
        if p == last:
            self._outer_nodes(one.outer)
            self._outer_stores()

    # Where a thread stands.

    def _start(self, split: bool) -> None:
        if self.team.is_column or self.schedule == "block":
            self.code.do("extern __shared__ __align__(16) unsigned char tn_shared[];")
        self.team.locate(split)
        outer = self.body.outer_indices("row")
        bases = self.body.bases(outer)
        number = self.code.let("long long", f"(long long)row * {self.body.at(LENGTH)}", "number")
        rank = self.body.variant.loops.row_rank
        self.spot = Spot(outer, ["0"] * rank, "0", bases, number, "live")
        self.length = self.code.let(self.body.index, f"({self.body.index}){self.body.at(LENGTH)}", "length")
        self._outer_nodes(self.phases.prologue)

    def _count(self, chunk: int) -> str:
        """Chunks of a row; a row without elements has one, which is empty."""
        index = self.body.index
        return self.code.let(index, f"{self.length} ? ({self.length} + {chunk - 1}) / {chunk} : 1", "count")

    def _stretch(self, first: str, chunk: int) -> Stretch:
        code, index = self.code, self.body.index
        left = f"{self.length} - {first}"
        stop = code.let(index, f"{left} < {chunk} ? {self.length} : {first} + {chunk}", "stop")
        return Stretch(first, code.let(index, f"live ? {stop} : {first}", "stop"), stop)

    def _parts(self, one: Pass, count: str) -> str:
        per_row = part_words(self.region, one)
        start = f"tn_global({self.body.at(PARTS)})"
        return self.code.let(POINTER, f"{start} + 8 * ((long long)row * {per_row} * {count})", "base")

    def _cell(self, r: int) -> str:
        number = sum(isinstance(n, Reduce) for n in self.region.nodes[:r])
        return f"tn_global({self.body.at(CELLS)}) + 8 * ((long long)row * {cell_words(self.region)} + {2 * number})"

    # The outer level.

    def _outer_nodes(self, nodes: Sequence[int]) -> None:
        for k in nodes:
            if k not in self.values:
                for a in arguments(self.region.nodes[k]):
                    self._known(a)
                self.values[k] = self.body.node(k, self.values, self.spot)

    def _known(self, k: int) -> Value:
        """A value that is the same all along the row."""
        if k not in self.values:
            node = self.region.nodes[k]
            assert isinstance(node, Uniform)
            self.values[k] = self.body.uniform(k, node)
        return self.values[k]

    def _recall(self, p: int) -> None:
        """What the passes before p have found."""
        for one in self.phases.passes[:p]:
            for r in one.reduces:
                dtype = self.region.nodes[r].dtype
                part = component(dtype)
                found = []
                for k in range(elements.parts(dtype)):
                    text = f"*(const {c_type(part)}*)({self._cell(r)} + {8 * k})"
                    found.append(Val(self.code.let(c_type(part), text), part))
                self.values[r] = Complex(*found) if len(found) == 2 else found[0]
            self._outer_nodes(one.outer)

    def _outer_stores(self) -> None:
        spot = replace(self.spot, active="")
        guard = f"{self.team.lane} == 0 && {self.team.number} == 0 && live"
        with self.code.block(f"if ({guard})"):
            for s in self.phases.outer_stores:
                self.body.store(s, self._known(self.region.stores[s].node), spot)

    # Passes.

    def _whole_pass(self, one: Pass) -> None:
        code, index, team = self.code, self.body.index, self.team
        if not one.reduces:
            stop = code.let(index, f"live ? {self.length} : 0", "stop")
            self._store_pass(one, Stretch("0", stop, self.length))
            return
        chunk = chunk_of(self.region, one)
        reductions = [Reduction(self.body, team, r, chunk) for r in one.reduces]
        if self.schedule == "thread":
            found = self._chunk(one, self._stretch("0", chunk))
            for r in reductions:
                self.values[r.r] = r.result(found[r.r])
            self._outer_nodes(one.outer)
            return
        count = self._count(chunk)
        for r in reductions:
            r.open_total()
        with code.block(f"for ({index} round = 0; round < {count}; round += {team.count})"):
            c = code.let(index, f"round + {team.number}", "c") if not team.is_alone else "round"
            place = code.let(index, f"{c} * {chunk}", "first")
            first = code.let(index, f"{place} < {self.length} ? {place} : {self.length}", "first")
            found = self._chunk(one, self._stretch(first, chunk))
            if team.is_alone:
                for r in reductions:
                    r.push("round", found[r.r])
            else:
                self._exchange(reductions, found, count)
        for r in reductions:
            self.values[r.r] = r.total()
        self._outer_nodes(one.outer)

    def _exchange(self, reductions: Sequence[Reduction], found: Mapping[int, Sequence[Val]], count: str) -> None:
        """Every team gets the chunks of all teams of the block."""
        code, index, team = self.code, self.body.index, self.team
        for slot, r in enumerate(reductions):
            team.share(slot, found[r.r])
        code.do("__syncthreads();")
        with code.block(f"for ({index} w = 0; w < {team.count} && round + w < {count}; ++w)"):
            for slot, r in enumerate(reductions):
                r.push("(round + w)", team.shared(slot, found[r.r], "w"))
        code.do("__syncthreads();")

    def _chunk(self, one: Pass, stretch: Stretch) -> dict[int, list[Val]]:
        """The words of a chunk, per reduction."""
        code = self.code
        reductions = self._reductions(one, stretch)
        fixed = self._fixed(one)
        for r in reductions:
            r.open()

        def step(values: Mapping[int, Value], spot: Spot, k: str) -> None:
            self._write(one, values, spot)
            for r in reductions:
                r.step(values[r.node.arg], spot.element, k)

        self._sweep(one, one.nodes, fixed, stretch, reductions, step)
        found = {r.r: r.close() for r in reductions}
        moments = [r for r in reductions if r.kind == "moments"]
        if not moments:
            return found
        count = f"{stretch.whole_stop} - {stretch.first}"
        centres = {r.r: r.centre(found[r.r][0], count) for r in moments}
        for r in moments:
            r.open()

        def deviate(values: Mapping[int, Value], spot: Spot, k: str) -> None:
            for r in moments:
                r.step(values[r.node.arg], spot.element, k, centres[r.r])

        code.do("// squared deviations from the mean")
        self._sweep(one, self._needed_for(one, moments), fixed, stretch, moments, deviate)
        for r in moments:
            found[r.r] = r.moments_words(centres[r.r], r.close()[0])
        return found

    def _reductions(self, one: Pass, stretch: Stretch) -> list[Reduction]:
        chunk, width = chunk_of(self.region, one), ""
        if self.schedule == "thread":
            # No lane holds −0.0, so that x + 0.0 is x, and x times 1 is: lanes that no element reaches can be left out.
            width = self.code.fresh("width")
            self.code.do(f"int {width} = {chunk // CHUNK_STEPS};")
            self.code.do(f"while ({width} > 1 && {width} / 2 >= {self.length}) {width} /= 2;")
        return [Reduction(self.body, self.team, r, chunk, width) for r in one.reduces]

    def _store_pass(self, one: Pass, stretch: Stretch) -> None:
        fixed = self._fixed(one)
        self._sweep(one, one.nodes, fixed, stretch, [], lambda values, spot, k: self._write(one, values, spot))

    def _write(self, one: Pass, values: Mapping[int, Value], spot: Spot) -> None:
        for s in one.stores:
            self.body.store(s, values[self.region.stores[s].node], spot)
        for k, s in one.saves.items():
            self.body.store(s, values[k], spot)

    def _sweep(
        self, one: Pass, nodes: Sequence[int], fixed: Mapping[int, Value], stretch: Stretch,
        reductions: Sequence[Reduction], step: Callable[[Mapping[int, Value], Spot, str], None],
    ) -> None:  # fmt: skip
        """The loop of a thread over its elements of a stretch."""
        code, index, team = self.code, self.body.index, self.team
        held = max((r.held for r in reductions), default=1)
        # Lanes of a team lie side by side in the row; without reductions so do the teams of a block.
        alone = reductions or team.is_alone
        start = team.lane if alone else f"{team.number} * {team.size} + {team.lane}"
        stride = str(team.size * held) if alone else f"{team.count} * {team.size}"

        def element(e: str, k: str) -> None:
            number = f"{self.spot.number} + {e}"
            spot = replace(self.spot, row=self.body.row_indices(e), element=e, number=number, active="")
            step(self._element(one, nodes, fixed, spot), spot, k)

        if held == 1 and sum(cost(self.region.nodes[k]) for k in nodes) <= UNROLLED_COST:
            code.do("#pragma unroll 4")
        e = code.fresh("e")
        with code.block(f"for ({index} {e} = {stretch.first} + {start}; {e} < {stretch.stop}; {e} += {stride})"):
            if held == 1:
                element(e, "0")
                return
            with code.block(f"for (int k = 0; k < {held}; ++k)"):
                inner = code.let(index, f"{e} + k * {team.size}", "e")
                code.do(f"if ({inner} >= {stretch.stop}) break;")
                element(inner, "k")

    def _element(self, one: Pass, nodes: Sequence[int], fixed: Mapping[int, Value], spot: Spot) -> dict[int, Value]:
        values = dict(fixed)
        for k in nodes:
            if k in values:
                continue
            values[k] = self.body.load_back(one.loads[k], spot) if k in one.loads else self.body.node(k, values, spot)
        return values

    def _fixed(self, one: Pass) -> dict[int, Value]:
        """Values of a pass that are the same all along the row, computed before its loop."""
        wanted = {*one.nodes, *(self.region.stores[s].node for s in one.stores)}
        for k in (*one.nodes, *one.reduces):
            wanted |= set(arguments(self.region.nodes[k]))
        found: dict[int, Value] = {}
        for k in sorted(wanted):
            node = self.region.nodes[k]
            if self.outer_level[k] or isinstance(node, Uniform):
                found[k] = self._known(k)
            elif isinstance(node, Load) and not node.windows and self._is_uniform(k):
                found[k] = self.body.node(k, found, self.spot)
            elif isinstance(node, Apply) and k not in one.loads and self._stands_still(node, found):
                found[k] = self.body.node(k, found, self.spot)
        return found

    def _is_uniform(self, k: int) -> bool:
        return self.body.variant.loops.kinds[self.body.keys.index(("node", k))] == "uniform"

    def _stands_still(self, node: Apply, found: Mapping[int, Value]) -> bool:
        is_checked = isinstance(node.op.form, Pointwise) and node.op.form.check is not None
        return not is_checked and all(a in found for a in node.args)

    def _needed_for(self, one: Pass, reductions: Sequence[Reduction]) -> list[int]:
        stack = [r.node.arg for r in reductions]
        found: set[int] = set()
        while stack:
            k = stack.pop()
            if k in found or k not in one.nodes:
                continue
            found.add(k)
            if k not in one.loads:
                stack += arguments(self.region.nodes[k])
        return sorted(found)


__all__ = ["ITEMS", "RowKernel", "cell_words", "chunk_of", "max_threads", "part_words"]
