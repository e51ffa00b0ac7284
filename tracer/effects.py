"""What a traced function changed outside itself: functions, objects and containers in, one MutationError out.

Python code runs at the trace alone: ``self.n += 1`` would count programs, not calls, and would leave a traced value
behind. So what the function can reach is remembered before the trace and compared after it; where something was
rebound, added or removed, the old state is put back and the error names the place.

An iterator that was advanced cannot be put back; it is named all the same.

A ``functools.cached_property`` that the trace computed is forgotten again, without an error.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import io
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from types import (
    CellType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from tenferro.tracer import tree
from tenferro.tracer.attribute_hooks import instance_dict, members, unhooked
from tenferro.tracer.capture_guards import same_scalar
from tenferro.tracer.code_names import codes_of, mentioned_names, names_of
from tenferro.tracer.dim import Dim
from tenferro.tracer.errors import MutationError
from tenferro.tracer.lines import SourceLine, at
from tenferro.tracer.ownership import Ownership
from tenferro.tracer.places import plain_function
from tenferro.tracer.records import dataclass
from tenferro.tracer.traced import TracedArray

MAX_DEPTH = 5
MAX_WATCHED = 4096
MAX_PARTS = 1024  # elements of a container that are opened
MAX_BASES = 16
_MISSING = object()
_CHANGING = frozenset(
    "append appendleft extend extendleft insert pop popleft popitem remove clear sort reverse rotate update setdefault "
    "add discard difference_update intersection_update symmetric_difference_update".split()
)


@dataclass(frozen=True, slots=True)
class _Watched:
    """One owner of references. ``kind``: "dict", "list", "set", "deque", "object", "jitted" (a jitted function),
    "class", "names" (of a namespace), "cell" or "iterator"; ``before``: what it held; ``names``: which of a namespace
    count."""

    owner: Any
    kind: str
    text: str
    before: Any
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Change:
    """``text`` says what was done to what; ``name``: the variable or attribute to look for in the code."""

    text: str
    name: str
    is_rebound: bool
    is_array: bool


class Effects:
    """What one trace must leave as it is. ``taken_back(value)``: the outside value that the trace read as this one;
    ``owner``: whose objects are opened."""

    def __init__(self, taken_back: Callable[[Any], Any], owner: Ownership) -> None:
        self._taken_back = taken_back
        self._owner = owner
        self._watched: dict[tuple[int, str], _Watched] = {}
        self._seen: dict[int, Any] = {}  # holding the values keeps their ids unique
        self._functions: dict[int, FunctionType] = {}

    # -- before ------------------------------------------------------------------------------------------------------

    def start(self, function: Callable[..., Any], receiver: Any) -> None:
        """Watch what a function reaches, its ``self`` and what it holds included."""
        plain, held = plain_function(function)
        if plain is not None:
            self.function(plain)
        for f in held:
            self._value(f.value, f.place.text, 0, is_own=True)
        if receiver is not None:
            self._value(receiver, "self", 0, is_own=True)

    def arguments(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Watch the containers and objects among the arguments."""
        plain, _ = plain_function(function)
        code = plain.__code__ if plain is not None else None
        names = code.co_varnames[: code.co_argcount] if code is not None else ()
        if isinstance(function, MethodType):
            names = names[1:]
        with unhooked():
            for k, value in enumerate(args):
                name = names[k] if k < len(names) else str(k)
                self._value(value, name if name == "self" else f"argument {name}", 0)
            for name, value in kwargs.items():
                self._value(value, f"argument {name}", 0)

    def function(self, function: FunctionType) -> None:
        """Watch what a function's own code reads and assigns: cells, globals, defaults, its attributes. A function of
        this package, of Python or NumPy is not the user's, but what it holds may be."""
        if id(function) in self._functions:
            return
        if self._owner.of(function.__module__) == "foreign":
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                self._value(_cell(cell), name, 0)
            return
        self._functions[id(function)] = function
        names, stored = names_of(function.__code__)
        if assigned := frozenset(n for n in stored if n not in function.__code__.co_freevars):
            key = ", ".join(sorted(assigned))
            self._watch(function.__globals__, "names", "", assigned, key)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._watch(cell, "cell", name)
            self._value(_cell(cell), name, 0)
        for name in names:
            self._value(function.__globals__.get(name), name, 0)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(value, f"a default argument of {function.__name__}", 0)
        self._watch(function.__dict__, "dict", f"{function.__name__}.__dict__")

    def _watch(self, owner: Any, kind: str, text: str, names: frozenset[str] = frozenset(), key: str = "") -> None:
        if len(self._watched) < MAX_WATCHED:
            self._watched.setdefault((id(owner), key), _Watched(owner, kind, text, _held(owner, kind, names), names))

    def _value(self, value: Any, text: str, depth: int, is_own: bool = False) -> None:
        """Watch a value and what stands in it. ``is_own``: the object is opened whatever its class is."""
        if depth > MAX_DEPTH or id(value) in self._seen or isinstance(value, int | float | complex | str | None):
            return
        self._seen[id(value)] = value
        kind = _kind(value)
        if kind == "names":
            names = frozenset(n for f in list(self._functions.values()) for n in mentioned_names(f.__code__))
            if self._owner.of(value.__name__) != "foreign":
                self._watch(vars(value), kind, f"{text}.", names & vars(value).keys(), ", ".join(sorted(names)))
        elif kind == "class":
            if self._owner.of_class(value) == "own":
                self._watch(value, kind, text)
        elif kind:
            self._watch(value, kind, text)
        elif isinstance(value, MethodType):
            self._value(value.__self__, f"{text}.__self__", depth + 1)
        elif is_own or self._is_plain(value) or _is_record(value):
            self._object(value, text, depth)
            return
        for name, part in _parts(value, text):
            self._value(part, name, depth + 1)

    def _is_plain(self, value: Any) -> bool:
        """Whether an object is opened: one of the user's own classes, or a namespace. Loggers, figures and models of
        other packages change for reasons of their own."""
        if isinstance(value, type | ModuleType | FunctionType | MethodType):
            return False
        has_attributes = hasattr(value, "__dict__") or hasattr(type(value), "__slots__")
        return has_attributes and (type(value) is SimpleNamespace or self._owner.of_class(type(value)) == "own")

    def _object(self, value: Any, text: str, depth: int) -> None:
        self._watch(value, "object", text)
        for name, part in _attributes(value).items():
            self._value(part, f"{text}.{name}", depth + 1)
        cls = type(value)
        if self._owner.of_class(cls) != "own":
            return
        self._value(cls, cls.__name__, depth + 1)
        used = {n for f in list(self._functions.values()) for n in mentioned_names(f.__code__)}
        for base in cls.__mro__[:MAX_BASES]:
            for name in used & vars(base).keys():
                member = vars(base)[name]
                member = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                if isinstance(member, FunctionType) and member.__globals__.get("__name__") == cls.__module__:
                    self.function(member)

    # -- after -------------------------------------------------------------------------------------------------------

    def end(self, name: str) -> None:
        """MutationError where something has changed; it is as before then."""
        changes = list(self._changes())
        self.undo()
        if not changes:
            return
        first = changes[0]
        line = self._line(first) or self._definition()
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        donate = "; donate_argnums lets the elements of an array argument be written" if first.is_array else ""
        raise MutationError(
            f"{name}: {first.text}{more} while tracing, which happens once, not at each call; "
            f"return the new value and assign it outside{donate}{at(line)}"
        )

    def undo(self) -> None:
        """Put everything back, the very objects."""
        for watched in self._watched.values():
            _restore(watched)

    def _changes(self) -> Iterator[_Change]:
        for watched in self._watched.values():
            yield from self._differences(watched)

    def _differences(self, w: _Watched) -> Iterator[_Change]:
        now = _held(w.owner, w.kind, w.names)
        variable = w.text.replace("argument ", "").rstrip("]'\"").replace("['", ".").split(".")[-1].split("[")[0]
        if w.kind == "iterator":
            if now != w.before:
                yield _Change(f"{w.text} was advanced", variable, False, False)
            return
        if w.kind in ("list", "set", "deque"):
            if w.kind == "set":
                if now != w.before:
                    yield _Change(f"{w.text} got other elements", variable, False, False)
            elif len(now) != len(w.before):
                text = f"{w.text} went from {len(w.before)} to {len(now)} elements"
                yield _Change(text, variable, False, any(map(_is_traced, now)))
            else:
                for k, (new, old) in enumerate(zip(now, w.before, strict=True)):
                    if not self._same(new, old):
                        yield _Change(f"{w.text}[{k}] was assigned", variable, False, _is_traced(new))
            return
        for key in {**w.before, **now}:
            new, old = now.get(key, _MISSING), w.before.get(key, _MISSING)
            if new is old or self._same(new, old):
                continue
            verb = "was deleted" if new is _MISSING else "was assigned"
            text, name = _entry(w, key, variable)
            yield _Change(f"{text} {verb}", name, w.kind != "dict", _is_traced(new))

    def _same(self, new: Any, old: Any) -> bool:
        if new is old or self._taken_back(new) is old:
            return True
        return isinstance(old, int | float | complex | str) and not isinstance(new, Dim) and same_scalar(new, old)

    def _definition(self) -> SourceLine | None:
        """Where the function begins; for changes that no statement shows, such as one by ``setattr``."""
        code = next((f.__code__ for f in self._functions.values()), None)
        return SourceLine(code.co_filename, code.co_firstlineno, code.co_name) if code is not None else None

    def _line(self, change: _Change) -> SourceLine | None:
        """The line of the functions looked at that makes the change, as far as their code tells."""
        for function in self._functions.values():
            for code in codes_of(function.__code__):
                number = _changing_line(code, change)
                if number is not None:
                    return SourceLine(code.co_filename, number, code.co_name)
        return None


