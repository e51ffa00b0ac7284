"""The native way of a jitted function's calls, its Python half: a call that was served in, an entry for such calls out.

Such calls are those whose arguments have the same classes, dtypes, sizes, strides and ints, in the same containers.
Captured numbers and arrays are looked at too. What has no entry (results that are views, seams, captured objects of
other kinds) goes the long way, with the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.array import Array
from tenferro.call_key import BY_VALUE
from tenferro.engines.cpu.native import server
from tenferro.engines.cpu.native_call import LIST_OF, MAX_ENTRIES, ONE, TUPLE_OF
from tenferro.engines.cpu.native_types import Callable as NativeCallable
from tenferro.engines.cpu.shortcuts import Entry, LeafForm, State, initialise, make_native, set_wrapper
from tenferro.tracer import switches
from tenferro.tracer.capture_guards import Guard
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.places import Held, Place

if TYPE_CHECKING:
    from tenferro.compiled import Compiled

FORMS: dict[type | None, int] = {None: ONE, tuple: TUPLE_OF, list: LIST_OF}


class _Unfit(Exception):
    """An argument that native code does not look at."""


class Shortcuts:
    """The entries of one jitted function."""

    def __init__(self) -> None:
        _prepare_wrapper()
        self._state = State()
        self._known: list[tuple[Entry, Compiled, int]] = []  # with the calls that it had served when last asked

    def begin(self, function: NativeCallable, fallback: Callable[..., Any], bound: type, is_method: bool) -> None:
        """Have calls of a jitted function look at the entries first; where none serves they go to ``fallback``.
        ``bound``: the class of its bound methods."""
        make_native(function, "_native", self._state.receiver(fallback), bound, is_method)

    def serving(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """A builtin that serves by the same entries and goes elsewhere where none does."""
        return server(*self._state.receiver(fallback))

    @property
    def hits(self) -> int:
        """Calls served natively."""
        return self._state.hits

    def clear(self) -> None:
        """Forget every call."""
        self._known = []
        self._state.clear()

    def drop(self, entry: Entry) -> None:
        """Forget calls like one."""
        self._known = [known for known in self._known if known[0] is not entry]
        self._state.drop(entry)

    def used(self) -> list[Compiled]:
        """The programs that have served native calls since this was last asked."""
        found = [compiled for entry, compiled, before in self._known if entry.served > before]
        self._known = [(entry, compiled, entry.served) for entry, compiled, _ in self._known[:MAX_ENTRIES]]
        return found

    def learn(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        order: Sequence[tuple[int, bool]],
        compiled: Compiled,
        inputs: Sequence[Any],
        wrapped: bool,
        is_spent: bool,
    ) -> Entry | None:
        """Serve calls like this one, which the program has just served, from now on; None where that cannot be.

        order: the call's values (arguments, then keywords as given) in the order of the program's inputs, and whether
        each is static. inputs: what they are as inputs."""
        form = FORMS.get(compiled.form)
        if form is None or switches.is_paused() or not compiled.is_direct:
            return None
        late = compiled.late(None)
        if late is None:
            return None
        inputs = (*inputs, *late.inputs)
        entry = Entry(len(args), tuple(kwargs))
        shortcut = compiled.shortcut(inputs, is_spent)
        if shortcut is None:
            return None
        values = [*args, *kwargs.values()]
        writer = _Writer(entry, shortcut.places)
        try:
            for k, is_static in order:
                writer.static(k, values[k]) if is_static else writer.write(k, values[k])
            writer.captures(compiled)
        except (_Unfit, LoweringError):
            return None
        if writer.inputs != len(inputs):
            return None
        engine = compiled.engines[0] if wrapped or writer.found_wrapped else None
        leaves = [LeafForm(k, kind, engine) for k, kind in compiled.direct_leaves]
        if not entry.seal(shortcut, form, leaves):
            return None
        self._state.add(entry)
        self._known = [(entry, compiled, 0), *self._known[: MAX_ENTRIES - 1]]
        return entry


class _Writer:
    """Writes an entry's records in the order in which ``call_key.add`` finds a call's inputs."""

    def __init__(self, entry: Entry, places: Mapping[int, int]) -> None:
        self.inputs = 0
        self.found_wrapped = False
        self._entry = entry
        self._places = places
        self._read: dict[tuple[Any, ...], tuple[int, Any]] = {}

    def _place(self) -> int:
        """Of the next input among the block's arrays."""
        self.inputs += 1
        return self._places.get(self.inputs - 1, -1)

    def write(self, k: int, value: Any) -> None:
        """Records of value k."""
        kind, entry = type(value), self._entry
        if kind is np.ndarray:
            entry.array(k, value, self._place())
        elif kind is int:
            self._place()
            entry.integer(k, value)
        elif kind is float or kind is complex or issubclass(kind, np.generic):
            entry.number(k, kind, self._place())
        elif kind is Array:
            if not isinstance(value._data, np.ndarray):
                raise _Unfit
            self.found_wrapped = True
            inner = entry.wrapped(k, value._engine, value._scalar)
            entry.array(inner, value._data, self._place())
        elif kind in BY_VALUE:
            entry.same(k, value)
        elif kind is tuple or kind is list or kind is dict:
            first = entry.opened(k, value)
            for j, item in enumerate(value.values() if kind is dict else value):
                self.write(first + j, item)
        else:
            raise _Unfit

    def static(self, k: int, value: Any) -> None:
        """Records of a static argument: of a number or text, that it is the very same."""
        if type(value) not in BY_VALUE and type(value) not in (int, float, complex):
            raise _Unfit
        self._entry.same(k, value)

    def captures(self, compiled: Compiled) -> None:
        """Records of what the program assumes of outside values, and of the arrays that it reads there."""
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
            raise _Unfit
        self.write(k, value)

    def _guard(self, guard: Guard) -> None:
        """What identity tells: numbers and texts that are the very same objects are equal."""
        root = guard.place.root
        if guard.relation == "absent" and not guard.value and isinstance(root, tuple):
            self._entry.absent(*root)
            return
        k, value = self._at(guard.place)
        is_fixed = type(value) in _IMMUTABLE or isinstance(value, _LASTING)
        if guard.relation == "type" and isinstance(value, np.ndarray | Array):
            return  # an array that is read is looked at; of one that is not, nothing matters
        if guard.relation not in ("equals", "value", "is", "object", "type") or not is_fixed:
            raise _Unfit
        self._entry.same(k, value)

    def _at(self, place: Place) -> tuple[int, Any]:
        """The number of what stands in a place, and that itself. Attributes of modules, no other steps."""
        found = self._read.get(place.key)
        if found is None:
            found = self._read[place.key] = self._looked_up(place)
        return found

    def _looked_up(self, place: Place) -> tuple[int, Any]:
        root = place.root
        if place.steps:
            k, module = self._at(Place(root, place.steps[:-1], ""))
            kind, name = place.steps[-1]
            if kind != "attribute" or type(module) is not ModuleType or name not in vars(module):
                raise _Unfit
            self._entry.same(k, module)
            return self._entry.name_in(vars(module), name), vars(module)[name]
        if isinstance(root, Held):
            return self._entry.held(root.value), root.value
        if isinstance(root, CellType):
            return self._entry.cell(root), root.cell_contents
        if isinstance(root, tuple) and root[1] in root[0]:
            return self._entry.name_in(*root), root[0][root[1]]
        raise _Unfit


_IMMUTABLE = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""Classes whose objects never change: the very same one is equal to what it was."""
_LASTING = (ModuleType, FunctionType, BuiltinFunctionType, type, np.ufunc, np.dtype)
"""Classes whose objects an entry may keep alive."""


@cache
def _prepare_wrapper() -> None:
    initialise()
    set_wrapper(Array, "_data", "_engine", "_scalar")
