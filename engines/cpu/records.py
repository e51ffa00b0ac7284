"""Rows by index: a region that stores what it gathers, a record of neighbours for each index.

In: a Region and real layouts. Out: the layout whose rows are records, and LLVM text with the entry ``records``: its
items are indices. An index is computed as a scalar, whatever it comes from; a record is copied by vectors of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenferro.engines.cpu import layout as lay
from tenferro.engines.cpu.body import Body, CodeBuilder, Position
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.layout import Layout, Strided
from tenferro.engines.cpu.params import LENGTH, TILE
from tenferro.engines.cpu.writer import KernelWriter
from tenferro.lowering.region import Gather, Iota, Load, Region, Valid, arguments
from tenferro.tracer.dims import Environment
from tenferro.tracer.records import dataclass

LINE = 64
SHORT_RECORD = 256
"""Bytes up to which a record has a kernel of its own, without a loop over it."""
AHEAD = 6
"""Records from one that is asked for to the one that is copied: indices jump, which a processor's own prefetchers do
not follow. 8192 rows of 1 kB of a table of 32 MB on one core: 680 us without, 230 with."""
LINES_AHEAD = 16
"""Lines of a record that are asked for; the rest is neighbours of these."""
NEAR_BYTES = 1 << 20
"""Tables up to this size are in a near cache sooner than they could be asked for."""


def stored_gather(region: Region) -> int | None:
    """The gather that is all that a region stores."""
    if region.row_axes or len(region.stores) != 1:
        return None
    node = region.stores[0].node
    return node if isinstance(region.nodes[node], Gather) else None


def record_layout(
    region: Region, slots: Mapping[int, Strided], itemsizes: Mapping[int, int], env: Environment
) -> Layout | None:
    """The loops of a region that copies records, which are its rows: neighbours in the array and in the result,
    whatever their index. None for other regions."""
    node = stored_gather(region)
    if node is None:
        return None
    found = lay.layout(region, slots, itemsizes, env, joined=False)
    if len(found.row) != 1 or not found.outer or found.row_length == 1:
        return None
    rank = len(found.outer)
    for n in region.nodes:
        match n:
            case Iota(axis=axis) if found.axis_loops.get(axis, rank) >= rank:
                return None
            case Load(windows=windows) | Valid(windows=windows) if windows:
                return None
            case _:
                pass
    for key, access in zip(found.keys, found.accesses, strict=True):
        is_record = key in (("node", node), ("store", 0))
        if access.row != ((access.itemsize,) if is_record else (0,)):
            return None
    gather = region.nodes[node]
    assert isinstance(gather, Gather)
    indexed = range(gather.axis, gather.axis + gather.index_rank)
    return found if all(found.axis_loops.get(axis, -1) < rank for axis in indexed) else None


def lines_ahead(layout: Layout, itemsize: int, extent: int, stride: int) -> int:
    """How many lines of each record are worth asking for: a processor itself is ahead of copies of one line."""
    record = layout.row_length * itemsize
    return min(LINES_AHEAD, -(-record // LINE)) if record > LINE and extent * abs(stride) > NEAR_BYTES else 0


class RecordReader:
    """Addresses of what gather ``node`` of a kernel reads, in scalar code. Parameters are read where this is made: in a
    loop they would be read again for each record."""

    def __init__(self, writer: KernelWriter, code: Code, node: int) -> None:
        self.code, self.node, self._writer = code, node, writer
        found = writer.region.nodes[node]
        assert isinstance(found, Gather)
        self.gather = found
        self.words = {
            name: code.pointer("%P", k) if name[0] == "p" else code.word("%P", k)
            for name, k in writer.params.positions.items()
            if name[0] in ("o", "p", "po") or name[:2] == ("g", node)
        }
        self.length = code.word("%P", LENGTH)
        indexed = range(found.axis, found.axis + found.index_rank)
        self._index_loops = {writer.axis_loops[axis] for axis in indexed if axis in writer.axis_loops}
        builder = CodeBuilder(writer.module, 1, False, code)
        self.body = Body(writer.region, writer.variant, writer.params, code, builder, "%P", writer.axis_loops)

    @property
    def extent(self) -> str:
        """How many records there are."""
        return self.words["g", self.node, "extent"]

    def index(self, number: str) -> tuple[str, Position]:
        """The place in the array that row ``number`` asks for, counted from the start, and the row's position."""
        code, region = self.code, self._writer.region
        scalars, rest = list[str](), number
        for j in reversed(range(1, self._writer.variant.outer_rank)):
            quotient = code.emit(f"udiv i64 {rest}, {self.words['o', j]}")
            scalars.insert(0, code.sub(rest, code.mul(quotient, self.words["o", j])))
            rest = quotient
        scalars = [rest, *scalars][: self._writer.variant.outer_rank]  # one row alone has no loop around it
        at = Position(scalars, lambda j: "0", None, code.mul(number, self.length))
        values = dict[int, Value]()
        for k in self._needed():
            node, pointers = region.nodes[k], dict[int, str]()
            if isinstance(node, Load | Gather):
                pointers[k] = self.address(self._writer.keys.index(("node", k)), at.scalars)
            values[k] = self.body.node(k, values, pointers, at)
        index = values[self.gather.index].text
        wrapped = code.add(index, self.extent)
        return code.emit(f"select i1 {code.compare('slt', index, 0)}, i64 {wrapped}, i64 {index}"), at

    def _needed(self) -> list[int]:
        """What the index is computed from, in order."""
        found, stack = set(), [self.gather.index]
        while stack:
            k = stack.pop()
            if k not in found:
                found.add(k)
                stack += arguments(self._writer.region.nodes[k])
        return sorted(found)

    def address(self, access: int, scalars: Sequence[str]) -> str:
        """Of an access's first element at these indices."""
        place, is_record = self.words["p", access], self._writer.keys[access] == ("node", self.node)
        for j, index in enumerate(scalars):
            if not (is_record and j in self._index_loops):  # there it does not move
                place = self.code.at(place, self.code.mul(index, self.words["po", access, j]))
        return place

    def record(self, index: str, scalars: Sequence[str]) -> str:
        """The address of a record."""
        base = self.address(self._writer.keys.index(("node", self.node)), scalars)
        return self.code.at(base, self.code.mul(index, self.words["g", self.node, "stride"]))

    def ask_for(self, number: str, lines: str) -> None:
        """Prefetch so many lines of the record that row ``number`` asks for."""
        code = self.code
        index, at = self.index(number)
        place = self.record(index, at.scalars)
        self._writer.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")

        def line(n: str, _: list[str]) -> list[str]:
            code.do(f"call void @llvm.prefetch.p0(ptr {code.at(place, code.mul(n, LINE))}, i32 0, i32 3, i32 1)")
            return []

        code.loop(0, lines, 1, [], line)


