"""Outside objects as one process tells another where to find them, from the jitted function on.

In: roots of places, functions and cells that a trace has found; out: lists of names and places, and in another process
the objects that stand there. A reference says where an object is, never what it is: whoever reads it compares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import CellType, FunctionType, ModuleType
from typing import Any

from tenferro.tracer.attribute_hooks import lookup
from tenferro.tracer.capture_guards import Guard
from tenferro.tracer.code_names import codes_of
from tenferro.tracer.named import behind, name_of, named
from tenferro.tracer.places import Held, Place, Self, Step, is_jitted, plain_function, read
from tenferro.tracer.stored import NotStored, Plain, Reader, Writer

_STEPS = ("attribute", "item")


class PlaceWriter:
    """``functions``: those that the trace has followed; ``guards``: what it has assumed, in the order of finding."""

    def __init__(
        self, writer: Writer, function: Callable[..., Any], functions: Iterable[FunctionType], guards: Iterable[Guard]
    ) -> None:
        self._writer = writer
        self._function = function
        self._plain, held = plain_function(function)
        self._held = [f.value for f in held]
        self._cells = {id(c): (f, k) for f in functions for k, c in enumerate(f.__closure__ or ())}
        self._globals = {id(f.__globals__): f for f in reversed(tuple(functions))}
        self._places: dict[int, tuple[Place, bool]] = {}  # of functions; whether a jitted one stands there
        self._members: dict[int, tuple[Place, str]] = {}  # of functions; the class that has them, and the name there
        self._writing: set[int] = set()
        functions = tuple(functions)
        for guard in guards:
            if guard.relation == "is" and isinstance(guard.value, FunctionType):
                self._places.setdefault(id(guard.value), (guard.place, False))
            elif guard.relation == "is" and is_jitted(guard.value):
                self._places.setdefault(id(guard.value.__wrapped__), (guard.place, True))
            elif guard.relation == "member" and (inner := behind(guard.value[1])) is not None:
                self._members.setdefault(id(inner), (guard.place, guard.value[0]))
        self._inside = self._made_inside(functions)

    def is_inside(self, x: Place | None) -> bool:
        """Whether it leads from a variable of a function that the trace itself has made: what stands there follows from
        the code, and from what is assumed elsewhere."""
        return x is not None and id(x.root) in self._inside

    def _made_inside(self, functions: Sequence[FunctionType]) -> set[int]:
        """The cells of functions that are found nowhere but inside the code of others."""
        codes = {id(c) for f in functions for c in codes_of(f.__code__) if c is not f.__code__}
        found: set[int] = set()
        grown = True
        while grown:
            grown = False
            for f in functions:
                cells = {id(c) for c in f.__closure__ or ()} - found
                if cells and id(f.__code__) in codes and self._is_unplaced(f, found):
                    found |= cells
                    grown = True
        return found

    def _is_unplaced(self, x: FunctionType, inside: set[int]) -> bool:
        if x is self._function or x is self._plain or any(x is held for held in self._held) or name_of(x) is not None:
            return False
        known = self._places.get(id(x))
        return id(x) not in self._members and (known is None or id(known[0].root) in inside)

    def place(self, x: Place) -> Plain:
        """NotStored for a place that no name leads to."""
        return [self._root(x.root, x.text), [self._step(*s) for s in x.steps], x.text]

    def _step(self, kind: str, key: Any) -> Plain:
        if kind == "call":
            raise NotStored("it calls a function that remembers its results")
        return [kind, self._writer.value(key)]

    def _root(self, root: Any, text: str) -> Plain:
        match root:
            case Self():
                return ["self"]
            case Held(value):
                return ["held", self.object(value, text)]
            case (namespace, name):
                return ["global", self._namespace(namespace, text), name]
            case cell:
                return self._cell(cell, text)

    def _namespace(self, namespace: dict[str, Any], text: str) -> Plain:
        """The module's name, empty for the table of modules; a function where that alone has these globals."""
        if namespace is sys.modules:
            return ""
        name = namespace.get("__name__")
        if isinstance(name, str) and vars(sys.modules.get(name, object)) is namespace:
            return name
        if id(namespace) in self._globals:
            return self.object(self._globals[id(namespace)], text)
        raise NotStored(f"{text} is a global of no module")

    def _cell(self, cell: CellType, text: str) -> Plain:
        known = self._cells.get(id(cell))
        if known is None:
            raise NotStored(f"variable {text} belongs to no function that can be found")
        return ["cell", self.object(known[0], text), known[1]]

    def object(self, x: Any, text: str) -> Plain:
        """A function, class, module, or what the jitted function itself holds."""
        if x is self._function:
            return ["function"]
        if x is self._plain:
            return ["plain"]
        for k, held in enumerate(self._held):
            if held is x:
                return ["part", k]
        name = name_of(x)
        if name is not None:
            return ["named", *name]
        if isinstance(x, FunctionType):
            return self._placed(x)
        raise NotStored(f"{text} is an object that no name leads to")

    def _placed(self, x: FunctionType) -> Plain:
        known = self._places.get(id(x))
        if id(x) in self._members:
            place, name = self._members[id(x)]
            return ["member", self.place(place), name]
        if known is None or id(x) in self._writing:
            found: Any = named((x.__module__, x.__qualname__))
            if is_jitted(found) and found.__wrapped__ is x:
                return ["wrapped", x.__module__, x.__qualname__]
            raise NotStored(f"function {x.__qualname__} cannot be found again by its name")
        self._writing.add(id(x))
        try:
            return ["wrapped at" if known[1] else "at", self.place(known[0])]
        finally:
            self._writing.discard(id(x))


