"""Object files made callable without LLVM: the bytes of an x86-64 ELF object in, addresses of its functions out.

A process that finds all of its kernels in the disk cache needs no compiler, whose library alone takes as long to load
as a hundred kernels. Position-independent code of the small model leaves four kinds of relocation (System V ABI, AMD64
supplement, section 4.4): absolute addresses, distances, distances of calls, and distances to a place that holds an
address. What lies outside is further away than a distance can say: a bridge inside the object leads there. Objects of
any other form are LLVM's to load.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator, Mapping

from tenferro.tracer.records import dataclass

_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _ZEROS, _RELOCATIONS_WITHOUT_ADDENDS = 2, 4, 8, 9
_WRITTEN, _LOADED = 1, 2  # flags of sections
_UNWIND_TABLES = ".eh_frame"  # no exception passes through kernels
_ABSOLUTE, _DISTANCE, _CALL, _HELD = 1, 2, 4, (9, 41, 42)
_BRIDGE = 16  # bytes: a jump to what the second half holds
_JUMP = b"\xff\x25\x02\0\0\0\0\0"
_UNDEFINED, _NUMBER = 0, 0xFFF1  # in place of a symbol's section
_LOCAL, _FUNCTION_OR_DATA = 0, (0, 1, 2)
_READ_AND_RUN = 5


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    at: int
    size: int
    link: int
    target: int
    align: int
    entry: int


class LoadedObject:
    """Code in memory of its own; it lives as long as this object."""

    def __init__(self, memory: mmap.mmap, symbols: dict[str, int]) -> None:
        self._memory = memory
        self._symbols = symbols

    def address(self, name: str) -> int:
        """Where a function or global stands; 0 where the object has none of the name."""
        return self._symbols.get(name, 0)

    def close(self) -> None:
        """Unload the code."""
        self._memory.close()


def load(data: bytes, outside: Mapping[str, int]) -> LoadedObject | None:
    """The object, its undefined symbols at the addresses of ``outside``; None for a form that is not known here."""
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (_RELOCATABLE, _X86_64):
        return None
    sections = _sections(data)
    if any(s.kind == _RELOCATIONS_WITHOUT_ADDENDS for s in sections):
        return None
    loaded = {
        k: s for k, s in enumerate(sections) if s.flags & _LOADED and s.size and s.name != _UNWIND_TABLES
    }  # what is read only and what is written lie on different pages
    bridges = _bridges(data, sections, loaded)
    places, bridges_at, written_at, size = _laid_out(loaded, _BRIDGE * len(bridges))
    # Private: a forked child has variables of its own.
    memory = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for k, section in loaded.items():
        if section.kind != _ZEROS:
            memory[places[k] : places[k] + section.size] = data[section.at : section.at + section.size]
    room = {symbol: base + bridges_at + _BRIDGE * k for k, symbol in enumerate(bridges)}
    linker = _Linker(data, sections, memory, base, {k: base + p for k, p in places.items()}, room)
    is_linked = linker.link(outside)
    if not is_linked or (written_at and ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(base), ctypes.c_size_t(written_at), _READ_AND_RUN
    )):  # fmt: skip
        memory.close()
        return None
    return LoadedObject(memory, linker.exported)


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, start + k * size) for k in range(count)]
    names_at = rows[names][4]
    return [
        _Section(_text(data, names_at + name), kind, flags, at, length, link, target, align, entry)
        for name, kind, flags, _, at, length, link, target, align, entry in rows
    ]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _relocations(
    data: bytes, sections: list[_Section], loaded: Mapping[int, _Section]
) -> Iterator[tuple[int, int, tuple[int, int], int, int]]:
    """Of what is loaded: the section and the offset in it, the symbol (its table and its number), kind and addend."""
    for section in sections:
        if section.kind == _RELOCATIONS and section.target in loaded:
            rows = struct.iter_unpack("<QQq", data[section.at : section.at + section.size])
            for offset, information, addend in rows:
                symbol = section.link, information >> 32
                yield section.target, offset, symbol, information & 0xFFFFFFFF, addend


def _bridges(data: bytes, sections: list[_Section], loaded: Mapping[int, _Section]) -> dict[tuple[int, int], None]:
    """The symbols that may need one."""
    wanted = (_CALL, *_HELD)
    return {symbol: None for _, _, symbol, kind, _ in _relocations(data, sections, loaded) if kind in wanted}


def _laid_out(loaded: Mapping[int, _Section], between: int) -> tuple[dict[int, int], int, int, int]:
    """Where each section stands, where ``between`` bytes behind what is read only do, where the pages begin that are
    written, and the size of all. Code stands first, at the start of a page: its loops lie in lines of the cache as LLVM
    has aligned them."""
    places: dict[int, int] = {}
    at = 0
    for k, section in _of_kind(loaded, False):
        at = places[k] = _aligned(at, section.align)
        at += section.size
    bridges_at = _aligned(at, _BRIDGE)
    written_at = at = _aligned(bridges_at + between, mmap.PAGESIZE)
    for k, section in _of_kind(loaded, True):
        at = places[k] = _aligned(at, section.align)
        at += section.size
    return places, bridges_at, written_at, at


def _of_kind(loaded: Mapping[int, _Section], is_written: bool) -> list[tuple[int, _Section]]:
    return [(k, s) for k, s in loaded.items() if bool(s.flags & _WRITTEN) == is_written]


def _aligned(at: int, align: int) -> int:
    return -(-at // max(1, align)) * max(1, align)


class _Linker:
    """Writes addresses and distances into the sections, which lie in ``memory`` from ``base`` on at ``places``."""

    def __init__(
        self, data: bytes, sections: list[_Section], memory: mmap.mmap, base: int, places: Mapping[int, int],
        bridges: Mapping[tuple[int, int], int],
    ) -> None:  # fmt: skip
        self.data, self.sections, self.memory, self.base = data, sections, memory, base
        self.places, self.bridges = places, bridges
        self.exported: dict[str, int] = {}  # what others may call, by name

    def link(self, outside: Mapping[str, int]) -> bool:
        """Whether all could be written."""
        tables = {
            k: _symbols(self.data, s, self.sections[s.link].at, self.places, outside, self.exported)
            for k, s in enumerate(self.sections)
            if s.kind == _SYMBOLS
        }
        loaded = {k: self.sections[k] for k in self.places}
        for (table, number), bridge in self.bridges.items():
            self._write(bridge, _JUMP + struct.pack("<Q", tables[table][number] or 0))
        for section, offset, symbol, kind, addend in _relocations(self.data, self.sections, loaded):
            value = tables[symbol[0]][symbol[1]]
            if value is None or not self._relocate(self.places[section] + offset, symbol, kind, value, addend):
                return False
        return True

    def _relocate(self, place: int, symbol: tuple[int, int], kind: int, value: int, addend: int) -> bool:
        if kind == _ABSOLUTE:
            self._write(place, struct.pack("<Q", (value + addend) % 2**64))
            return True
        if kind in _HELD:
            distance = self.bridges[symbol] + _BRIDGE // 2 + addend - place
        elif kind in (_DISTANCE, _CALL):
            distance = value + addend - place
            if kind == _CALL and not _is_near(distance):
                distance = self.bridges[symbol] + addend - place
        else:
            return False
        if not _is_near(distance):
            return False
        self._write(place, struct.pack("<i", distance))
        return True

    def _write(self, place: int, content: bytes) -> None:
        start = place - self.base
        self.memory[start : start + len(content)] = content


def _is_near(distance: int) -> bool:
    return -(2**31) <= distance < 2**31


def _symbols(
    data: bytes,
    section: _Section,
    names_at: int,
    addresses: Mapping[int, int],
    outside: Mapping[str, int],
    exported: dict[str, int],
) -> list[int | None]:
    """The address of each symbol, None where it has none; those that others may use go to ``exported``."""
    found: list[int | None] = []
    for name, information, _, home, value, _ in struct.iter_unpack(
        "<IBBHQQ", data[section.at : section.at + section.size]
    ):
        if home == _UNDEFINED:
            found.append(outside.get(_text(data, names_at + name)) if name else None)
        elif home == _NUMBER:
            found.append(value)
        else:
            found.append(addresses[home] + value if home in addresses else None)
            if name and found[-1] is not None and information >> 4 != _LOCAL and information & 15 in _FUNCTION_OR_DATA:
                exported[_text(data, names_at + name)] = addresses[home] + value
    return found
