"""Teams: the threads that share a row, one per lane of the reduction tree or fewer.

In: a schedule and what a region reduces. Out: where a thread stands (row, lane, chunk) and how values pass between the
lanes of a team. A team of one thread holds all lanes itself; teams of 16 or 32 lie side by side in a warp and use
shuffles, or one lane per warp (*column*) and use shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenferro.engines.cpu.phases import chunk_length
from tenferro.engines.cuda.body import Body
from tenferro.engines.cuda.builder import Val, c_type
from tenferro.engines.cuda.params import ITEMS, ROWS, Schedule
from tenferro.lowering.region import Reduce, Region
from tenferro.lowering.tree import CHUNK_STEPS
from tenferro.tracer.records import dataclass

SHARED_WORD = 8
MAX_TEAMS = 32
"""Teams of a block on one row: a block has at most 1024 threads."""
FULL = "0xffffffffu"


def team_size(region: Region, schedule: Schedule) -> int:
    """Threads of a team: as many as the shortest tree has lanes, so that each thread has one or two."""
    if schedule == "thread":
        return 1
    lanes = [chunk_length(region, k) // CHUNK_STEPS for k, n in enumerate(region.nodes) if isinstance(n, Reduce)]
    return min(lanes)


@dataclass
class Team:
    """The team of one kernel function. ``lane`` and ``number``: this thread's lane and this team's number in the block,
    of ``count`` teams on the same row."""

    body: Body
    size: int
    is_column: bool
    lane: str = "0"
    number: str = "0"
    count: str = "1"

    @property
    def is_alone(self) -> bool:
        return self.count == "1"

    # Where the threads stand. Each leaves ``row`` and ``live``, and for chunks ``chunk``.

    def locate(self, split: bool) -> None:
        body, code, index = self.body, self.body.code, self.body.index
        self._lanes()
        rows = f"({index}){body.at(ROWS)}"
        if self.is_column:
            self._locate_column(split, rows)
            return
        if not self.is_alone:
            code.do(f"const {index} row = blockIdx.x;")
            code.do("const bool live = true;")
            return
        thread = f"(({index})blockIdx.x * blockDim.x + threadIdx.x)"
        item = code.let(index, f"{thread} / {self.size}" if self.size > 1 else thread, "item")
        if split:
            # ITEMS: chunks of a row.
            items = code.let(index, f"({index}){body.at(ITEMS)}", "items")
            code.do(f"const bool live = {item} < {rows} * {items};")
            code.do(f"const {index} row = live ? {item} / {items} : 0;")
            code.do(f"const {index} chunk = live ? {item} - row * {items} : 0;")
            return
        self._row(item, rows)

    def _locate_column(self, split: bool, rows: str) -> None:
        body, code, index = self.body, self.body.code, self.body.index
        block = f"({index})blockIdx.x"
        if split:
            # ITEMS: blocks of neighbouring rows.
            items = code.let(index, f"({index}){body.at(ITEMS)}", "items")
            code.do(f"const {index} chunk = {block} / {items};")
            block = f"({block} - chunk * {items})"
        self._row(f"({block} * blockDim.x + threadIdx.x)", rows)

    def _row(self, item: str, rows: str) -> None:
        code, index = self.body.code, self.body.index
        code.do(f"const bool live = {item} < {rows};")
        # Threads past the end compute an existing row again, since they must take part in the exchange of values.
        code.do(f"const {index} row = live ? {item} : 0;")

    def _lanes(self) -> None:
        code = self.body.code
        if self.is_column:
            self.lane = code.let("unsigned", "threadIdx.y", "lane")
        elif self.size > 1:
            self.lane = code.let("unsigned", f"threadIdx.x % {self.size}", "lane")
        if self.count != "1":
            self.number = code.let("unsigned", f"threadIdx.x / {self.size}", "team")
            self.count = code.let("unsigned", f"blockDim.x / {self.size}", "teams")

    # How values pass.

    def fold(self, state: Sequence[Val], combine: Callable[[Sequence[Val], Sequence[Val]], Sequence[Val]]) -> list[Val]:
        """Halve the team's lanes to one; every thread gets the result. ``state`` are variables."""
        if self.size == 1:
            return list(state)
        return self._fold_shared(state, combine) if self.is_column else self._fold_shuffled(state, combine)

    def _fold_shuffled(
        self, state: Sequence[Val], combine: Callable[[Sequence[Val], Sequence[Val]], Sequence[Val]]
    ) -> list[Val]:
        code = self.body.code
        code.do("#pragma unroll")
        with code.block(f"for (int h = {self.size // 2}; h; h >>= 1)"):
            others = [self._shuffle("__shfl_down_sync", v, "h") for v in state]
            for v, new in zip(state, combine(state, others), strict=True):
                code.do(f"{v.text} = {new.text};")
        return [self._shuffle("__shfl_sync", v, "0") for v in state]

    def _shuffle(self, name: str, v: Val, argument: str) -> Val:
        kind = c_type(v.dtype)
        return Val(self.body.code.let(kind, f"({kind}){name}({FULL}, {v.text}, {argument}, {self.size})"), v.dtype)

    def _fold_shared(
        self, state: Sequence[Val], combine: Callable[[Sequence[Val], Sequence[Val]], Sequence[Val]]
    ) -> list[Val]:
        code = self.body.code
        width, threads = "blockDim.x", f"blockDim.x * {self.size}"
        here = code.let("unsigned", f"{self.lane} * {width} + threadIdx.x", "t")

        def place(q: int, v: Val, t: str) -> str:
            return f"(({c_type(v.dtype)}*)(tn_shared + {q * SHARED_WORD} * {threads}))[{t}]"

        for q, v in enumerate(state):
            code.do(f"{place(q, v, here)} = {v.text};")
        code.do("__syncthreads();")
        with code.block(f"for (int h = {self.size // 2}; h; h >>= 1)"):
            with code.block(f"if ({self.lane} < h)"):
                mine = [Val(code.let(c_type(v.dtype), place(q, v, here)), v.dtype) for q, v in enumerate(state)]
                there = f"{here} + h * {width}"
                others = [Val(code.let(c_type(v.dtype), place(q, v, there)), v.dtype) for q, v in enumerate(state)]
                for q, new in enumerate(combine(mine, others)):
                    code.do(f"{place(q, new, here)} = {new.text};")
            code.do("__syncthreads();")
        found = [Val(code.let(c_type(v.dtype), place(q, v, "threadIdx.x")), v.dtype) for q, v in enumerate(state)]
        code.do("__syncthreads();")
        return found

    def share(self, slot: int, values: Sequence[Val]) -> None:
        """Leave a team's values for the other teams of the block, under the number ``slot``."""
        with self.body.code.block(f"if ({self.lane} == 0)"):
            for q, v in enumerate(values):
                self.body.code.do(f"{self._shared(slot, q, v, self.number)} = {v.text};")

    def shared(self, slot: int, like: Sequence[Val], team: str) -> list[Val]:
        """What ``team`` has left."""
        return [
            Val(self.body.code.let(c_type(v.dtype), self._shared(slot, q, v, team)), v.dtype)
            for q, v in enumerate(like)
        ]

    def _shared(self, slot: int, q: int, v: Val, team: str) -> str:
        offset = (2 * slot + q) * SHARED_WORD * MAX_TEAMS
        return f"(({c_type(v.dtype)}*)(tn_shared + {offset}))[{team}]"
