"""Object files made callable without LLVM: the bytes of an x86-64 ELF object in, addresses of its functions out.

A process that finds all of its kernels in the disk cache needs no compiler, whose library alone takes as long to load
as a hundred kernels. LLVM's large code model, which it uses for code that is loaded at once, leaves one kind of
relocation: the absolute address, 64 bits (System V ABI, AMD64 supplement, section 4.4). Objects of any other form are
LLVM's to load.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Mapping

from tenferro.tracer.records import dataclass

_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _ZEROS, _RELOCATIONS_WITHOUT_ADDENDS = 2, 4, 8, 9
_WRITTEN, _LOADED = 1, 2  # flags of sections
_UNWIND_TABLES = ".eh_frame"  # no exception passes through kernels
_ABSOLUTE = 1
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
    }  # what is read only stands first: it and what is written lie on different pages
    places, written_at, size = _laid_out(loaded)
    # Private: a forked child has variables of its own.
    memory = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for k, section in loaded.items():
        if section.kind != _ZEROS:
            memory[places[k] : places[k] + section.size] = data[section.at : section.at + section.size]
    linked = _linked(data, sections, loaded, memory, {k: base + p for k, p in places.items()}, base, outside)
    if linked is None or (written_at and ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(base), ctypes.c_size_t(written_at), _READ_AND_RUN
    )):  # fmt: skip
        memory.close()
        return None
    return LoadedObject(memory, linked)


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


def _laid_out(loaded: Mapping[int, _Section]) -> tuple[dict[int, int], int, int]:
    """Where each section stands, where the pages begin that are written, and the size of all."""
    places: dict[int, int] = {}
    at = written_at = 0
    for written in (False, True):
        at = written_at = at if not written else -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
        for k, section in loaded.items():
            if bool(section.flags & _WRITTEN) == written:
                at = -(-at // max(1, section.align)) * max(1, section.align)
                places[k] = at
                at += section.size
    return places, written_at, at


def _linked(
    data: bytes,
    sections: list[_Section],
    loaded: Mapping[int, _Section],
    memory: mmap.mmap,
    addresses: Mapping[int, int],
    base: int,
    outside: Mapping[str, int],
) -> dict[str, int] | None:
    """Write the addresses into the sections; what others may call is returned, by name."""
    tables: dict[int, list[int | None]] = {}
    exported: dict[str, int] = {}
    for k, section in enumerate(sections):
        if section.kind == _SYMBOLS:
            tables[k] = _symbols(data, section, sections[section.link].at, addresses, outside, exported)
    for section in sections:
        if section.kind != _RELOCATIONS or section.target not in loaded:
            continue
        start = addresses[section.target] - base
        for offset, information, addend in struct.iter_unpack("<QQq", data[section.at : section.at + section.size]):
            value = tables[section.link][information >> 32]
            if information & 0xFFFFFFFF != _ABSOLUTE or value is None:
                return None
            struct.pack_into("<Q", memory, start + offset, (value + addend) % 2**64)
    return exported


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
