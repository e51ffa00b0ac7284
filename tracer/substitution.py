"""A function and what it reads from outside in, a copy of it that reads traced arrays in their place out.

NumPy work on an array of the closure or of the module happens before any dispatch: ``W * 2`` would be computed at the
trace and frozen. So the function that is traced is a copy, with other closure cells, globals and defaults, in which
arrays are variables of the trace. The same holds for the functions that it reaches in its closure and, of its own
package, in its globals; attributes of objects are served by ``tenferro.tracer.attribute_hooks``.

Variables that the functions assign stay what they are. Containers with arrays are copied; what the functions change in
the copies is changed in the originals when the trace is over, where ``tenferro.tracer.effects`` finds and refuses it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tenferro.tracer.attribute_hooks import hooked
from tenferro.tracer.captures import is_foreign, names_of
from tenferro.tracer.effects import Effects
from tenferro.tracer.places import Found, Place, read
from tenferro.tracer.trace import Trace, is_supported, is_tenferro_array
from tenferro.tracer.traced import TracedArray, captured

MAX_PARTS = 1024  # elements of a container that are looked at
MAX_DEPTH = 4
MAX_FUNCTIONS = 512
_MISSING = object()


def is_array(value: Any) -> bool:
    """Whether a value from outside becomes an input of the program."""
    kind = type(value)
    return (kind is np.ndarray or kind is np.memmap or is_tenferro_array(value)) and is_supported(np.dtype(value.dtype))


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and elements of a container that can be copied; nothing for anything else."""
    if isinstance(value, dict):
        yield from islice(value.items(), MAX_PARTS)
    elif isinstance(value, list) or type(value) is tuple or _is_namedtuple(value):
        yield from enumerate(islice(value, MAX_PARTS))


def _parts(value: Any, depth: int = 0) -> Iterator[Any]:
    """The value itself, or what stands in it where it is a container."""
    if not isinstance(value, dict | list | tuple):
        yield value
    elif depth < MAX_DEPTH:
        for _, item in _items(value):
            yield from _parts(item, depth + 1)


def _package(name: str | None) -> str:
    return (name or "").split(".")[0]


class _Globals(dict[str, Any]):
    """The globals of a copied function: reads go to the module, through the substitution; what the function assigns
    reaches the module at the next read."""

    def __init__(self, original: dict[str, Any], substitution: Substitution) -> None:
        super().__init__(original)
        self.original = original
        self.assigned: set[str] = set()
        self._substitution = substitution
        self._seen = dict(original)

    def __getitem__(self, name: str) -> Any:
        if self.assigned:
            self.flush(self.assigned)
            if name in self.assigned:
                return self.original[name]
        value = self.original[name]
        return self._substitution.give(value, lambda: Place((self.original, name), (), name))

    def hold(self, name: str, value: Any) -> None:
        """Give ``value`` to what reads the dict without ``__getitem__``."""
        self._seen[name] = value
        self[name] = value

    def flush(self, names: Sequence[str] | set[str]) -> None:
        """Carry assignments of these names into the module."""
        for name in names:
            own, seen = self.get(name, _MISSING), self._seen.get(name, _MISSING)
            if own is seen:
                continue
            if own is _MISSING:
                self.original.pop(name, None)
                self._seen.pop(name, None)
            else:
                self.original[name] = self._seen[name] = own

    def flush_all(self) -> None:
        """Carry every assignment into the module."""
        self.flush([*self, *(n for n in self._seen if n not in self)])


@dataclass(slots=True)
class _Container:
    """A copied container: what it is a copy of, and what stood in it at first."""

    original: Any
    copy: Any
    first: list[tuple[Any, Any]]


