"""Builds what native calls run by: a function's ``State`` and the entries in it.

In: the records that the caller of ``Entry`` writes, one for each thing that must be as it was, and a ``Shortcut``, the
block that an executable has bound to such arguments. Out: words that native calls read, and functions that are called
by them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from tenferro.engines.cpu import native, native_call as n
from tenferro.engines.cpu.native_entry import HEAD
from tenferro.engines.cpu.native_types import Callable as NativeCallable, native_class, set_function
from tenferro.engines.engine import Shortcut
from tenferro.tracer import switches
from tenferro.tracer.errors import LoweringError

Array = np.ndarray[Any, Any]
Words = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class LeafForm:
    """A leaf of a result: the program's output, as an array, as a NumPy scalar, or as a wrapper of the ``engine``."""

    output: int
    kind: Literal["array", "scalar"] = "array"
    engine: object = None


class Entry:
    """One call that was served: records of its arguments, and what to run. ``given``: positional arguments; ``names``:
    of its keywords, in the order given. The values are numbered: arguments, then what records open."""

    def __init__(self, given: int, names: Sequence[str]) -> None:
        self.values = given + len(names)
        self.epoch = switches.epoch()
        self._given = given
        self._names = tuple(names)
        self._records: list[list[int]] = []
        self._keep: list[Any] = [self._names]
        self.words: Words | None = None

    def _add(self, kind: int, value: int, expected: int, place: int = -1, more: Sequence[int] = ()) -> None:
        self._records.append([8 * (5 + len(more)), kind, value, expected, place, *more])

    def array(self, value: int, x: Array, place: int) -> None:
        """An aligned array of this dtype and layout, the operand at ``place`` (−1: it is none)."""
        self._keep.append(x.dtype)
        self._add(n.ARRAY, value, id(x.dtype), place, [x.ndim, *x.shape, *x.strides])

    def number(self, value: int, kind: type, place: int) -> None:
        """A number of this very class. LoweringError for one whose number stands elsewhere in the object."""
        if kind not in number_types():
            raise LoweringError(f"shortcuts: {kind.__name__} holds its number elsewhere")
        self._add(n.NUMBER, value, id(kind), place)

    def integer(self, value: int, number: int) -> None:
        """This int, of 64 bits."""
        self._add(n.INTEGER, value, number)

    def same(self, value: int, x: object) -> None:
        """This very object."""
        self._keep.append(x)
        self._add(n.SAME, value, id(x))

    def opened(self, value: int, container: tuple[Any, ...] | list[Any] | dict[Any, Any]) -> int:
        """A container of this class and length, or with these keys in order; the number of its first item."""
        first, size = self.values, len(container)
        self.values += size
        if type(container) is dict:
            keys = tuple(container)
            self._keep.append(keys)
            self._add(n.IN_DICT, value, size, more=[id(k) for k in keys])
        else:
            self._add(n.IN_TUPLE if type(container) is tuple else n.IN_LIST, value, size)
        return first

    def wrapped(self, value: int, engine: object, scalar: bool) -> int:
        """A wrapper of this engine; the number of its data."""
        self._keep.append(engine)
        self._add(n.WRAPPED, value, id(engine), id(scalar))
        return self._one()

    def absent(self, names: dict[str, Any], name: str) -> None:
        """No such name in a dict."""
        self._keep += [names, name]
        self._add(n.ABSENT, 0, id(names), more=[id(name)])

    def held(self, x: object) -> int:
        """An object that no argument leads to; its number."""
        self._keep.append(x)
        self._add(n.HELD, 0, id(x))
        return self._one()

    def cell(self, cell: object) -> int:
        """What a closure's cell holds; its number."""
        self._keep.append(cell)
        self._add(n.IN_CELL, 0, id(cell))
        return self._one()

    def name_in(self, names: dict[str, Any], name: str) -> int:
        """What stands under a name in a dict such as a module's; its number."""
        self._keep += [names, name]
        self._add(n.IN_GLOBALS, 0, id(names), id(name))
        return self._one()

    def _one(self) -> int:
        self.values += 1
        return self.values - 1

    def seal(self, shortcut: Shortcut, form: int, leaves: Sequence[LeafForm]) -> bool:
        """Write the words. False where no entry can be had: too much of something, an output that is two leaves."""
        outputs = [shortcut.outputs[leaf.output] for leaf in leaves]
        if self.values > n.MAX_VALUES or len(set(outputs)) != len(outputs):
            return False
        self._keep += [shortcut, [leaf.engine for leaf in leaves]]
        drops = sorted(set(range(shortcut.made)) - set(outputs))
        written: list[int] = []
        for leaf, output in zip(leaves, outputs, strict=True):
            kind = n.AS_WRAPPED if leaf.engine is not None else n.AS_SCALAR if leaf.kind == "scalar" else n.AS_ARRAY
            written += [output, kind, id(leaf.engine), id(leaf.kind == "scalar")]
        for output in drops:
            written += [output, 0, 0, 0]
        records = [word for record in self._records for word in record]
        fixed = n.ENTRY_WORDS + len(self._names)
        head = [
            id(self), shortcut.address, shortcut.threads, self._given, len(self._names), len(self._records),
            len(leaves), len(drops), form, shortcut.calls, 0, 8 * fixed, 8 * (fixed + len(records)),
        ]  # fmt: skip
        names = [id(name) for name in self._names]
        self.words = np.array([*head, *names, *records, *written], np.int64)
        return True

    @property
    def served(self) -> int:
        """Calls served natively so far."""
        return 0 if self.words is None else int(self.words[n.SERVED // 8])

    @property
    def is_spent(self) -> bool:
        """Whether Python is to look again."""
        return self.words is not None and int(self.words[n.LEFT // 8]) == 0


class _Writing:
    """One at a time writes states; a forked child has no other thread that might."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_writing = _Writing()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_writing.__init__)  # type: ignore[misc]


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
    _call_objects()[n.BOUND // 8] = id(bound)
    address = native.module().library.address
    native_kind = native_class(type(x), slot, address("bind_function"), is_method)
    setattr(x, slot, receiver)
    set_function(x, address("call_function"))
    x.__class__ = native_kind


@cache
def number_types() -> frozenset[type]:
    """The classes whose objects hold their number where native code looks for it, found by looking."""
    found: list[type] = []
    for kind in n.NUMBER_TYPES:
        value = kind(1)
        expected = np.asarray(value).tobytes()
        if ctypes.string_at(id(value) + n.NUMBER_AT, len(expected)) == expected:
            found.append(kind)
    return frozenset(found)


@cache
def initialise() -> None:
    """Tell native code which objects it will meet. LoweringError where CPython keeps something elsewhere, or has no
    GIL, which states and entries change under."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise LoweringError("native calls: this Python runs without the GIL")
    _check_layout()
    native.function("set_switches")(switches.address())
    words = _call_objects()
    for place, kind in ((n.INT, int), (n.TUPLE_TYPE, tuple), (n.LIST_TYPE, list), (n.DICT_TYPE, dict)):
        words[place // 8] = id(kind)


def _call_objects() -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * 16).from_address(native.function("call_objects_address")())


def set_wrapper(kind: type, data: str, engine: str, scalar: str) -> None:
    """The class that wraps arrays, and the names of its slots."""
    words = _call_objects()
    for place, name in ((n.DATA_SLOT, data), (n.ENGINE_SLOT, engine), (n.SCALAR_SLOT, scalar)):
        words[place // 8] = _slot_offset(kind, name)
    words[n.WRAPPER // 8] = id(kind)


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
        "a tuple's length": (word(pair, n.SIZE_AT), 2),
        "a tuple's item": (word(pair, n.ITEMS_AT + 8), id(mark)),
        "a list's length": (word(items, n.SIZE_AT), 2),
        "a list's item": (ctypes.c_size_t.from_address(word(items, n.LIST_ITEMS_AT) + 8).value, id(mark)),
        "a cell's content": (word(cell, n.CONTENT_AT), id(mark)),
        "an array's rank": (word(x, n.RANK_AT) & 0xFFFFFFFF, 2),
        "an array's sizes": (ctypes.c_size_t.from_address(word(x, n.SIZES_AT) + 8).value, 4),
        "an array's strides": (ctypes.c_size_t.from_address(word(x, n.STRIDES_AT)).value, 32),
    }
    for what, (found, needed) in expected.items():
        if found != needed:
            raise LoweringError(f"native calls: {what} is {found:#x}; needed {needed:#x}")
