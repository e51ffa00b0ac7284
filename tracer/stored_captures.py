"""What a trace has assumed of outside values, written down, and the same assumptions about another process's values.

In: ``Captures``, and the modules and classes that no guard compares. Out: lists and texts; and in another process
``Captures`` over the objects that stand in the same places there, or an error where one of them is not the same.

Numbers, texts, keys and contents are written exactly; functions as digests of their code; classes, modules and NumPy's
functions by name. What is nothing but *this* object, such as an instance of another package's class, has no form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.tracer.attribute_hooks import lookup
from tenferro.tracer.capture_guards import Captures, Guard, Numbers, Source, reader_of
from tenferro.tracer.dependencies import Dependencies
from tenferro.tracer.digests import callable_key, code_digest, default_text, function_digest, maker_key
from tenferro.tracer.named import behind, name_of, named
from tenferro.tracer.ownership import is_foreign
from tenferro.tracer.places import Place, is_jitted
from tenferro.tracer.references import PlaceReader, PlaceWriter, module_of
from tenferro.tracer.stored import NotStored, Plain, Reader, Writer, class_name, data_of, data_text, dtype_text

if TYPE_CHECKING:
    from tenferro.tracer.contents import Contents

MAX_CONTENTS = 1 << 20
"""Bytes of an array that are written down."""
_NAMED = (type, ModuleType, np.ufunc, BuiltinFunctionType, type(np.concatenate))


class CaptureWriter:
    """Writes the assumptions of one trace. ``rests_on`` collects the modules that they lead to."""

    def __init__(self, writer: Writer, places: PlaceWriter, rests_on: Dependencies) -> None:
        self._writer = writer
        self._places = places
        self._rests_on = rests_on

    def captures(self, captures: Captures, foreign: Sequence[tuple[Place, Any]]) -> Plain:
        """NotStored where something has no exact form."""
        sources = []
        for source in captures.sources:
            if source.place is None:
                raise NotStored("it reads an array that the trace made from outside ones")
            sources.append(self._places.place(source.place))
        inside = self._places.is_inside
        guards = [self._guard(g) for g in captures.guards if not inside(g.place)]
        return [guards, sources, [[self._places.place(p), self._foreign(v)] for p, v in foreign if not inside(p)]]

    def _foreign(self, value: Any) -> Plain:
        self._rests_on.value(value)
        return [module_of(value), ""] if isinstance(value, ModuleType) else class_name(value)

    def _guard(self, guard: Guard) -> Plain:
        value = self._value(guard)
        return [self._places.place(guard.place), guard.relation, value, guard.asked, self._writer.line(guard.line)]

    def _value(self, guard: Guard) -> Plain:
        value, name = guard.value, guard.place.text
        match guard.relation:
            case "equals" | "value" | "own":
                self._note(value)
                return self._writer.value(value)
            case "absent" | "missing":
                if not value:  # a name of Python's own, as a rule
                    self._rests_on.builtin(name)
                return str(value)
            case "is":
                return self._identity(value, name)
            case "type":
                return self._class(value)
            case "length":
                return [self._class(value[0]), value[1]]
            case "keys":
                for key in value[1]:
                    self._note(key)
                return [self._class(value[0]), self._writer.values(value[1])]
            case "numbers":
                for number in value.values:
                    self._note(number)
                return [list(value.positions), self._writer.values(value.values)]
            case "contents":
                return self._contents(value, name)
            case "shared":
                return self._places.place(value)
            case "member":
                return [value[0], self._member(value[1], f"{name}.{value[0]}")]
        raise NotStored(f"{name} is an object of another package")

    def _note(self, value: Any) -> None:
        """The class of an enumeration's member may be the user's."""
        if isinstance(value, Enum):
            self._rests_on.enumerations[type(value)] = None

    def _class(self, cls: type) -> Plain:
        if not is_foreign(cls.__module__):
            self._rests_on.module(cls.__module__)
        return class_name(cls)

    def _contents(self, value: Contents, name: str) -> Plain:
        if len(value.data) > MAX_CONTENTS:
            raise NotStored(f"the contents of {name} are {len(value.data)} bytes")
        return [dtype_text(value.dtype), list(value.shape), data_text(value.data)]

    # -- objects -----------------------------------------------------------------------------------------------------

    def _identity(self, value: Any, text: str) -> Plain:
        """What another process must find in place of this very object."""
        if is_jitted(value):
            return ["jitted", *jitted_key(value)]
        if isinstance(value, FunctionType):
            self._rests_on.value(value)
            return ["code of", function_digest(value)]
        if isinstance(value, CodeType):
            return ["code", code_digest(value)]
        if type(value) is tuple:
            return ["defaults", [default_text(d) for d in value]]
        if isinstance(value, _NAMED):
            self._rests_on.value(value)
            name = name_of(value)
            if name is not None:
                return ["named", *name, *self._made(value)]
        raise NotStored(f"{text} is an object that is known by nothing but itself")

    def _made(self, value: Any) -> list[Plain]:
        """What the class says of its instances or members where no guard does."""
        if not isinstance(value, type) or is_foreign(value.__module__):
            return []
        if issubclass(value, Enum):
            self._rests_on.enumerations[value] = None
        return declared(value)

    def _member(self, value: Any, text: str) -> Plain:
        """What a class holds under a name: functions in their wrappings."""
        inner = behind(value)
        if _is_field(value):
            return [type(value).__qualname__, repr(value)]
        if inner is None:
            raise NotStored(f"{text} is an object that is known by nothing but itself")
        self._rests_on.value(inner)
        return [type(value).__qualname__, function_digest(inner)]


def jitted_key(value: Any) -> list[Plain]:
    """What another process must find in place of a jitted or transformed function."""
    if type(value).__module__ not in ("tenferro.jit", "tenferro.transformed"):
        raise NotStored(f"{value.__name__} has rules of its own")
    return [class_name(type(value))[0], function_digest(value.__wrapped__), maker_key(value._around)]


def declared(cls: type) -> list[Plain]:
    """The members of an enumeration, the defaults of a dataclass; nothing for other classes."""
    if issubclass(cls, Enum):
        return [[[name, default_text(member.value)] for name, member in cls.__members__.items()]]
    if not dataclasses.is_dataclass(cls):
        return []
    found = []
    for f in dataclasses.fields(cls):
        make = f.default_factory
        made: Plain = None
        if make is not dataclasses.MISSING:
            made = class_name(make) if isinstance(make, type) else callable_key(make)
        found.append([f.name, default_text(f.default), made])
    return [found]


def _is_field(member: Any) -> bool:
    """Whether it is what namedtuples and classes with slots hold for a field; its text says which."""
    return isinstance(member, MemberDescriptorType) or type(member).__name__ == "_tuplegetter"


class CaptureReader:
    """Reads assumptions about what stands in this process. Any error means that something is not the same here."""

    def __init__(self, reader: Reader, function: Callable[..., Any], receiver: Any) -> None:
        self._reader = reader
        self._places = PlaceReader(reader, function, receiver)
        self._receiver = receiver

    def captures(self, x: Sequence[Plain]) -> Captures | None:
        """The assumptions, every one of which holds now; else None."""
        guards, sources, foreign = x
        for place, name in foreign:
            found = named(tuple(name))
            if found is None or self._places.read(self._places.place(place)) is not found:
                return None
        made = []
        for guard in guards:
            found = self._guard(*guard)
            if found is None or not found.holds(self._receiver):
                return None
            made.append(found)
        read = [Source(self._places.place(s), None) for s in sources]
        return Captures(tuple(made), tuple(read), reader_of(made, read))

    def _guard(self, place: Plain, relation: str, value: Plain, asked: str, line: int) -> Guard | None:
        where = self._places.place(place)
        found = self._value(where, str(relation), value)
        return None if found is None else Guard(where, relation, found[0], str(asked), self._reader.line(line))

    def _value(self, place: Place, relation: str, x: Plain) -> tuple[Any] | None:
        """What the guard compares with, or None where the present object is another one."""
        match relation:
            case "equals" | "value" | "own":
                return (self._reader.value(x),)
            case "absent" | "missing":
                return (str(x),)
            case "is":
                present = self._places.read(place)
                return (present,) if self._is_same(present, *x) else None
            case "type":
                return (self._class(x),)
            case "length":
                return ((self._class(x[0]), int(x[1])),)
            case "keys":
                return ((self._class(x[0]), self._reader.values(x[1])),)
            case "numbers":
                return (Numbers(tuple(map(int, x[0])), tuple(self._reader.values(x[1]))),)
            case "contents":
                from tenferro.tracer.contents import Contents

                dtype, shape, data = x
                return (Contents(self._reader.dtype(dtype), tuple(map(int, shape)), data_of(data)),)
            case "shared":
                return (self._places.place(x),)
            case "member":
                name, (kind, digest) = x
                present = lookup(self._places.read(place), str(name))
                inner = behind(present)
                known = repr(present) if inner is None else function_digest(inner)
                is_known = inner is not None or _is_field(present)
                is_same = is_known and (type(present).__qualname__, known) == (kind, digest)
                return ((name, present),) if is_same else None
        raise ValueError(f"{relation!r} is no relation")

    def _class(self, x: Sequence[Plain]) -> type:
        found: type = self._reader.named_class(*x)
        return found

    def _is_same(self, present: Any, kind: str, *x: Any) -> bool:
        match kind:
            case "jitted":
                return is_jitted(present) and repr(jitted_key(present)) == repr(list(x))
            case "code of":
                return isinstance(present, FunctionType) and function_digest(present) == x[0]
            case "code":
                return isinstance(present, CodeType) and code_digest(present) == x[0]
            case "defaults":
                return type(present) is tuple and repr([default_text(d) for d in present]) == repr(x[0])
            case "named":
                module, path, *more = x
                if present is None or named((module, path)) is not present:
                    return False
                now = declared(present) if isinstance(present, type) and not is_foreign(present.__module__) else []
                return repr(now) == repr(more)
        raise ValueError(f"{kind!r} is no identity")
