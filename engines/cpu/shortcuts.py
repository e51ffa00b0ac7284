"""What native calls run by: a function's ``State``, which holds its entries, and the objects that native code meets.

In: entries. Out: words that native calls read, and jitted functions that are called by them.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tenferro.engines.cpu import native, native_call as n, native_match as m, threads
from tenferro.engines.cpu.entries import Entry, Words
from tenferro.engines.cpu.native_entry import HEAD
from tenferro.engines.cpu.native_types import Callable as NativeCallable, native_class, set_function
from tenferro.tracer import switches
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.forking import Renewed

_writing = Renewed()
"""One at a time writes states."""


class State:
    """A jitted function's entries, newest first."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._words: Words = np.zeros(n.STATE_WORDS, np.int64)

    def receiver(self, fallback: Callable[..., Any]) -> tuple[Words, Callable[..., Any]]:
        """What a native call finds its entries by; it calls ``fallback`` where none serves."""
        return self._words, fallback

    def serving(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """A builtin that serves by these entries, else calls ``fallback``."""
        return native.server(self._words, fallback)

    def add(self, entry: Entry) -> None:
        """Serve such calls from now on."""
        assert entry.words is not None
        with _writing.lock:
            epoch = switches.epoch()
            if entry.epoch != epoch:
                return  # what it relies on has changed meanwhile
            is_same = int(self._words[n.EPOCH // 8]) == epoch
            self._write([entry, *(self._entries[: n.MAX_ENTRIES - 1] if is_same else [])], epoch)

    def has(self, entry: Entry) -> bool:
        """Whether such calls are served."""
        return entry in self._entries

    def drop(self, entry: Entry) -> None:
        """Serve such calls no longer."""
        with _writing.lock:
            self._write([e for e in self._entries if e is not entry], int(self._words[n.EPOCH // 8]))

    def clear(self) -> None:
        """Serve no call."""
        with _writing.lock:
            self._write([], switches.epoch())

    def _write(self, entries: list[Entry], epoch: int) -> None:
        """Put these in force. Native code may look between any two statements, so that entries which it may still see
        are kept to the end."""
        self._entries, before = entries, self._entries
        addresses = [int(e.words.ctypes.data) for e in self._entries if e.words is not None]
        start = n.COUNT // 8
        self._words[start] = 0
        self._words[start + 1 : start + 1 + len(addresses)] = addresses
        self._words[n.EPOCH // 8] = epoch
        self._words[start] = len(addresses)
        del before

    @property
    def hits(self) -> int:
        """Calls served natively."""
        return int(self._words[n.HITS // 8])


def make_native(
    x: NativeCallable, slot: str, receiver: tuple[Words, Callable[..., Any]], bound: type, is_method: bool
) -> None:
    """Have calls of an object look at a state's entries first. ``slot``: its class's one for the receiver. ``bound``:
    the class of what its ``__get__`` makes. is_method: ``x.f(y)`` is no other call than ``f(x, y)``.

    LoweringError where CPython's objects are not as they should be."""
    _call_objects()[m.BOUND // 8] = id(bound)
    address = native.module().library.address
    native_kind = native_class(type(x), slot, address("bind_function"), is_method)
    setattr(x, slot, receiver)
    set_function(x, address("call_function"))
    x.__class__ = native_kind


@cache
def initialise() -> None:
    """Tell native code which objects it will meet. LoweringError where CPython keeps something elsewhere, or has no
    GIL, which states and entries change under."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise LoweringError("native calls: this Python runs without the GIL")
    _check_layout()
    native.function("set_switches")(switches.address())
    words = _call_objects()
    words[m.SCOPE // 8], words[m.EXCEPTION // 8] = id(threads.SCOPE), id(Exception)
    for place, kind in ((m.INT, int), (m.TUPLE_TYPE, tuple), (m.LIST_TYPE, list), (m.DICT_TYPE, dict)):
        words[place // 8] = id(kind)


def _call_objects() -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * 16).from_address(native.function("call_objects_address")())


def set_wrapper(kind: type, data: str, engine: str, scalar: str) -> None:
    """The class that wraps arrays, and the names of its slots."""
    words = _call_objects()
    words[m.SCOPE // 8], words[m.EXCEPTION // 8] = id(threads.SCOPE), id(Exception)
    for place, name in ((m.DATA_SLOT, data), (m.ENGINE_SLOT, engine), (m.SCALAR_SLOT, scalar)):
        words[place // 8] = _slot_offset(kind, name)
    words[m.WRAPPER // 8] = id(kind)


def _slot_offset(kind: type, name: str) -> int:
    """Where a slot is in objects of the class, found by looking."""
    probe: object = object.__new__(kind)
    mark = object()
    setattr(probe, name, mark)
    for offset in range(HEAD, kind.__basicsize__, 8):
        if ctypes.c_size_t.from_address(id(probe) + offset).value == id(mark):
            return offset
    raise LoweringError(f"shortcuts: slot {name} of {kind.__name__} was not found")


def _check_layout() -> None:
    def word(owner: object, offset: int) -> int:
        return ctypes.c_size_t.from_address(id(owner) + offset).value

    mark = object()
    pair, items = (0, mark), [0, mark]
    cell = (lambda: mark).__closure__[0]  # type: ignore[index]
    x = np.ones((3, 4))
    expected = {
        "a tuple's length": (word(pair, m.SIZE_AT), 2),
        "a tuple's item": (word(pair, m.ITEMS_AT + 8), id(mark)),
        "a list's length": (word(items, m.SIZE_AT), 2),
        "a list's item": (ctypes.c_size_t.from_address(word(items, m.LIST_ITEMS_AT) + 8).value, id(mark)),
        "a cell's content": (word(cell, m.CONTENT_AT), id(mark)),
        "what is referred to": (word(weakref.ref(initialise), m.REFERENT_AT), id(initialise)),
        "an array's rank": (word(x, m.RANK_AT) & 0xFFFFFFFF, 2),
        "an array's sizes": (ctypes.c_size_t.from_address(word(x, m.SIZES_AT) + 8).value, 4),
        "an array's strides": (ctypes.c_size_t.from_address(word(x, m.STRIDES_AT)).value, 32),
    }
    for what, (found, needed) in expected.items():
        if found != needed:
            raise LoweringError(f"native calls: {what} is {found:#x}; needed {needed:#x}")