class PlaceReader:
    """Finds in this process what a ``PlaceWriter`` named. Any error means that it is not there."""

    def __init__(self, reader: Reader, function: Callable[..., Any], receiver: Any) -> None:
        self._reader = reader
        self._function = function
        self._plain, held = plain_function(function)
        self._held = [f.value for f in held]
        self._receiver = receiver

    def place(self, x: Sequence[Plain]) -> Place:
        root, steps, text = x
        return Place(self._root(*root), tuple([self._step(*s) for s in steps]), str(text))

    def read(self, place: Place) -> Any:
        """What stands there now."""
        return read(place, self._receiver)

    def _step(self, kind: str, key: Plain) -> Step:
        if kind not in _STEPS or (kind == "attribute" and type(key) is not str):
            raise ValueError(f"{kind!r} is no step")
        return (kind, self._reader.value(key))  # type: ignore[return-value]

    def _root(self, kind: str, *parts: Any) -> Any:
        match kind:
            case "self":
                return Self()
            case "held":
                return Held(self.object(parts[0]))
            case "global":
                return (self._namespace(parts[0]), str(parts[1]))
            case "cell":
                return self.object(parts[0]).__closure__[parts[1]]
        raise ValueError(f"{kind!r} is no root")

    def _namespace(self, x: Plain) -> Any:
        if type(x) is list:
            return self.object(x).__globals__
        return vars(sys.modules[x]) if x else sys.modules

    def object(self, x: Sequence[Plain]) -> Any:
        """The object; LookupError where none stands there."""
        kind, *parts = x
        match kind:
            case "function":
                return self._function
            case "plain":
                return self._plain
            case "part":
                return self._held[parts[0]]
            case "named" | "wrapped":
                module, path = parts
                found = named((module, path))
                if found is None:
                    raise LookupError(f"{module}.{path}")
            case "member":
                found = behind(lookup(self.read(self.place(parts[0])), str(parts[1])))
            case "at" | "wrapped at":
                found = self.read(self.place(parts[0]))
            case _:
                raise ValueError(f"{kind!r} is no reference")
        return found.__wrapped__ if kind.startswith("wrapped") and is_jitted(found) else found


def module_of(x: Any) -> str:
    """The name of a module that stands where it says."""
    if not isinstance(x, ModuleType) or name_of(x) is None:
        raise NotStored(f"{x!r} is no module that can be found again")
    return x.__name__