def _is_traced(value: Any) -> bool:
    return type(value) is TracedArray or type(value) is Dim


def _is_record(value: Any) -> bool:
    """Whether the value is a pytree with attributes: a dataclass or a registered class. This package's own records are
    no pytrees, and nobody assigns to them."""
    cls = type(value)
    if isinstance(value, type) or not (hasattr(value, "__dict__") or hasattr(cls, "__slots__")):
        return False
    is_ours = cls.__module__.startswith("tenferro.")
    return tree.is_registered(cls) or (not is_ours and dataclasses.is_dataclass(value))


def _kind(value: Any) -> str:
    if isinstance(value, ModuleType):
        return "names"
    if type(value).__module__ == "tenferro.jit":
        return "jitted" if hasattr(value, "__dict__") else ""
    for cls, kind in ((dict, "dict"), (list, "list"), (set, "set"), (deque, "deque"), (type, "class")):
        if isinstance(value, cls):
            return kind
    return "iterator" if isinstance(value, Iterator) and not isinstance(value, io.IOBase) else ""


def _parts(value: Any, text: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{text}[{k!r}]", v) for k, v in islice(list(value.items()), MAX_PARTS))
    elif isinstance(value, list | tuple):
        yield from ((f"{text}[{k}]", v) for k, v in enumerate(value[:MAX_PARTS]))
    elif isinstance(value, functools.partial):
        yield from ((f"{text}.args[{k}]", v) for k, v in enumerate(value.args))
        yield from ((f"{text}.keywords[{k!r}]", v) for k, v in value.keywords.items())
    elif _kind(value) == "class":
        yield from ((f"{text}.{k}", v) for k, v in list(vars(value).items()) if _kind(v) in ("dict", "list", "set"))


def _cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # still empty
        return _MISSING


def _slots(cls: type) -> dict[str, MemberDescriptorType]:
    found = {}
    for base in [b for b in reversed(cls.__mro__) if "__slots__" in vars(b)]:
        for name, member in members(base).items():
            if isinstance(member, MemberDescriptorType) and not name.startswith("__"):
                found[name] = member
    return found


def _attributes(value: Any) -> dict[str, Any]:
    held = dict(instance_dict(value))
    for name, member in _slots(type(value)).items():
        try:
            held[name] = member.__get__(value, type(value))
        except AttributeError:  # not set
            continue
    return held


def _held(owner: Any, kind: str, names: frozenset[str]) -> Any:
    """What the owner holds now: a dict, or a list or set for these."""
    match kind:
        case "dict":
            return dict(owner)
        case "list" | "deque":
            return list(owner)
        case "set":
            return set(owner)
        case "iterator":
            return _progress(owner)
        case "cell":
            contents = _cell(owner)
            return {} if contents is _MISSING else {"": contents}
        case "names":
            return {n: owner[n] for n in sorted(names) if n in owner}
        case "jitted":
            return {n: v for n, v in vars(owner).items() if not n.startswith("_")}
        case "class":
            return {n: v for n, v in members(owner).items() if not n.startswith("__")}
        case _:
            return _object_held(owner)


def _progress(iterator: Any) -> Any:
    """What differs after a step, as far as the kind of iterator lets it be seen."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return None if frame is None else (frame.f_lasti, {k: id(v) for k, v in frame.f_locals.items()})
    return repr(iterator) if isinstance(iterator, itertools.count) else length_hint(iterator, -1)


def _object_held(owner: Any) -> dict[str, Any]:
    found = _attributes(owner)
    spaces = [vars(b) for b in type(owner).__mro__]
    for name in [n for n in found if any(isinstance(s.get(n), functools.cached_property) for s in spaces)]:
        value = found.pop(name)
        if _holds_traced(value):
            del owner.__dict__[name]
    return found


def _holds_traced(value: Any) -> bool:
    return any(map(_is_traced, tree.leaves(value)))


def _entry(w: _Watched, key: Any, variable: str) -> tuple[str, str]:
    """How an entry reads, and the name that its assignment has in the code."""
    match w.kind:
        case "dict" if w.text.endswith(".__dict__"):
            return f"{w.text.removesuffix('.__dict__')}.{key}", str(key)
        case "dict":
            return f"{w.text}[{key!r}]", variable
        case "cell":
            return w.text, w.text
        case "names":
            return f"{w.text}{key}" if w.text else f"global {key}", key
        case _:
            return f"{w.text}.{key}", key


def _restore(w: _Watched) -> None:
    match w.kind:
        case "iterator":
            return
        case "list" | "deque":
            if len(w.owner) != len(w.before) or any(a is not b for a, b in zip(w.owner, w.before, strict=True)):
                w.owner.clear()
                w.owner.extend(w.before)
        case "set":
            if w.owner != w.before:
                w.owner.clear()
                w.owner.update(w.before)
        case _:
            now = _held(w.owner, w.kind, w.names)
            for key in {**now, **w.before}:
                if now.get(key, _MISSING) is not w.before.get(key, _MISSING):
                    _put(w, key, w.before.get(key, _MISSING))


def _put(w: _Watched, key: Any, value: Any) -> None:
    """One entry as it was; ``_MISSING`` removes it."""
    match w.kind:
        case "cell" if value is _MISSING:
            del w.owner.cell_contents
        case "cell":
            w.owner.cell_contents = value
        case "class" if value is _MISSING:
            type.__delattr__(w.owner, key)
        case "class":
            type.__setattr__(w.owner, key, value)
        case "object" if key in (slots := _slots(type(w.owner))):
            slots[key].__delete__(w.owner) if value is _MISSING else slots[key].__set__(w.owner, value)
        case _:
            entries = w.owner.__dict__ if w.kind in ("object", "jitted") else w.owner
            if value is _MISSING:
                del entries[key]
            else:
                entries[key] = value


def _changing_line(code: CodeType, change: _Change) -> int | None:
    """The first line that assigns the name; for a container, that names it and changes elements."""
    named: set[int] = set()
    changing: set[int] = set()
    for i in dis.get_instructions(code):
        number = i.positions.lineno if i.positions is not None else None
        if number is None:
            continue
        names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
        if change.is_rebound and i.opname.startswith(("STORE_", "DELETE_")) and change.name in names:
            if i.opname not in ("STORE_FAST", "DELETE_FAST"):
                return number
        elif i.opname.startswith("LOAD_"):
            if change.name in names:
                named.add(number)
            if i.opname in ("LOAD_ATTR", "LOAD_METHOD") and not _CHANGING.isdisjoint(names):
                changing.add(number)
        elif i.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            changing.add(number)
    found = set() if change.is_rebound else named & changing or changing
    return min(found, default=None)