class Substitution:
    """What one trace reads instead of what stands outside. ``places`` says where the arrays stood, by id."""

    def __init__(self, trace: Trace) -> None:
        self.places: dict[int, Place] = {}
        self.effects = Effects(self._taken_back)
        self._trace = trace
        self._needing: set[int] = set()  # ids of functions that reach an array
        self._known: dict[int, FunctionType] = {}  # every function looked at, kept alive with its id
        self._stored: set[int] = set()  # ids of cells that one of them assigns
        self._functions: dict[int, FunctionType] = {}
        self._copies: dict[int, tuple[FunctionType, FunctionType]] = {}  # id of a copy -> it and its original
        self._cells: dict[int, tuple[CellType, CellType]] = {}
        self._globals: dict[int, _Globals] = {}
        self._containers: dict[int, _Container] = {}
        self._given: dict[int, TracedArray] = {}  # id of a variable -> it, to find the array again
        self._arrays: dict[int, Any] = {}

    # -- values --------------------------------------------------------------------------------------------------

    def give(self, value: Any, place: Callable[[], Place] | None = None) -> Any:
        """What the traced function gets for a value from outside: a variable for an array, copies of containers and
        functions in which arrays stand, anything else as it is."""
        kind = type(value)
        if kind is FunctionType:
            return self._function(value) if id(value) in self._needing else value
        if kind is ModuleType or not self._trace.alive:
            return value
        if is_array(value):
            return self._variable(value, place)
        if isinstance(value, dict | list | tuple):
            return self._container(value, place)
        if kind is functools.partial and self._has(value):
            args = [self.give(a) for a in value.args]
            keywords = {k: self.give(v) for k, v in value.keywords.items()}
            return functools.partial(self.give(value.func), *args, **keywords)
        if kind is MethodType and id(value.__func__) in self._needing:
            return MethodType(self.give(value.__func__), value.__self__)
        return value

    def _variable(self, array: Any, place: Callable[[], Place] | None) -> TracedArray:
        if place is not None and id(array) not in self.places:
            found = self.places[id(array)] = place()
            self._trace.names.setdefault(id(array), f"captured array {found.text}")
        variable = captured(self._trace, array)
        self._given[id(variable)] = variable
        self._arrays[id(variable)] = array
        return variable

    def _has(self, value: Any) -> bool:
        """Whether an array, or a function that reaches one, is or stands in the value."""
        return any(is_array(p) or id(p) in self._needing for p in self._reached(value)) or self._has_keys(value)

    def _has_keys(self, value: Any) -> bool:
        """Whether functions that are copied are keys: a table of functions is asked for the copies."""
        return isinstance(value, dict) and any(id(k) in self._needing for k in islice(value, MAX_PARTS))

    def _reached(self, value: Any) -> Iterator[Any]:
        for part in _parts(value):
            yield part
            if type(part) is functools.partial:
                yield part.func
                yield from _parts((*part.args, *part.keywords.values()))
            elif type(part) is MethodType:
                yield part.__func__

    def _container(self, value: Any, place: Callable[[], Place] | None) -> Any:
        known = self._containers.get(id(value))
        if known is not None:
            return known.copy
        if not self._has(value):
            return value
        items = list(_items(value))

        def at(key: Any) -> Callable[[], Place] | None:
            return None if place is None else lambda: place().item(key)

        given = [(k, self.give(v, at(k))) for k, v in items]
        if isinstance(value, tuple):
            rest = list(value)[len(given) :]
            parts = [v for _, v in given] + rest
            made: Any = tuple(parts) if type(value) is tuple else type(value)(*parts)
        else:
            made = copy.copy(value)
            if type(made) is not type(value) or len(made) != len(value):
                return value
            if self._has_keys(value):
                given = [(self.give(k), v) for k, v in given]
                made.clear()
            for k, v in given:
                made[k] = v
        self._containers[id(value)] = _Container(value, made, given)
        return made

    # -- functions -----------------------------------------------------------------------------------------------

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function to call in place of this one."""
        if isinstance(function, MethodType):
            return MethodType(self.function(function.__func__), function.__self__)
        if isinstance(function, functools.partial):
            self._look_at([function.func, *function.args, *function.keywords.values()])
            return self.give(function) if type(function) is functools.partial else function
        if isinstance(function, FunctionType):
            self._look_at([function])
            return self._function(function) if id(function) in self._needing else function
        call = vars(type(function)).get("__call__")
        if isinstance(call, FunctionType):
            self._look_at([call])
            return MethodType(self._function(call), function) if id(call) in self._needing else function
        return function

    def needing(self, functions: Sequence[Found]) -> list[Found]:
        """Those of the functions that reach an array."""
        self._look_at([f.value for f in functions])
        return [f for f in functions if id(f.value) in self._needing]

    def _look_at(self, values: Sequence[Any]) -> None:
        """Follow the functions from these on, and find those that reach an array."""
        waiting = [p for v in values for p in self._reached(v) if isinstance(p, FunctionType)]
        edges: dict[int, list[int]] = {}
        while waiting and len(self._known) < MAX_FUNCTIONS:
            function = waiting.pop()
            if id(function) in edges or (id(function) in self._known and id(function) in self._functions):
                continue
            self._known[id(function)] = function
            self.effects.function(function)
            reached = [p for v in self._outside(function) for p in self._reached(v)]
            if any(is_array(p) for p in reached):
                self._needing.add(id(function))
            inner = [p for p in reached if isinstance(p, FunctionType)]
            edges[id(function)] = [id(p) for p in inner]
            waiting += inner
        grown = True
        while grown:
            more = {f for f, to in edges.items() if f not in self._needing and not self._needing.isdisjoint(to)}
            grown = bool(more)
            self._needing |= more

    def _outside(self, function: FunctionType) -> Iterator[Any]:
        """What the function reads: cells, defaults, and the globals that its code names (functions there only of its
        own package)."""
        names, stored = names_of(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name in stored:
                self._stored.add(id(cell))
            else:
                yield from _contents(cell)
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        package = _package(function.__module__)
        if is_foreign(function.__module__ or ""):
            return
        for name in names:
            value = function.__globals__.get(name)
            if name in stored or isinstance(value, ModuleType | type):
                continue
            if isinstance(value, FunctionType) and _package(value.__module__) != package:
                continue
            yield value

    def _function(self, function: FunctionType) -> FunctionType:
        """The copy of a function, one for each."""
        known = self._functions.get(id(function))
        if known is not None:
            return known
        closure = tuple(self._cell(cell) for cell in function.__closure__ or ())
        made = FunctionType(
            function.__code__, self._module(function), function.__name__, function.__defaults__, closure or None
        )
        self._functions[id(function)] = made
        self._copies[id(made)] = (made, function)
        made.__dict__ = function.__dict__
        made.__module__, made.__qualname__, made.__doc__ = function.__module__, function.__qualname__, function.__doc__
        for name, old, new in zip(function.__code__.co_freevars, function.__closure__ or (), closure, strict=True):
            if new is not old and not _filled(new):
                new.cell_contents = self.give(old.cell_contents, functools.partial(Place, old, (), name))
        given = [self.give(d) for d in function.__defaults__ or ()]
        made.__defaults__ = tuple(given) if function.__defaults__ is not None else None
        if function.__kwdefaults__:
            made.__kwdefaults__ = {k: self.give(v) for k, v in function.__kwdefaults__.items()}
        return made

    def _cell(self, cell: CellType) -> CellType:
        """A cell of its own where something else stands in it than outside; to be filled by the caller."""
        if id(cell) in self._cells:
            return self._cells[id(cell)][1]
        if id(cell) in self._stored or not any(self._has(v) for v in _contents(cell)):
            return cell
        self._cells[id(cell)] = (cell, CellType())
        return self._cells[id(cell)][1]

    def _module(self, function: FunctionType) -> dict[str, Any]:
        names, stored = names_of(function.__code__)
        if isinstance(function.__globals__, _Globals):
            return function.__globals__
        found = self._globals.get(id(function.__globals__))
        if found is None:
            found = self._globals[id(function.__globals__)] = _Globals(function.__globals__, self)
        for name in names:
            # A class body reads the dict itself.
            value = function.__globals__.get(name)
            if name not in stored and is_array(value):
                found.hold(name, self.give(value, functools.partial(Place, (function.__globals__, name), (), name)))
        found.assigned |= stored & function.__globals__.keys() | (stored - set(function.__code__.co_freevars))
        return found

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Carry what the functions changed in copies back to the originals."""
        for module in self._globals.values():
            module.flush_all()
        for container in self._containers.values():
            if isinstance(container.original, list):
                self._end_list(container)
            elif isinstance(container.original, dict):
                self._end_dict(container)

    def _taken_back(self, value: Any) -> Any:
        """The outside value that the traced function got this for."""
        if id(value) in self._given:
            return self._arrays[id(value)]
        if id(value) in self._copies:
            return self._copies[id(value)][1]
        return next((c.original for c in self._containers.values() if c.copy is value), value)

    def _end_list(self, container: _Container) -> None:
        now, original = container.copy, container.original
        first = [v for _, v in container.first]
        tail = original[len(first) :]
        if len(now) == len(first) + len(tail) and all(a is b for a, b in zip(now, [*first, *tail], strict=True)):
            return
        original[:] = [self._taken_back(v) for v in now]

    def _end_dict(self, container: _Container) -> None:
        now, original = container.copy, container.original
        first = dict(container.first)
        kept = {self._taken_back(k) for k in now}
        for key in [k for k in original if k not in kept]:
            del original[key]
        for key, value in now.items():
            outside = self._taken_back(key)
            if value is not first.get(key, _MISSING) and original.get(outside, _MISSING) is not value:
                original[outside] = self._taken_back(value)