@dataclass
class RecordKernel(KernelWriter):
    """Writes ``records``. ``variant.short``: elements of a record, 0 for any number. The word ``TILE`` says how many
    lines of a record are asked for."""

    def text(self) -> str:
        code = Code()
        reader = RecordReader(self, code, self.node)
        size = code.mul(reader.length, self.itemsize(len(self.keys) - 1))
        lines, last = code.word("%P", TILE), code.sub("%end", 1)

        def item(number: str, _: list[str]) -> list[str]:
            ahead = code.minimum(code.add(number, AHEAD), last)
            code.when(code.compare("sgt", lines, 0), lambda: reader.ask_for(ahead, lines))
            index, at = reader.index(number)
            inside = code.compare("ult", index, reader.extent)
            reader.body.out_of_range(code.emit(f"xor i1 {inside}, true"), at, reader.gather.operation)
            store = reader.address(len(self.keys) - 1, at.scalars)
            code.when(inside, lambda: self._copy(code, store, reader.record(index, at.scalars), size))
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        self.module.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        return self.module.text([code.function("define void @records(ptr noalias %P, i64 %begin, i64 %end) nounwind")])

    @property
    def node(self) -> int:
        """The gather."""
        return self.region.stores[0].node

    def _copy(self, code: Code, to: str, source: str, size: str) -> None:
        """A short record by moves of its very size; a long one a line at a time, the last line over the one before."""
        if self.variant.short:
            fixed = self.variant.short * self.itemsize(len(self.keys) - 1)
            code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {fixed}, i1 false)")
            return
        kind = f"<{LINE} x i8>"

        def move(offset: str) -> None:
            value = code.emit(f"load {kind}, ptr {code.at(source, offset)}, align 1")
            code.do(f"store {kind} {value}, ptr {code.at(to, offset)}, align 1")

        def line(offset: str, _: list[str]) -> list[str]:
            move(offset)
            return []

        long, short, done = code.new_label("long"), code.new_label("short"), code.new_label("copied")
        code.branch(code.compare("sge", size, LINE), long, short)
        code.start(long)
        last = code.sub(size, LINE)
        code.loop(0, last, LINE, [], line)
        move(last)
        code.jump(done)
        code.start(short)
        code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")
        code.jump(done)
        code.start(done)
