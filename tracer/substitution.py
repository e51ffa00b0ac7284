"""A function and what it reads from outside in, a copy of it that reads traced arrays in their place out.

NumPy work on an array of the closure or of the module happens before any dispatch: ``W * 2`` would be computed at the
trace and frozen. So the function that is traced is a copy, with other closure cells, globals and defaults, in which
arrays are variables of the trace. The same holds for the user's own functions that it reaches in its closure and in its
globals; what it reads of objects, modules and classes comes through ``tenferro.tracer.attribute_hooks``.

Variables that the functions assign stay what they are. Containers with arrays are copied; what the functions change in
the copies is changed in the originals when the trace is over, where ``tenferro.tracer.effects`` finds and refuses it.

A function that remembers its results (``functools.lru_cache``) is called as it is, outside the trace: what it gives
back stands outside, as a value that an attribute holds does.

Outside ``jit`` a trace serves one call (``Trace.is_once``): nothing is assumed for later ones, and what the function
does besides is Python's own. There the functions alone are copied that run once for many turns or lanes.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from tenferro.tracer.attribute_hooks import Behind, Hooks, hooked, lookup, unhooked
from tenferro.tracer.attribute_reads import AttributeReads, open_once
from tenferro.tracer.captures import LRU, Captured, is_captured_array as is_array
from tenferro.tracer.code_names import codes_of, mentioned_names, names_of
from tenferro.tracer.copies import CONTAINERS, ContainerCopy, GlobalsCopy, contents_of, items, reached, reads_nothing
from tenferro.tracer.dim import pinned
from tenferro.tracer.effects import Effects
from tenferro.tracer.places import Held, Place, plain_function
from tenferro.tracer.trace import CURRENT, Trace, current_trace
from tenferro.tracer.traced import TracedArray, captured
from tenferro.tracer.wrap import of_numpy

MAX_FUNCTIONS = 512


class Substitution:
    """What one trace reads instead of what stands outside. ``places`` says where the arrays stood, by id."""

    def __init__(self, trace: Trace, function: Callable[..., Any]) -> None:
        self.places: dict[int, Place] = {}
        self.hooks = Hooks()
        self.captured = Captured(function, trace.name, self.hooks)
        self.reads = AttributeReads(self.captured, self.give, self._has)
        self.effects = Effects(self._taken_back, self.captured.owner)
        self._trace = trace
        self._is_once = trace.is_once
        self._needing: set[int] = set()  # ids of functions that reach an array
        self._known: dict[int, FunctionType] = {}  # every function looked at, kept alive with its id
        self._edges: dict[int, list[int]] = {}  # the functions that each of them reaches
        self._stored: set[int] = set()  # ids of cells that one of them assigns
        self._inner: tuple[int, set[CodeType]] = (0, set())  # of functions inside so many that are followed
        self._functions: dict[int, FunctionType] = {}
        self._copies: dict[int, tuple[FunctionType, FunctionType]] = {}  # id of a copy -> it and its original
        self._cells: dict[int, tuple[CellType, CellType]] = {}
        self._globals: dict[int, GlobalsCopy] = {}
        self._containers: dict[int, ContainerCopy] = {}
        self._without: dict[int, Any] = {}  # containers in which nothing is given in another form
        self._spaces: dict[int, tuple[SimpleNamespace, SimpleNamespace]] = {}  # id of a copy -> it and its original
        self._given: dict[int, TracedArray] = {}  # id of a variable -> it, to find the array again
        self._arrays: dict[int, Any] = {}

    # -- values --------------------------------------------------------------------------------------------------

    def give(self, value: Any, place: Callable[[], Place] | None = None) -> Any:
        """What the traced function gets for a value from outside: a variable for an array, copies of containers and
        functions in which arrays stand, anything else as it is."""
        kind = type(value)
        if kind is FunctionType:
            return self._function(value) if self._needs(value) else value
        if self._is_once:
            self._open(value)
        if kind is ModuleType or not self._trace.alive:
            return value
        if is_array(value):
            return self._variable(value, place)
        if kind is SimpleNamespace:
            return self._namespace(value, place)
        if isinstance(value, CONTAINERS):
            return self._container(value, place)
        if kind is functools.partial and self._has(value):
            args = [self.give(a) for a in value.args]
            keywords = {k: self.give(v) for k, v in value.keywords.items()}
            return functools.partial(self.give(value.func), *args, **keywords)
        if kind is LRU:
            return self._remembering(value, Place(Held(value), (), value.__name__))
        if kind is MethodType and self._has(value.__func__):
            return self._method(value)
        return value

    def _method(self, method: MethodType) -> Any:
        function, owner = method.__func__, method.__self__
        if not isinstance(function, LRU):
            return MethodType(self.give(function), owner)
        known = self.captured.objects.get(id(owner))
        names = [n for c in type(owner).__mro__ for n in vars(c) if lookup(type(owner), n) is function]
        if known is None or not names:
            return self._remembering(method, Place(Held(method), (), function.__name__))
        return self._remembering(method, known[0].attribute(names[0]))

    def _remembering(self, function: Any, place: Place) -> Callable[..., Any]:
        """A function that calls one that remembers its results, as outside the trace."""

        @functools.wraps(function)
        def remembering(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = pinned(args), {k: pinned(v) for k, v in kwargs.items()}
            with unhooked():
                token = CURRENT.set(None)
                try:
                    value = function(*args, **kwargs)
                finally:
                    CURRENT.reset(token)
                where = place.call(args, tuple(kwargs.items()))
                if not self._is_once:
                    self.captured.visit(where, value)
            return self.give(value, lambda: where)

        return remembering

    def _variable(self, array: Any, place: Callable[[], Place] | None) -> TracedArray:
        known = self.captured.arrays.get(id(array))
        if known is None and place is not None and id(array) not in self.places:
            self.places[id(array)] = place()
        found = known[0] if known is not None else self.places.get(id(array))
        if found is not None:
            self._trace.names.setdefault(id(array), f"captured array {found.text}")
        variable = captured(self._trace, array)
        self._given[id(variable)] = variable
        self._arrays[id(variable)] = array
        return variable

    def _has(self, value: Any) -> bool:
        """Whether an array, or a function that reaches one, is or stands in the value."""
        return any(map(self._is_given, reached(value))) or self._has_keys(value)

    def _is_given(self, part: Any) -> bool:
        return is_array(part) or isinstance(part, LRU) or (type(part) is FunctionType and self._needs(part))

    def _needs(self, function: FunctionType) -> bool:
        """Whether a function reaches an array: of other packages' functions only those of this one and Python are
        followed, which hold what they were given."""
        if id(function) not in self._known and self.captured.owner.of(function.__module__) != "other":
            self._look_at([function])
        return id(function) in self._needing

    def _has_keys(self, value: Any) -> bool:
        """Whether functions that are copied are keys: a table of functions is asked for the copies."""
        return isinstance(value, dict) and any(type(k) is FunctionType and self._needs(k) for k in value)

    def _container(self, value: Any, place: Callable[[], Place] | None) -> Any:
        known = self._containers.get(id(value))
        if known is not None:
            return known.copy
        if id(value) in self._without or not self._has(value):
            self._without[id(value)] = value
            return value
        inside = list(items(value))

        def at(key: Any) -> Callable[[], Place] | None:
            return None if place is None else lambda: place().item(key)

        given = [(k, self.give(v, at(k))) for k, v in inside]
        if isinstance(value, MappingProxyType):
            made: Any = MappingProxyType(dict(given))
        elif isinstance(value, tuple):
            made_of = [v for _, v in given]
            made = tuple(made_of) if type(value) is tuple else type(value)(*made_of)
        else:
            made = copy.copy(value)
            if type(made) is not type(value) or len(made) != len(value):
                return value
            if self._has_keys(value):
                given = [(self.give(k), v) for k, v in given]
                made.clear()
            for k, v in given:
                made[k] = v
        self._containers[id(value)] = ContainerCopy(value, made, given)
        return made

    def _namespace(self, value: SimpleNamespace, place: Callable[[], Place] | None) -> SimpleNamespace:
        """A copy, as of a dict: its class cannot be hooked."""
        if not self._has(value):
            return value
        for made, original in self._spaces.values():
            if original is value:
                return made
        made = SimpleNamespace()
        self._spaces[id(made)] = (made, value)

        def at(name: str) -> Callable[[], Place] | None:
            return None if place is None else lambda: place().attribute(name)

        given = [(k, self.give(v, at(k))) for k, v in items(value)]
        vars(made).update(vars(value))
        vars(made).update(given)
        self._containers[id(vars(value))] = ContainerCopy(vars(value), vars(made), given)
        return made

    # -- traces of one call --------------------------------------------------------------------------------------

    def _open(self, value: Any, words: frozenset[str] = frozenset()) -> None:
        """Be asked for the attributes of an object or a module of the user's own, or those of these names of a class,
        in a trace of one call."""
        open_once(self.hooks, self.captured.owner, value, words, self._is_given)

    def read_once(self, owner: Any, name: str, behind: Behind) -> Any:
        """What the function gets for an attribute."""
        value = behind(owner, name)
        return value if name.startswith("__") and name.endswith("__") else self.give(value)

    # -- functions -----------------------------------------------------------------------------------------------

    def start(self, function: Callable[..., Any], receiver: Any) -> None:
        """Find what the function reaches, before it runs."""
        if self._is_once:
            return
        with unhooked():
            self.effects.start(function, receiver)
            self.captured.start(function, receiver)

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function to call in place of this one."""
        own = of_numpy(function)
        if own is not None:
            return own
        plain, held = plain_function(function)
        if plain is not None and self._is_made_here(plain):
            return function
        if self._is_once:
            for found in held:
                self._open(found.value)
        elif plain is not None:
            with unhooked():
                self.captured.function(plain)
        if isinstance(function, MethodType):
            return MethodType(self.function(function.__func__), function.__self__)
        if type(function) is functools.partial and (own := of_numpy(function.func)) is not None:
            function = functools.partial(own, *function.args, **function.keywords)
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

    def _is_made_here(self, function: FunctionType) -> bool:
        """Whether the traced functions have made this one: what it holds is theirs, and theirs to change."""
        followed = self.captured.functions
        if id(function) in followed or id(function) in self._known:
            return False
        if len(followed) != self._inner[0]:
            codes = {c for f in followed.values() for c in codes_of(f.__code__) if c is not f.__code__}
            self._inner = len(followed), codes
        return function.__code__ in self._inner[1]

    def _look_at(self, values: Sequence[Any]) -> None:
        """Follow the functions from these on, and find those that reach an array."""
        waiting = [p for v in values for p in reached(v) if isinstance(p, FunctionType)]
        while waiting and len(self._known) < MAX_FUNCTIONS:
            function = waiting.pop()
            if id(function) in self._known:
                continue
            self._known[id(function)] = function
            with unhooked():
                if not self._is_once:
                    self.effects.function(function)
                found = [p for v in self._outside(function) for p in reached(v)]
            if self._is_once:
                for part in found:
                    self._open(part)
            if any(is_array(p) or isinstance(p, LRU) for p in found):
                self._needing.add(id(function))
            inner = [p for p in found if isinstance(p, FunctionType)]
            self._edges[id(function)] = [id(p) for p in inner]
            waiting += inner
        grown = True
        while grown:
            more = {f for f, to in self._edges.items() if f not in self._needing and not self._needing.isdisjoint(to)}
            grown = bool(more)
            self._needing |= more

    def _outside(self, function: FunctionType) -> Iterator[Any]:
        """What the function reads: cells, defaults, and the globals that its code names (functions there only of the
        user's own)."""
        names, stored = names_of(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name in stored:
                self._stored.add(id(cell))
            else:
                yield from contents_of(cell)
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        if self.captured.owner.of(function.__module__) == "foreign":
            return
        for name in names:
            value = function.__globals__.get(name)
            if name in stored or isinstance(value, ModuleType | type):
                if self._is_once:
                    self._open(value, mentioned_names(function.__code__))
                continue
            if isinstance(value, FunctionType) and self.captured.owner.of(value.__module__) != "own":
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
            if new is not old and not any(True for _ in contents_of(new)):
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
        if id(cell) in self._stored or not any(self._has(v) for v in contents_of(cell)):
            return cell
        self._cells[id(cell)] = (cell, CellType())
        return self._cells[id(cell)][1]

    def _module(self, function: FunctionType) -> dict[str, Any]:
        names, stored = names_of(function.__code__)
        if isinstance(function.__globals__, GlobalsCopy):
            return function.__globals__
        found = self._globals.get(id(function.__globals__))
        if found is None:
            found = self._globals[id(function.__globals__)] = GlobalsCopy(function.__globals__, self.give)
        for name in names:
            # A class body reads the dict itself.
            value = function.__globals__.get(name)
            if name not in stored and is_array(value):
                found.hold(name, self.give(value, functools.partial(Place, (function.__globals__, name), (), name)))
        found.assigned |= stored & function.__globals__.keys() | (stored - set(function.__code__.co_freevars))
        return found

    def outside(self, function: Any, known: dict[int, Any] | None = None) -> Any:
        """A function that is called when the trace is over: it reads what stands outside, as it is then."""
        known = {} if known is None else known
        if id(function) in known:
            return known[id(function)]
        if type(function) is MethodType:
            return MethodType(self.outside(function.__func__, known), function.__self__)
        if type(function) is BuiltinMethodType and not isinstance(function.__self__, ModuleType | None):
            return getattr(self._taken_back(function.__self__), function.__name__)  # the append of a list
        if type(function) is functools.partial:
            args = [self._taken_back(a) for a in function.args]
            keywords = {k: self._taken_back(v) for k, v in function.keywords.items()}
            return functools.partial(self.outside(function.func, known), *args, **keywords)
        if type(function) is not FunctionType or id(function) in self._copies:
            return self._taken_back(function)
        known[id(function)] = function  # one that calls itself
        originals = {id(copy): original for original, copy in self._cells.values()}
        closure = tuple([self._cell_outside(c, originals, known) for c in function.__closure__ or ()])
        space = function.__globals__
        space = space.original if isinstance(space, GlobalsCopy) else space
        if space is function.__globals__ and all(
            a is b for a, b in zip(closure, function.__closure__ or (), strict=True)
        ):
            return function
        defaults = tuple(map(self._taken_back, function.__defaults__ or ())) or None
        made = FunctionType(function.__code__, space, function.__name__, defaults, closure or None)
        made.__kwdefaults__ = {k: self._taken_back(v) for k, v in (function.__kwdefaults__ or {}).items()} or None
        made.__dict__.update(function.__dict__)
        made.__module__, made.__qualname__, made.__doc__ = function.__module__, function.__qualname__, function.__doc__
        known[id(function)] = made
        return made

    def _cell_outside(self, cell: CellType, originals: dict[int, CellType], known: dict[int, Any]) -> CellType:
        if id(cell) in originals:
            return originals[id(cell)]
        for value in contents_of(cell):
            found = self.outside(value, known) if isinstance(value, FunctionType) else self._taken_back(value)
            if found is not value:
                return CellType(found)
        return cell

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Carry what the functions changed in copies back to the originals."""
        for module in self._globals.values():
            module.flush_all()
        for container in self._containers.values():
            container.end(self._taken_back)

    def _taken_back(self, value: Any) -> Any:
        """The outside value that the traced function got this for."""
        if id(value) in self._given:
            return self._arrays[id(value)]
        if id(value) in self._copies:
            return self._copies[id(value)][1]
        if id(value) in self._spaces:
            return self._spaces[id(value)][1]
        return next((c.original for c in self._containers.values() if c.copy is value), value)


_current: ContextVar[Substitution | None] = ContextVar("tenferro_substitution", default=None)


def substitute(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to call where a jitted function is met inside a trace."""
    running, trace = _current.get(), current_trace()
    if running is not None:
        return running.function(function)
    if trace is None or trace.scope is None or not trace.is_once:
        return function

    def as_body(*args: Any, **kwargs: Any) -> Any:
        with bodies(trace, function) as (body,):
            return body(*args, **kwargs)

    return as_body


def outside(function: Any) -> Any:
    """A function that a trace was given to be called later, as it stands outside of the trace."""
    running = _current.get()
    return function if running is None else running.outside(function)


@contextmanager
def bodies(trace: Trace, *functions: Callable[..., Any]) -> Iterator[tuple[Callable[..., Any], ...]]:
    """The functions to call in place of functions that run once for many turns or lanes. Outside ``jit`` they read
    traced arrays, as they do inside, where they are found so already."""
    if _current.get() is not None or not trace.is_once or all(map(reads_nothing, functions)):
        yield functions
        return
    substitution = Substitution(trace, functions[0])
    token = _current.set(substitution)
    try:
        with hooked(substitution.hooks, substitution.read_once, substitution.give):
            yield tuple([substitution.function(f) for f in functions])
    finally:
        substitution.end()
        _current.reset(token)


@contextmanager
def substituted(
    trace: Trace, function: Callable[..., Any], receiver: Any
) -> Iterator[tuple[Callable[..., Any], Substitution]]:
    """Inside, outside arrays are read as traced ones; the function to call is given.

    MutationError where the function changed something outside; it is as before then, and so it is where it raised."""
    substitution = Substitution(trace, function)
    token = _current.set(substitution)
    try:
        with hooked(substitution.hooks, substitution.reads.read, substitution.give):
            substitution.start(function, receiver)
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
