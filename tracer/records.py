"""Dataclasses whose methods are made when they are first called: a class with annotations in, the dataclass out.

The standard decorator writes and compiles the text of six methods for every class: 0.35 ms, half of what it took to
start a process that finds everything else in the disk cache. Such a process imports more than 200 classes, makes
instances of a few and compares fewer. Here each method is compiled at its first call.

What comes out behaves as the standard's, which is asked for ``dataclasses.fields``, ``replace`` and their like, and
makes what is not written here: orders, ``ClassVar`` and ``InitVar``, and what derives from classes of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from tenferro.tracer.forking import Renewed

_SPECIAL = ("ClassVar", "typing.ClassVar", "InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")
_OPTIONS = {"frozen", "slots", "eq", "repr"}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass, replace as replace
else:

    def replace(x, /, **changes):
        """``dataclasses.replace``, in a fifth of the time for most classes made here: fields are known."""
        record = vars(type(x)).get("__late_methods__", _NONE)
        if not record.is_plain:
            return dataclasses.replace(x, **changes)
        values = [changes.pop(n) if n in changes else getattr(x, n) for n in record.names]
        return type(x)(*values, **changes)

    def dataclass(cls=None, /, **options):
        """``dataclasses.dataclass``; with ``frozen``, ``slots``, ``eq`` and ``repr`` alone, its methods are late."""

        def made(cls):
            kinds = inspect.get_annotations(cls)
            is_plain = all(type(k) is str and not k.startswith(_SPECIAL) for k in kinds.values())
            bases = [b for b in reversed(cls.__mro__[1:]) if "__dataclass_fields__" in vars(b)]
            is_ours = all(vars(b).get("__late_methods__", _NONE).frozen == options.get("frozen", False) for b in bases)
            if not is_plain or options.keys() - _OPTIONS or not is_ours:
                return dataclasses.dataclass(**options)(cls)
            return _Record(cls, tuple(kinds), bases, **options).made

        return made if cls is None else made(cls)


_asking = Renewed(threading.RLock)
"""Held while the standard library is asked, which takes fields out of the class that it is given."""


class _None:
    frozen = None
    is_plain = False


_NONE = _None()


class _Record:
    """One class being made, and what its methods are made of."""

    def __init__(
        self, cls: type, own: tuple[str, ...], bases: list[type], frozen: bool = False, slots: bool = False,
        eq: bool = True, repr: bool = True,
    ) -> None:  # fmt: skip
        self.frozen = frozen
        self._options = {"eq": eq, "repr": repr}
        self._slots = slots
        self._derives = bool(bases)
        self._own_names = own
        self._own = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        self._fields: dict[str, Field[Any]] = {}
        for base in bases:
            self._fields |= vars(base)["__late_methods__"]._fields
        given = {n: self._own.get(n, MISSING) for n in own}
        self._fields |= {n: d if isinstance(d, Field) else dataclasses.field(default=d) for n, d in given.items()}
        self.names = tuple(self._fields)
        self.is_plain = "__init__" not in self._own and all(f.init for f in self._fields.values())
        if any(f.kw_only is True for f in self._fields.values()):
            raise TypeError(f"{cls.__qualname__}: kw_only is the standard dataclass's")
        self.made = cast(Any, self._with_slots(cls) if slots else self._without_fields(cls))
        self.made.__late_methods__ = self
        self._original = cls
        if "__match_args__" not in self._own:
            self.made.__match_args__ = tuple([n for n, f in self._fields.items() if f.init])  # type: ignore[misc]
        self.made.__dataclass_fields__ = _Standard(self._standard, "__dataclass_fields__")
        self.made.__dataclass_params__ = _Standard(self._standard, "__dataclass_params__")
        self._add_methods(frozen, eq, repr)

    def _with_slots(self, cls: type) -> type:
        space = {k: v for k, v in self._own.items() if k not in self._fields}
        taken = {n for b in cls.__mro__[1:] for n in vars(b).get("__slots__", ())}
        names = tuple([n for n in self._own_names if n not in taken])
        made: type = type(cls)(cls.__name__, cls.__bases__, {**space, "__slots__": names})
        made.__qualname__ = cls.__qualname__
        return made

    def _without_fields(self, cls: type) -> type:
        for name, value in self._own.items():
            if isinstance(value, Field):
                delattr(cls, name) if value.default is MISSING else setattr(cls, name, value.default)
        return cls

    def _standard(self, attribute: str) -> Any:
        """What the standard library says of the class, asked once."""
        with _asking.lock:
            known = vars(self.made)[attribute]
            return self._ask(attribute) if type(known) is _Standard else known

    def _ask(self, attribute: str) -> Any:
        cls = self._original
        copy = cls if self._slots else type(cls)(cls.__name__, cls.__bases__, dict(self._own))
        copy.__doc__ = copy.__doc__ or " "  # else the standard library describes the class, which takes long
        frozen = self.frozen and self._derives  # whoever derives from a frozen class must be frozen
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen)(copy)
        parameters = made.__dataclass_params__
        parameters.init, parameters.frozen = True, self.frozen
        parameters.repr, parameters.eq = self._options["repr"], self._options["eq"]
        self.made.__dataclass_fields__, self.made.__dataclass_params__ = made.__dataclass_fields__, parameters
        return getattr(self.made, attribute)

    # -- methods -----------------------------------------------------------------------------------------------------

    def _add_methods(self, frozen: bool, eq: bool, repr: bool) -> None:
        if "__init__" not in self._own:
            self._late("__init__", self._init)
        if repr and "__repr__" not in self._own:
            self._late("__repr__", self._repr)
        if eq:
            self._add_hash(frozen)
            if "__eq__" not in self._own:
                self._late("__eq__", self._eq)
        if frozen:
            self._add_frozen()

    def _late(self, name: str, make: Callable[[], Callable[..., Any]]) -> None:
        """A method that makes the real one and puts it in its own place."""
        cls = self.made

        def first(self: Any, *args: Any, **kwargs: Any) -> Any:
            made = make()
            made.__name__, made.__qualname__ = name, f"{cls.__qualname__}.{name}"
            setattr(cls, name, made)
            return made(self, *args, **kwargs)

        first.__name__, first.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, first)

    def _add_hash(self, frozen: bool) -> None:
        given = self._own.get("__hash__", MISSING)
        if given is not MISSING and not (given is None and "__eq__" in self._own):
            return
        if frozen:
            self._late("__hash__", self._hash)
        else:
            self.made.__hash__ = None

    def _add_frozen(self) -> None:
        cls, names = self.made, self.names

        def __setattr__(self: Any, name: str, value: Any) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self: Any, name: str) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
        if self._slots:
            if "__getstate__" not in self._own:
                cls.__getstate__ = lambda self: [getattr(self, n) for n in names]
            if "__setstate__" not in self._own:
                cls.__setstate__ = _set_state(names)

    def _init(self) -> Callable[..., Any]:
        fields = self._fields.items()
        if all(f.init and f.default_factory is MISSING for _, f in fields):
            return self._plain_init()
        space: dict[str, Any] = {"__set__": object.__setattr__, "__no__": MISSING}
        head, lines = ["self"], []
        for n, f in fields:
            space[f"__default_{n}__"], space[f"__make_{n}__"] = f.default, f.default_factory
            value = n
            if f.default_factory is not MISSING:
                value = f"(__make_{n}__() if {n} is __no__ else {n})" if f.init else f"__make_{n}__()"
                head += [f"{n}=__no__"] if f.init else []
            elif f.init:
                head.append(n if f.default is MISSING else f"{n}=__default_{n}__")
            elif self._slots and f.default is not MISSING:
                value = f"__default_{n}__"
            else:
                continue
            lines.append(f"__set__(self, {n!r}, {value})" if self.frozen else f"self.{n} = {value}")
        if hasattr(self.made, "__post_init__"):
            lines.append("self.__post_init__()")
        return _compiled(", ".join(head), lines or ["pass"], space)

    def _plain_init(self) -> Callable[..., Any]:
        """Of a pattern that is compiled once for each number of fields, with the names of these fields."""
        pattern = _pattern(len(self.names), self.frozen, hasattr(self.made, "__post_init__"))
        names = {f"field{k}": n for k, n in enumerate(self.names)}
        code = pattern.__code__
        varnames = tuple([names.get(n, n) for n in code.co_varnames])
        attributes = tuple([names.get(n, n) for n in code.co_names])
        constants = tuple([names.get(c, c) for c in code.co_consts])
        code = code.replace(co_varnames=varnames, co_names=attributes, co_consts=constants)
        defaults = [f.default for f in self._fields.values()]
        given = tuple([d for d in defaults if d is not MISSING])
        if any(d is MISSING for d in defaults[len(defaults) - len(given) :]):
            raise TypeError(f"{self.made.__qualname__}: a field without a default follows one with a default")
        return FunctionType(code, pattern.__globals__, "__init__", given)

    def _eq(self) -> Callable[..., Any]:
        content = _content([n for n, f in self._fields.items() if f.compare])

        def __eq__(self: Any, other: Any) -> Any:
            return content(self) == content(other) if other.__class__ is self.__class__ else NotImplemented

        return __eq__

    def _hash(self) -> Callable[..., Any]:
        content = _content([n for n, f in self._fields.items() if (f.compare if f.hash is None else f.hash)])
        return lambda self: hash(content(self))

    def _repr(self) -> Callable[..., Any]:
        shown = [n for n, f in self._fields.items() if f.repr]

        def __repr__(self: Any) -> str:
            return f"{self.__class__.__qualname__}({', '.join([f'{n}={getattr(self, n)!r}' for n in shown])})"

        return recursive_repr()(__repr__)


def _compiled(head: str, lines: list[str], space: dict[str, Any]) -> Callable[..., Any]:
    exec("\n ".join([f"def method({head}):", *lines]), space)
    made: Callable[..., Any] = space["method"]
    return made


@cache
def _pattern(count: int, frozen: bool, is_followed: bool) -> Callable[..., Any]:
    """``__init__`` for so many fields, named ``field0`` and so on; ``__post_init__`` may follow."""
    names = [f"field{k}" for k in range(count)]
    lines = [f"__set__(self, {n!r}, {n})" if frozen else f"self.{n} = {n}" for n in names]
    lines += ["self.__post_init__()"] if is_followed else []
    return _compiled(", ".join(["self", *names]), lines or ["pass"], {"__set__": object.__setattr__})


def _content(names: list[str]) -> Callable[[Any], Any]:
    """What instances are compared by."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda x: ()
    (name,) = names
    return lambda x: (getattr(x, name),)


class _Standard:
    """In place of an attribute that the standard library asks for."""

    def __init__(self, ask: Callable[[str], Any], attribute: str) -> None:
        self._ask = ask
        self._attribute = attribute

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self._ask(self._attribute)


def _set_state(names: tuple[str, ...]) -> Callable[[Any, Any], None]:
    def __setstate__(self: Any, state: Any) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)  # what is made is frozen

    return __setstate__