def _contents(cell: CellType) -> Iterator[Any]:
    """What stands in the cell; nothing while it is empty."""
    try:
        yield cell.cell_contents
    except ValueError:
        return


def _filled(cell: CellType) -> bool:
    return any(True for _ in _contents(cell))


_current: ContextVar[Substitution | None] = ContextVar("tenferro_substitution", default=None)


def substitute(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to call where a jitted function is met inside a trace."""
    running = _current.get()
    return function if running is None else running.function(function)


def _is_own_attribute(f: Found, package: str) -> bool:
    """Whether a function of the user's own package stands in an attribute."""
    is_function = type(f.value) is FunctionType and any(kind == "attribute" for kind, _ in f.place.steps)
    return is_function and _package(f.value.__module__) == package


def _hooks(found: Sequence[Found], receiver: Any) -> Iterator[tuple[type | ModuleType, str]]:
    """The class (or module) and name of every attribute through which these are reached."""
    for f in found:
        steps = f.place.steps
        last = max((k for k, (kind, _) in enumerate(steps) if kind == "attribute"), default=None)
        if last is None:
            continue
        owner = read(Place(f.place.root, steps[:last], ""), receiver)
        if isinstance(owner, ModuleType):
            yield owner, steps[last][1]
        elif not isinstance(owner, type | FunctionType | MethodType | functools.partial):
            yield type(owner), steps[last][1]


@contextmanager
def substituted(
    trace: Trace, function: Callable[..., Any], receiver: Any, found: Sequence[Found]
) -> Iterator[tuple[Callable[..., Any], Substitution]]:
    """Inside, attributes give traced arrays; the function to call is given. ``found``: what the function can reach.

    MutationError where the function changed something outside; it is as before then, and so it is where it raised."""
    substitution = Substitution(trace)
    for f in found:
        if is_array(f.value):
            trace.names.setdefault(id(f.value), f"captured array {f.place.text}")
    package = _package(getattr(function, "__module__", None))
    substitution.effects.start(function, receiver)
    functions = [f for f in found if _is_own_attribute(f, package)]
    reached = [f for f in found if is_array(f.value)] + substitution.needing(functions)
    token = _current.set(substitution)
    try:
        with hooked(list(_hooks(reached, receiver)), substitution.give):
            yield substitution.function(function), substitution
    except BaseException:
        substitution.end()
        substitution.effects.undo()
        raise
    else:
        substitution.end()
        substitution.effects.end(trace.name)
    finally:
        _current.reset(token)
