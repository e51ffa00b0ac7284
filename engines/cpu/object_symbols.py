"""Which symbols an object file needs from elsewhere: the bytes of an ELF64 or Mach-O 64 object in, names out.

llvmlite shows sections, not symbols, and an engine that meets an unknown symbol ends the process; so the table is read
here. Layouts: System V gABI, chapter 4 (ELF64 headers, symbol table); Apple's ``mach-o/loader.h`` and ``nlist.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tenferro.tracer.errors import LoweringError

_ELF_SYMBOL_TABLE = 2
_ELF_LOCAL = 0
_ELF_EXECUTABLE = 4  # a flag of sections
_MACHO_MAGIC = 0xFEEDFACF
_MACHO_SYMBOL_TABLE = 2
_MACHO_DEBUG, _MACHO_TYPE, _MACHO_EXTERNAL = 0xE0, 0x0E, 0x01


def undefined_symbols(data: bytes) -> frozenset[str]:
    """The names that the object refers to and does not define. Raises LoweringError for another object format."""
    if data[:5] == b"\x7fELF\x02":
        return frozenset(_elf_undefined(data))
    if data[:4] == _MACHO_MAGIC.to_bytes(4, "little"):
        return frozenset(_macho_undefined(data))
    raise LoweringError(
        "compile: the object file is neither ELF64 nor Mach-O 64; needed one whose symbols can be checked"
    )


def _name(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def elf_code_bytes(data: bytes) -> int | None:
    """Bytes of the object's code; None for another format than ELF64."""
    if data[:5] != b"\x7fELF\x02":
        return None
    return sum(s[5] for s in _elf_sections(data) if s[2] & _ELF_EXECUTABLE)


def _elf_sections(data: bytes) -> list[tuple[int, ...]]:
    """Name, kind, flags, address, offset, size, link, info, alignment and entry size of each."""
    (sections_at,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * size) for i in range(count)]


def _elf_undefined(data: bytes) -> Iterator[str]:
    sections = _elf_sections(data)
    for _, kind, _, _, at, length, strings, _, _, entry in sections:
        if kind != _ELF_SYMBOL_TABLE:
            continue
        names_at = sections[strings][4]
        for symbol_at in range(at + entry, at + length, entry):
            name, info, _, section = struct.unpack_from("<IBBH", data, symbol_at)
            if section == 0 and name and info >> 4 != _ELF_LOCAL:
                yield _name(data, names_at + name)


def _macho_undefined(data: bytes) -> Iterator[str]:
    (commands,) = struct.unpack_from("<I", data, 16)
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == _MACHO_SYMBOL_TABLE:
            symbols_at, count, names_at, _ = struct.unpack_from("<IIII", data, at + 8)
            for i in range(count):
                name, kind, _, _, _ = struct.unpack_from("<IBBHQ", data, symbols_at + 16 * i)
                if not kind & _MACHO_DEBUG and kind & _MACHO_EXTERNAL and not kind & _MACHO_TYPE:
                    yield _name(data, names_at + name).removeprefix("_")
        at += size
