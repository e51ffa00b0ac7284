"""Entries of native calls: what a call that was served looked like in, the words that native code compares out.

The caller of ``Entry`` writes a record for each thing that must be as it was; ``seal`` adds the block that an
executable has bound to such arguments, and what the result is made of.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np

from tenferro.engines.cpu import native, native_match as m, native_results as r
from tenferro.engines.cpu.hinted import Formula, Hinted, hint
from tenferro.engines.cpu.native_call import NUMBER_TYPES
from tenferro.engines.cpu.native_entry import WORDS
from tenferro.engines.engine import ArrayFrom, Shortcut
from tenferro.tracer import switches
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.records import dataclass

Array = np.ndarray[Any, Any]
Words = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of a result. ``source``: the program's output ``which``, the call's value ``which``, that very object,
    that int, or the leaf ``which`` once more. ``kind``: an output as an
    array, a NumPy scalar or a Python number. ``engine``: of the tn.Array that it is in."""

    source: Literal["output", "value", "object", "size", "again"]
    which: Any
    kind: Literal["array", "scalar", "number"] = "array"
    engine: object = None
    is_scalar: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """How leaves lie in containers: a kind, and what is in it. ``keys``: of a dict; the object of a constant; the class
    that is called with what is inside, or of a record, with the names of its attributes."""

    kind: Literal["leaf", "constant", "tuple", "list", "dict", "called", "record"]
    inside: tuple[Form, ...] = ()
    keys: tuple[Any, ...] = ()


_FORMS = {
    "leaf": r.LEAF, "constant": r.CONSTANT, "tuple": r.IN_TUPLES, "list": r.IN_LISTS, "dict": r.IN_DICTS,
    "called": r.CALLED, "record": r.RECORD,
}  # fmt: skip


