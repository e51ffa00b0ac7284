"""What native calls look at: a call's values and what its program assumes of outside values in, an entry's records out.

Numbers, arrays, tn.Arrays, tuples, lists, dicts, namedtuples and dataclasses have records; so have guards that identity
tells: numbers and texts that are the very same objects are equal. What has none raises ``Unfit``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.array import Array
from tenferro.call_key import BY_VALUE
from tenferro.engines.cpu.entries import Entry
from tenferro.tracer.capture_guards import Guard
from tenferro.tracer.places import Held, Place, Self
from tenferro.tracer.records import dataclass
from tenferro.tracer.tree import container, is_registered

if TYPE_CHECKING:
    from tenferro.compiled import Compiled

_IMMUTABLE = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""Classes whose objects never change: the very same one is equal to what it was."""
_LASTING = (ModuleType, FunctionType, BuiltinFunctionType, type, np.ufunc, np.dtype, np.number, np.bool_, Enum)
"""Classes whose objects an entry may keep alive."""


class Unfit(Exception):
    """Something that native code does not look at."""


@dataclass(frozen=True, slots=True)
class Given:
    """An input: the number of the value that it was given as, that of its array, its class, a tn.Array's engine."""

    value: int
    array: int
    kind: type
    engine: object = None


class Writer:
    """Writes an entry's records in the order in which ``call_key.add`` finds a call's inputs. ``places``: of inputs
    among the block's arrays. ``any_sizes``: sizes, strides and ints are a formula's leaves, in order."""

    def __init__(self, entry: Entry, places: Mapping[int, int], any_sizes: bool = False) -> None:
        self.inputs: list[Given] = []
        self.found_wrapped = False
        self._entry = entry
        self._places = places
        self._any_sizes = any_sizes
        self._leaves = 0
        self._receiver: tuple[int, Any] | None = None
        self._read: dict[tuple[Any, ...], tuple[int, Any]] = {}

    def receiver(self, k: int, value: Any) -> None:
        """Value k is the object of a method."""
        self._entry.of_class(k, type(value))
        self._receiver = (k, value)

    def _place(self) -> int:
        """Of the next input among the block's arrays."""
        return self._places.get(len(self.inputs), -1)

    def write(self, k: int, value: Any) -> None:
        """Records of value k."""
        kind, entry = type(value), self._entry
        if kind is np.ndarray:
            self._layout(k, value)
            self.inputs.append(Given(k, k, kind))
        elif kind is int:
            if self._any_sizes:
                entry.any_integer(k, self._leaves)
                self._leaves += 1
            else:
                entry.integer(k, value)
            self.inputs.append(Given(k, k, kind))
        elif kind is float or kind is complex or issubclass(kind, np.generic):
            entry.number(k, kind, self._place())
            self.inputs.append(Given(k, k, kind))
        elif kind is Array:
            if not isinstance(value._data, np.ndarray):
                raise Unfit
            self.found_wrapped = True
            inner = entry.wrapped(k, value._engine, value._scalar)
            self._layout(inner, value._data)
            self.inputs.append(Given(k, inner, kind, value._engine))
        elif kind in BY_VALUE:
            entry.same(k, value)
        else:
            self._container(k, value)

    def _layout(self, k: int, x: np.ndarray[Any, Any]) -> None:
        """The record of an array."""
        if not self._any_sizes:
            self._entry.array(k, x, self._place())
            return
        self._entry.any_sizes(k, x, self._place(), self._leaves)
        self._leaves += 2 * x.ndim

    def _container(self, k: int, value: Any) -> None:
        kind, entry = type(value), self._entry
        if kind is tuple or kind is list or kind is dict or _is_named(kind):
            first = entry.opened(k, value)
            for j, item in enumerate(value.values() if kind is dict else value):
                self.write(first + j, item)
        elif container(kind) is None:
            self.static(k, value)
        elif dataclasses.is_dataclass(kind) and not is_registered(kind):
            entry.of_class(k, kind)
            for field in dataclasses.fields(kind):
                number, inner = entry.attribute(k, field.name), getattr(value, field.name)
                self.static(number, inner) if field.metadata.get("static") else self.write(number, inner)
        else:
            raise Unfit

    def static(self, k: int, value: Any) -> None:
        """Records of a static argument: of what never changes, that it is the very same."""
        if not _is_fixed(value):
            raise Unfit
        self._entry.same(k, value)

    # -- what a program assumes of outside values ----------------------------------------------------------------------

    def captures(self, compiled: Compiled) -> None:
        """Records of guards, and of the arrays that the program reads outside."""
        for guard in compiled.captures.guards:
            self._guard(guard)
        sources = iter(compiled.captures.sources)
        for constant in compiled.constants():
            source = None if constant is not None else next(sources)
            if source is None or source.place is None:
                held = constant if source is None else source.held
                self._array(self._entry.held(held), held)
            else:
                self._array(*self._at(source.place))

    def _array(self, k: int, value: Any) -> None:
        if type(value) is not np.ndarray and type(value) is not Array:
            raise Unfit
        self.write(k, value)

    def _guard(self, guard: Guard) -> None:
        root, entry = guard.place.root, self._entry
        if guard.relation == "absent" and not guard.value and isinstance(root, tuple):
            entry.absent(*root)
            return
        k, value = self._at(guard.place)
        match guard.relation:
            case "is":
                entry.same(k, guard.value)
            case "object":
                entry.referent(k, guard.value)
            case "equals" | "value" if _is_fixed(value):
                entry.same(k, value)
            case "type" if isinstance(value, np.ndarray | Array):
                pass  # an array that is read is looked at; of one that is not, nothing matters
            case "type":
                entry.of_class(k, guard.value)
            case "length" if guard.value[0] in (tuple, list):
                entry.sized(k, *guard.value)
            case "keys" if guard.value[0] is dict:
                entry.keys(k, tuple(value))
            case "shared":
                entry.equal_to(k, self._at(guard.value)[0])
            case "member" if isinstance(value, type):
                entry.member(k, *guard.value)
            case "missing":
                entry.missing(k, guard.value)
            case "own":
                entry.not_own(k, guard.value)
            case "absent" if isinstance(value, type):
                entry.member(k, guard.value, None)
            case "absent":
                entry.not_there(k, guard.value)
            case _:
                raise Unfit

    def _at(self, place: Place) -> tuple[int, Any]:
        """The number of what stands in a place, and that itself."""
        found = self._read.get(place.key)
        if found is None:
            try:
                found = self._read[place.key] = self._looked_up(place)
            except Exception as error:  # reading runs the user's own properties
                raise Unfit from error
        return found

    def _looked_up(self, place: Place) -> tuple[int, Any]:
        root, entry = place.root, self._entry
        if place.steps:
            return self._step(*self._at(Place(root, place.steps[:-1], "")), *place.steps[-1])
        if isinstance(root, Self) and self._receiver is not None:
            return self._receiver
        if isinstance(root, Held):
            return entry.held(root.value), root.value
        if isinstance(root, CellType):
            return entry.cell(root), root.cell_contents
        if isinstance(root, tuple) and root[1] in root[0]:
            return entry.name_in(*root), root[0][root[1]]
        raise Unfit

    def _step(self, k: int, value: Any, kind: str, key: Any) -> tuple[int, Any]:
        entry = self._entry
        if kind == "item":
            return entry.item(k, key), value[key]
        if kind != "attribute":
            raise Unfit
        if type(value) is not ModuleType:
            return entry.attribute(k, key), getattr(value, key)
        if key not in vars(value):
            raise Unfit
        entry.same(k, value)
        return entry.name_in(vars(value), key), vars(value)[key]


def _is_fixed(value: Any) -> bool:
    """Whether the very same object is equal to what it was."""
    if type(value) is tuple or type(value) is frozenset:
        return all(map(_is_fixed, value))
    return type(value) in _IMMUTABLE or isinstance(value, _LASTING)


def _is_named(kind: type) -> bool:
    """Whether it is a namedtuple's class that opens as a tuple."""
    is_named = issubclass(kind, tuple) and hasattr(kind, "_fields") and not is_registered(kind)
    return is_named and kind.__iter__ is tuple.__iter__  # type: ignore[attr-defined]
