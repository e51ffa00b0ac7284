"""Records in memory and their fields in vectors: ``xyzxyzxyz…`` ↔ ``xxx…``, ``yyy…``, ``zzz…``, by shuffles.

In: the address of as many records as a vector has lanes. Out: one vector per field; or the other way round. Elements
are integers of their size; no arithmetic is done on them.

There are two ways. *Strides*: vectors of neighbouring elements are split by the prime factors of the record's length,
each field of p gathered from p vectors by p − 1 shuffles. *Squares*: the records themselves are loaded, and squares of
them transposed; a last square that would read past a record's end starts earlier, or, where a record is shorter than a
register, does read past it (``reads_past``), which the caller allows for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.permute import Permutes
from tenferro.engines.cpu.tiles import exchanged
from tenferro.tracer.records import dataclass

SHUFFLE = {"none": (2.5, 1.5), "avx2": (3.0, 1.5), "avx512": (1.0, 1.0)}
"""Instructions of a shuffle of two registers: an arbitrary one, and an exchange of halves, quarters, …"""


@dataclass(frozen=True, slots=True)
class Records:
    """``lanes`` records of ``count`` elements of ``itemsize`` bytes; apart by any stride where they have gaps."""

    count: int
    itemsize: int
    lanes: int
    permutes: Permutes
    has_gaps: bool = False

    @property
    def element(self) -> str:
        return f"i{8 * self.itemsize}"

    @property
    def unit(self) -> str:
        """What is shuffled: small elements are widened, for only some machines have shuffles of bytes."""
        return f"i{8 * max(4, self.itemsize)}"

    @property
    def register(self) -> int:
        """Elements of a register."""
        bits = {"none": 128, "avx2": 256, "avx512": 512}[self.permutes]
        return min(self.lanes, bits // 8 // max(4, self.itemsize))

    @property
    def side(self) -> int:
        """Of the squares that records are loaded in: the last one may read past a record."""
        return min(self.register, 1 << (self.count - 1).bit_length())

    @property
    def side_within(self) -> int:
        """Of the squares that records are stored in, which may not."""
        return min(self.register, 1 << self.count.bit_length() - 1)

    @property
    def loads_squares(self) -> bool:
        """Whether squares take fewer instructions, or are the only way."""
        return self.has_gaps or self._squares_cost(self.side) < self._strides_cost()

    @property
    def stores_squares(self) -> bool:
        return self.has_gaps or self._squares_cost(self.side_within) < self._strides_cost()

    def _strides_cost(self) -> float:
        """Instructions for an element."""
        return SHUFFLE[self.permutes][0] * sum(p - 1 for p in prime_factors(self.count)) / self.register

    def _squares_cost(self, side: int) -> float:
        levels, joins = side.bit_length() - 1, (self.register // side - 1) / self.register
        return SHUFFLE[self.permutes][1] * levels * -(-self.count // side) / self.count + joins

    @property
    def reads_past(self) -> bool:
        """Whether the last record is read past its end, by less than its length."""
        return self.loads_squares and self.count < self.side


def prime_factors(n: int) -> list[int]:
    """In ascending order."""
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found


def load_fields(code: Code, place: str, stride: str | int, r: Records) -> list[str]:
    """Every field of the records at ``place``, which are ``stride`` bytes apart."""
    if r.loads_squares:
        return [_resized(code, x, r.lanes, r.unit, r.element) for x in _load_squares(code, place, stride, r)]
    vectors = [_load(code, code.at(place, i * r.lanes * r.itemsize), r.lanes, r) for i in range(r.count)]
    return [_resized(code, x, r.lanes, r.unit, r.element) for x in fields(code, vectors, r.lanes, r.unit)]


def store_fields(code: Code, place: str, stride: str | int, values: Sequence[str], r: Records) -> None:
    """The inverse of ``load_fields``; nothing is written between records."""
    wide = [_resized(code, x, r.lanes, r.element, r.unit) for x in values]
    if r.stores_squares:
        _store_squares(code, place, stride, wide, r)
        return
    for i, vector in enumerate(records(code, wide, r.lanes, r.unit)):
        _store(code, code.at(place, i * r.lanes * r.itemsize), vector, r.lanes, r)


def _load(code: Code, place: str, lanes: int, r: Records) -> str:
    loaded = code.emit(f"load {elements.vector(lanes, r.element)}, ptr {place}, align {r.itemsize}")
    return _resized(code, loaded, lanes, r.element, r.unit)


def _store(code: Code, place: str, value: str, lanes: int, r: Records) -> None:
    text = _resized(code, value, lanes, r.unit, r.element)
    code.do(f"store {elements.vector(lanes, r.element)} {text}, ptr {place}, align {r.itemsize}")


def _resized(code: Code, text: str, lanes: int, source: str, target: str) -> str:
    if source == target:
        return text
    name = "zext" if int(source[1:]) < int(target[1:]) else "trunc"
    return code.emit(f"{name} {elements.vector(lanes, source)} {text} to {elements.vector(lanes, target)}")


def _starts(count: int, side: int) -> list[int]:
    """First fields of the squares that cover a record."""
    return [min(k, max(0, count - side)) for k in range(0, count, side)]


def _load_squares(code: Code, place: str, stride: str | int, r: Records) -> list[str]:
    side = r.side
    found: list[list[str]] = [[] for _ in range(r.count)]  # field → its pieces, from record to record
    for first in range(0, r.lanes, side):
        lines = [code.at(place, code.mul(stride, first + k)) for k in range(side)]
        for start in _starts(r.count, side):
            square = [_load(code, code.at(line, start * r.itemsize), side, r) for line in lines]
            for k, piece in enumerate(exchanged(code, square, elements.vector(side, r.unit))):
                if start + k < r.count and len(found[start + k]) * side == first:
                    found[start + k].append(piece)
    return [_joined(code, pieces, side, r.unit) for pieces in found]


def _store_squares(code: Code, place: str, stride: str | int, values: Sequence[str], r: Records) -> None:
    side = r.side_within
    for first in range(0, r.lanes, side):
        lines = [code.at(place, code.mul(stride, first + k)) for k in range(side)]
        order = range(first, first + side)
        for start in _starts(r.count, side):
            square = [_shuffled(code, x, "poison", order, r.lanes, r.unit) for x in values[start : start + side]]
            for line, record in zip(lines, exchanged(code, square, elements.vector(side, r.unit)), strict=True):
                _store(code, code.at(line, start * r.itemsize), record, side, r)


def _joined(code: Code, pieces: list[str], lanes: int, element: str) -> str:
    while len(pieces) > 1:
        order = range(2 * lanes)
        pieces = [_shuffled(code, x, y, order, lanes, element) for x, y in zip(pieces[::2], pieces[1::2], strict=True)]
        lanes *= 2
    return pieces[0]


def fields(code: Code, vectors: Sequence[str], lanes: int, element: str) -> list[str]:
    """Field f of record i is element ``i * len(vectors) + f`` of all vectors' elements in turn. Records of p * q fields
    are split in p ways, and each of those in q."""
    count = len(vectors)
    if count == 1:
        return list(vectors)
    p = prime_factors(count)[0]
    found = [""] * count
    for i in range(p):
        order = [i + p * lane for lane in range(lanes)]
        every = [_picked(code, vectors[k : k + p], order, lanes, element) for k in range(0, count, p)]
        for j, field in enumerate(fields(code, every, lanes, element)):
            found[i + p * j] = field
    return found


def records(code: Code, parts: Sequence[str], lanes: int, element: str) -> list[str]:
    """The inverse of ``fields``."""
    count = len(parts)
    if count == 1:
        return list(parts)
    p = prime_factors(count)[0]
    ways = [records(code, parts[i::p], lanes, element) for i in range(p)]
    found = []
    for sources in zip(*ways, strict=True):
        for t in range(p):
            places = [t * lanes + lane for lane in range(lanes)]
            order = [(place % p) * lanes + place // p for place in places]
            found.append(_picked(code, sources, order, lanes, element))
    return found


def _picked(code: Code, vectors: Sequence[str], order: Sequence[int], lanes: int, element: str) -> str:
    """The elements of all vectors in turn that ``order`` names, a vector at a time; what is still to come is left open,
    so that code generation takes only the registers that hold something."""
    found = vectors[0]
    for number, vector in enumerate(vectors[1:], 1):
        mask = []
        for lane, k in enumerate(order):
            source, place = divmod(k, lanes)
            earlier = place if number == 1 else lane
            mask.append(earlier if source < number else lanes + place if source == number else -1)
        found = _shuffled(code, found, vector, mask, lanes, element)
    return found


def _shuffled(code: Code, x: str, y: str, order: Sequence[int], lanes: int, element: str) -> str:
    mask = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in order)
    kind = elements.vector(lanes, element)
    return code.emit(f"shufflevector {kind} {x}, {kind} {y}, <{len(order)} x i32> <{mask}>")