class Entry:
    """One call that was served: records of its arguments, and what to run. ``given``: positional arguments; ``names``:
    of its keywords, in the order given. The values are numbered: arguments, then what records open."""

    def __init__(self, given: int, names: Sequence[str]) -> None:
        self.values = given + len(names)
        self.epoch = switches.epoch()
        self._given = given
        self._names = tuple(names)
        self._records: list[list[int]] = []
        self._last: list[list[int]] = []
        self._keep: list[Any] = [self._names]
        self.words: Words | None = None

    def _add(self, kind: int, value: int, expected: int, place: int = -1, more: Sequence[int] = ()) -> None:
        self._records.append([8 * (5 + len(more)), kind, value, expected, place, *more])

    def array(self, value: int, x: Array, place: int) -> None:
        """An aligned array of this dtype and layout, the operand at ``place`` (−1: it is none)."""
        self._keep.append(x.dtype)
        # Looked at last: reading an attribute may run Python, which may give an array another shape.
        words = [m.ARRAY, value, id(x.dtype), place, x.ndim, *x.shape, *x.strides]
        self._last.append([8 * (1 + len(words)), *words])

    def any_sizes(self, value: int, x: Array, place: int, first: int) -> None:
        """An aligned array of this dtype and rank; its sizes and strides are the formula's leaves from ``first`` on."""
        self._keep.append(x.dtype)
        self._last.append([56, m.ANY_SIZES, value, id(x.dtype), place, x.ndim, 8 * first])

    def any_integer(self, value: int, leaf: int) -> None:
        """An int of 64 bits, which is that leaf of the formula."""
        self._add(m.ANY_INTEGER, value, 8 * leaf)

    def number(self, value: int, kind: type, place: int) -> None:
        """A number of this very class. LoweringError for one whose number stands elsewhere in the object."""
        if kind not in number_types():
            raise LoweringError(f"shortcuts: {kind.__name__} holds its number elsewhere")
        self._add(m.CLASS, value, id(kind), place)

    def of_class(self, value: int, kind: type) -> None:
        """An object of this very class."""
        self._keep.append(kind)
        self._add(m.CLASS, value, id(kind))

    def integer(self, value: int, number: int) -> None:
        """This int, of 64 bits."""
        self._add(m.INTEGER, value, number)

    def same(self, value: int, x: object) -> None:
        """This very object."""
        self._keep.append(x)
        self._add(m.SAME, value, id(x))

    def apart(self, value: int, x: Array, others: Mapping[int, Array]) -> None:
        """A writeable array that shares no memory with these other values."""
        more = [len(others), *(word for k, other in others.items() for word in (k, *_reach(other)))]
        low, high = _reach(x)
        # Looked at when the layouts are known to be these.
        self._last.append([8 * (5 + len(more)), m.APART, value, low, high, *more])

    def referent(self, value: int, reference: weakref.ref[Any]) -> None:
        """The very object that is referred to, which is not kept alive."""
        self._keep.append(reference)
        self._add(m.WEAK, value, id(reference))

    def equal_to(self, value: int, other: int) -> None:
        """The very object that is another value."""
        self._add(m.EQUAL_TO, value, other)

    def sized(self, value: int, kind: type, size: int) -> None:
        """A tuple or list of this length."""
        self._add(m.SIZED, value, id(kind), size)

    def keys(self, value: int, keys: tuple[Any, ...]) -> None:
        """A dict of these keys in order."""
        self._keep.append(keys)
        self._add(m.KEYS, value, len(keys), more=[id(k) for k in keys])

    def member(self, value: int, name: str, member: object) -> None:
        """A class with this very member, its own or a base's, or (None) without one of that name."""
        self._needs("_PyType_Lookup", name, member)
        self._add(m.MEMBER, value, 0 if member is None else id(member), id(name))

    def missing(self, value: int, name: str) -> None:
        """An object without such an attribute, where hasattr tells it."""
        self._needs("PyObject_GetOptionalAttr", name)
        self._add(m.MISSING, value, id(name))

    def not_there(self, value: int, name: str) -> None:
        """An object without such an attribute, whatever its ``__getattr__`` may make up."""
        self._needs("_PyObject_GenericGetAttrWithDict", name)
        self._add(m.NOT_THERE, value, id(name))

    def not_own(self, value: int, name: str) -> None:
        """An object whose own dict has no such name."""
        self._keep.append(name)
        self._add(m.NOT_OWN, value, id(name))

    def _needs(self, function: str, *kept: object) -> None:
        """LoweringError where CPython has no such function."""
        if not native.has_symbol(function):
            raise LoweringError(f"shortcuts: this Python has no {function}")
        self._keep += kept

    def opened(self, value: int, container: tuple[Any, ...] | list[Any] | dict[Any, Any]) -> int:
        """A container of this class and length, or with these keys in order; the number of its first item."""
        first, size = self.values, len(container)
        self.values += size
        if type(container) is dict:
            keys = tuple(container)
            self._keep.append(keys)
            self._add(m.IN_DICT, value, size, more=[id(k) for k in keys])
        elif type(container) is list:
            self._add(m.IN_LIST, value, size)
        else:
            self._keep.append(type(container))
            self._add(m.IN_TUPLE, value, size, id(type(container)))
        return first

    def wrapped(self, value: int, engine: object, scalar: bool) -> int:
        """A wrapper of this engine; the number of its data."""
        self._keep.append(engine)
        self._add(m.WRAPPED, value, id(engine), id(scalar))
        return self._one()

    def attribute(self, value: int, name: str) -> int:
        """An attribute of an object; its number."""
        self._keep.append(name)
        self._add(m.ATTRIBUTE, value, id(name))
        return self._one()

    def item(self, value: int, key: object) -> int:
        """An item of a container; its number."""
        self._keep.append(key)
        self._add(m.ITEM, value, id(key))
        return self._one()

    def absent(self, names: dict[str, Any], name: str) -> None:
        """No such name in a dict."""
        self._keep += [names, name]
        self._add(m.ABSENT, 0, id(names), more=[id(name)])

    def held(self, x: object) -> int:
        """An object that no argument leads to; its number."""
        self._keep.append(x)
        self._add(m.HELD, 0, id(x))
        return self._one()

    def cell(self, cell: object) -> int:
        """What a closure's cell holds; its number."""
        self._keep.append(cell)
        self._add(m.IN_CELL, 0, id(cell))
        return self._one()

    def name_in(self, names: dict[str, Any], name: str) -> int:
        """What stands under a name in a dict such as a module's; its number."""
        self._keep += [names, name]
        self._add(m.IN_GLOBALS, 0, id(names), id(name))
        return self._one()

    def _one(self) -> int:
        self.values += 1
        return self.values - 1

    def seal(
        self,
        shortcut: Shortcut,
        form: Form,
        leaves: Sequence[Leaf],
        inputs: Mapping[int, int],
        formula: Formula | None = None,
    ) -> bool:
        """Write the words. ``inputs``: program input → its value. ``formula``: of the numbers in the shortcut and the
        leaves, where these are not of one call's sizes. False where there is too much of something, or one array is two
        leaves."""
        outputs = [shortcut.outputs[leaf.which] for leaf in leaves if leaf.source == "output"]
        made = [o for o in outputs if o[0] != "input"]
        if max(self.values, len(leaves), _pushes(form)) > m.MAX_VALUES or len(set(made)) < len(made):
            return False
        image = Image(shortcut, inputs, leaves)
        self._keep += [shortcut, leaves, form, image.words]
        forms = [] if form.kind == "leaf" else _form_words(form)
        written = [word for leaf in leaves for word in image.leaf(leaf)]
        records = [word for record in (*self._records, *self._last) for word in record]
        sizes = [] if formula is None else formula.words(image.followed)
        leaves_at = m.ENTRY_WORDS + len(self._names) + len(records)
        forms_at = leaves_at + len(written)
        head = [
            id(self), int(image.words.ctypes.data), shortcut.threads, self._given, len(self._names),
            len(self._records) + len(self._last), 8 * (m.ENTRY_WORDS + len(self._names)), shortcut.calls, 0,
            len(leaves), 8 * leaves_at, len(forms), 8 * forms_at, len(shortcut.views), image.views_at,
            8 * (forms_at + len(forms)) if sizes else 0, shortcut.share, shortcut.chain,
        ]  # fmt: skip
        names = [id(name) for name in self._names]
        self.words = np.array([*head, *names, *records, *written, *forms, *sizes], np.int64)
        return True

    @property
    def served(self) -> int:
        """Calls served natively so far."""
        return 0 if self.words is None else int(self.words[m.SERVED // 8])

    @property
    def is_spent(self) -> bool:
        """Whether Python is to look again."""
        return self.words is not None and int(self.words[m.LEFT // 8]) == 0


def _reach(x: Array) -> tuple[int, int]:
    """From which byte to before which byte its elements lie, counted from its first one."""
    if not x.size:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + x.itemsize


_ITEM = "item"  # the method of an array that gives its number


class Image:
    """What an entry copies for each run: its block's template, or a chain's frame; behind it the views and the sizes
    among the results.

    ``words``: as of the call that was bound; ``followed``: those that a formula gives, with their places in bytes."""

    def __init__(self, shortcut: Shortcut, inputs: Mapping[int, int], leaves: Sequence[Leaf]) -> None:
        words: list[Any] = list(shortcut.block)
        self.views_at = 8 * len(words)
        self._shortcut, self._inputs = shortcut, inputs
        self._made_by_view: list[int] = []
        for view in shortcut.views:
            self._made_by_view.append(8 * len(words) + r.VIEW_MADE)
            kind, number = view.of
            of = -1 - inputs[number] if kind == "input" else self._at(view.of)
            words += [0, of, id(view.dtype), view.offset, len(view.shape), *view.shape, *view.strides]
        self._sizes: list[int] = []
        for leaf in leaves:
            if leaf.source == "size":
                self._sizes.append(8 * len(words))
                words.append(leaf.which)
        for place, number in shortcut.held:
            words[place] = inputs[number]
        words[WORDS] = len(words)
        self.followed = [(word, 8 * k) for k, word in enumerate(words) if isinstance(word, Hinted)]
        self.words = np.array([hint(word) for word in words], np.int64)

    def _at(self, array: ArrayFrom) -> int:
        """The byte offset at which an array stands that a run makes."""
        kind, number = array
        return self._shortcut.made[number] if kind == "made" else self._made_by_view[number]

    def leaf(self, leaf: Leaf) -> list[int]:
        """The leaf's words; leaves are asked for in order."""
        match leaf.source:
            case "output":
                array = self._shortcut.outputs[leaf.which]
                is_given = array[0] == "input"
                source, which = (r.GIVEN_VALUE, self._inputs[array[1]]) if is_given else (r.MADE, self._at(array))
            case "value":
                source, which = r.GIVEN_VALUE, leaf.which
            case "object":
                source, which = r.OBJECT, id(leaf.which)
            case "size":
                source, which = r.SIZE, self._sizes.pop(0)
            case "again":
                source, which = r.AGAIN, leaf.which
        if leaf.kind == "number":
            return [source, which, r.AS_NUMBER, id(_ITEM), 0]
        if leaf.engine is not None:
            return [source, which, r.AS_WRAPPED, id(leaf.engine), id(leaf.is_scalar)]
        return [source, which, r.AS_SCALAR if leaf.kind == "scalar" else r.AS_IS, 0, 0]


def _pushes(form: Form) -> int:
    return 1 + sum(map(_pushes, form.inside))


def _form_words(form: Form) -> list[int]:
    """A form for a machine that puts leaves on a stack and containers in place of their items."""
    words = [word for one in form.inside for word in _form_words(one)]
    if form.kind == "leaf":
        return [r.LEAF]
    if form.kind == "constant":
        return [r.CONSTANT, id(form.keys[0])]
    return [*words, _FORMS[form.kind], len(form.inside), id(form.keys)]


@cache
def number_types() -> frozenset[type]:
    """The classes whose objects hold their number where native code looks for it, found by looking."""
    found: list[type] = []
    for kind in NUMBER_TYPES:
        value = kind(1)
        expected = np.asarray(value).tobytes()
        if ctypes.string_at(id(value) + m.NUMBER_AT, len(expected)) == expected:
            found.append(kind)
    return frozenset(found)
