"""Code objects in, the names that they read and assign outside themselves out."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """The code and that of the functions, classes and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


@functools.lru_cache(maxsize=1024)
def names_of(code: CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The globals that the code and the functions inside it read, and the variables outside that they assign."""
    read: dict[str, None] = {}
    stored: set[str] = set()
    for part in codes_of(code):
        for opcode, argument in _namings(part.co_code):
            if opcode == _LOAD_GLOBAL:
                read[part.co_names[argument >> 1]] = None  # the lowest bit says whether it will be called
            elif opcode == _LOAD_NAME:
                read[part.co_names[argument]] = None
            elif opcode == _STORE_DEREF:
                name = part._varname_from_oparg(argument)  # type: ignore[attr-defined]
                if name in part.co_freevars:
                    stored.add(name)
            else:
                stored.add(part.co_names[argument])
    return tuple(read), frozenset(stored)


_LOAD_GLOBAL, _LOAD_NAME, _STORE_DEREF = (dis.opmap[n] for n in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_DEREF"))
_NAMING = frozenset({_LOAD_GLOBAL, _LOAD_NAME, _STORE_DEREF, dis.opmap["STORE_GLOBAL"], dis.opmap["STORE_NAME"]})
_IMPORTING = frozenset({dis.opmap["IMPORT_NAME"]})


@functools.lru_cache(maxsize=1024)
def imported_names(code: CodeType) -> tuple[str, ...]:
    """The modules that the code and the functions inside it import when they run, as they are named there."""
    parts = [p for p in codes_of(code) if p.co_names]
    return tuple(p.co_names[k] for p in parts for _, k in _instructions(p.co_code, _IMPORTING))


def _namings(code: bytes) -> Iterator[tuple[int, int]]:
    """The instructions that name variables outside, with their arguments."""
    return _instructions(code, _NAMING)


def _instructions(code: bytes, wanted: frozenset[int]) -> Iterator[tuple[int, int]]:
    """These instructions, with their arguments. ``dis`` describes every instruction, which for a function of 3,000
    operations takes a sixth of its compilation."""
    extended = 0
    for position in range(0, len(code), 2):
        opcode = code[position]
        if opcode == dis.EXTENDED_ARG:
            extended = (extended | code[position + 1]) << 8
            continue
        if opcode in wanted:
            yield opcode, extended | code[position + 1]
        extended = 0


@functools.lru_cache(maxsize=1024)
def mentioned_names(code: CodeType) -> frozenset[str]:
    """Every name in the code and in the functions inside it, attributes included."""
    return frozenset(name for part in codes_of(code) for name in part.co_names)


_ASKING = frozenset({"getattr", "hasattr", "vars", "globals", "__dict__", "__getattribute__"})


@functools.lru_cache(maxsize=1024)
def asked_names(code: CodeType) -> frozenset[str]:
    """The names of attributes that the code may ask for where there are none: texts beside ``getattr`` and
    ``hasattr``, and what is named beside ``AttributeError``."""
    found: set[str] = set()
    for part in codes_of(code):
        if not _ASKING.isdisjoint(part.co_names):
            found.update(c for c in part.co_consts if isinstance(c, str) and c.isidentifier())
        if "AttributeError" in part.co_names:
            found.update(part.co_names)
    return frozenset(found)
