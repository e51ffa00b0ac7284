"""Arguments of a call in, sorted leaves and a lookup key out.

A call is brought into canonical form (keywords that name positional parameters move into place), static arguments are
taken out by value, the rest is flattened as pytrees, and every leaf becomes an array, a traced int or a static value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from operator import index
from typing import Any, Literal, TypeAlias

import numpy as np

from tenferro.tracer import tree
from tenferro.tracer.errors import DtypeError, RangeError, TraceError
from tenferro.tracer.exact import static_key
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import own_dtype

AnyArray: TypeAlias = np.ndarray[Any, Any]
LeafSort = Literal["array", "int", "static"]
Argnums: TypeAlias = int | Iterable[int] | None
Argnames: TypeAlias = str | Iterable[str] | None

SUPPORTED = frozenset(
    np.dtype(t)
    for t in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)
SUPPORTED_TEXT = "bool, int8 to int64, uint8 to uint64, float16, float32, float64, complex64 or complex128"

FLOAT64, COMPLEX128 = np.dtype(np.float64), np.dtype(np.complex128)
_INT64 = np.iinfo(np.int64)

# Classes that hold an ndarray (tn.Array), with the function that gives it.
_wrappers: dict[type, Callable[[Any], AnyArray]] = {}


def register_wrapper(cls: type, unwrap: Callable[[Any], AnyArray]) -> None:
    """Make ``cls`` an array class of its own: its instances are array leaves."""
    _wrappers[cls] = unwrap


@dataclass(frozen=True, slots=True)
class ArgumentLeaf:
    """A leaf as the program sees it. ``value``: the ndarray (rank 0 for a float or complex), the int, or the static
    value. ``key`` is what it adds to the lookup key; ``original`` is the object that the caller passed."""

    sort: LeafSort
    value: Any
    key: Hashable
    name: str
    original: Any
    weak: bool = False
    wrapped: bool = False
    donated: bool = False

    @property
    def scalar(self) -> bool:
        """Whether it is a number, a NumPy scalar or a tn.Array that stands for one: immutable, and a key of its own."""
        return not isinstance(self.original, np.ndarray) and getattr(self.original, "_scalar", True)


def _is_static(value: Any) -> bool:
    if isinstance(value, bool | str | bytes | Enum | np.dtype | slice | range | type) or value is Ellipsis:
        return True
    return callable(value) and not hasattr(value, "__array__")


_OTHER_NAMES = frozenset(c for c in "ilqILQ" if own_dtype(np.dtype(c)).char != c)
"""C's integer types that have the width of another one."""


def as_native(array: AnyArray, name: str, function: str) -> AnyArray:
    """The same numbers as an exact ndarray in native byte order and aligned; a copy only where it has to be.

    DtypeError for strings, objects, longdouble, dates and structured dtypes."""
    dtype = array.dtype
    if dtype not in SUPPORTED:
        native = dtype.newbyteorder("=")
        if native not in SUPPORTED:
            raise DtypeError(
                f"{function}: argument {name} has dtype {dtype}; {SUPPORTED_TEXT} is needed{at(user_line())}"
            )
        return array.astype(native)
    if dtype.char in _OTHER_NAMES:  # one program serves them, and its results should not depend on who came first
        array = array.view(own_dtype(dtype))
    if not array.flags.aligned:
        return array.copy()
    if type(array) is np.ndarray or not isinstance(array, np.ndarray):  # what is none lies on an engine, which made it
        return array
    return array.view(np.ndarray)


def classify(value: Any, name: str, function: str, donated: bool = False) -> ArgumentLeaf:
    """Sort one leaf. DtypeError names the class and the argument of one that is neither array nor number."""
    cls = type(value)
    if cls in _wrappers:
        inner = as_native(_wrappers[cls](value), name, function)
        key: tuple[Hashable, ...] = (inner.dtype, "scalar" if value._scalar else inner.ndim)
        if not isinstance(inner, np.ndarray):
            key = (*key, value.device)
        return ArgumentLeaf("array", inner, key, name, value, wrapped=True, donated=donated)
    if cls is np.ndarray or cls is np.memmap:
        array = as_native(value, name, function)
        return ArgumentLeaf("array", array, (array.dtype, array.ndim), name, value, donated=donated)
    if hasattr(cls, "live_trace"):
        value.live_trace()  # raises: its trace is over
    if isinstance(value, np.ndarray):
        raise DtypeError(
            f"{function}: argument {name} is a {cls.__module__}.{cls.__qualname__}, a subclass of ndarray; "
            f"numpy.ndarray is needed, np.asarray({name}) makes one{at(user_line())}"
        )
    if isinstance(value, np.generic) or (isinstance(value, float | complex) and cls not in (float, complex)):
        # Subclasses of Python's numbers are no weak numbers, as in NumPy.
        array = as_native(np.asarray(value), name, function)
        return ArgumentLeaf("array", array, (array.dtype, "scalar"), name, value, donated=donated)
    if _is_static(value):
        return ArgumentLeaf("static", value, _checked_static(value, name, function), name, value)
    if isinstance(value, int) and cls is not int:
        array = np.array(_checked_int(value, name, function))
        return ArgumentLeaf("array", array, (array.dtype, "scalar"), name, value, donated=donated)
    if isinstance(value, int):
        return ArgumentLeaf("int", _checked_int(value, name, function), int, name, value)
    if isinstance(value, float):
        return ArgumentLeaf("array", np.array(value, FLOAT64), float, name, value, weak=True)
    if isinstance(value, complex):
        return ArgumentLeaf("array", np.array(value, COMPLEX128), complex, name, value, weak=True)
    raise DtypeError(
        f"{function}: argument {name} is a {cls.__module__}.{cls.__qualname__}; an array, a number, a pytree of them "
        f"or a static value is needed (np.asarray, tn.tree.register_pytree_node, static_argnames){at(user_line())}"
    )


def _checked_int(value: int, name: str, function: str) -> int:
    if not _INT64.min <= value <= _INT64.max:
        raise RangeError(
            f"{function}: argument {name} is {value}; an int between -2**63 and 2**63 - 1 is needed{at(user_line())}"
        )
    return int(value)


def _checked_static(value: Any, name: str, function: str) -> Hashable:
    try:
        return static_key(value)
    except TypeError:
        raise _unhashable(value, name, function) from None
    except RecursionError:
        raise ValueError(
            f"{function}: static argument {name} is nested too deeply to be hashed; a flat value is needed"
            f"{at(user_line())}"
        ) from None


def _unhashable(value: Any, name: str, function: str) -> TraceError:
    return TraceError(
        f"{function}: static argument {name} is {_short(value)}, which cannot be hashed; a hashable value such as a "
        f"tuple is needed{at(user_line())}"
    )


def _hashable(value: Any, name: str, function: str) -> Hashable:
    """The key of an argument that the caller declared static: a list, which the next line could change, is refused."""
    if isinstance(value, slice):  # hashable from Python 3.12 on
        return _checked_static(value, name, function)
    try:
        hash(value)
    except TypeError:
        raise _unhashable(value, name, function) from None
    return _checked_static(value, name, function)


def _short(value: Any) -> str:
    text = f"a {type(value).__name__} {value!r}"
    return text if len(text) <= 80 else text[:77] + "..."


Rebuild: TypeAlias = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class BoundCall:
    """``key``: (structure, leaf keys, static values). ``dynamic``: the leaves that become program inputs, in order.
    ``rebuild(values)`` puts values for them back into (args, kwargs). ``receiver``: ``self`` of a method, or None.
    ``leaves`` and ``statics`` (name and value) are all of it, for texts."""

    key: Hashable
    dynamic: tuple[ArgumentLeaf, ...]
    leaves: tuple[ArgumentLeaf, ...]
    statics: tuple[tuple[str, Any], ...]
    rebuild: Rebuild
    receiver: Any

    @property
    def wrapped(self) -> bool:
        return any(leaf.wrapped for leaf in self.dynamic)


class _Hole:
    """Stands in the tree where a static argument or ``self`` was taken out; a container without children."""


HOLE = _Hole()
tree.register_pytree_node(_Hole, lambda _: ((), None), lambda *_: HOLE)


def function_name(function: Callable[..., Any]) -> str:
    """The function's name without the functions around it; a partial has its function's, an object its class's."""
    function = getattr(function, "func", function)
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]


def check_function(function: Any, what: str) -> None:
    """TypeError for what is no function of arrays; ``what`` names the transformation and the argument."""
    found, cure = f"an object of class {type(function).__name__}", "a function is needed"
    if isinstance(function, classmethod):
        cure = f"the function inside it is needed: @classmethod stands above @tn.{what.partition(':')[0]}"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        found, cure = f"{function.__name__}, a generator", "a function that returns arrays is needed"
    elif inspect.iscoroutinefunction(function):
        found, cure = f"{function.__name__}, a coroutine", "a function that returns arrays is needed"
    elif callable(function):
        return
    raise TypeError(f"{what} is {found}; {cure}{at(user_line())}")


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the positional parameters, for error texts; none where they are not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple([p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def argument_name(path: str, function: Callable[..., Any] | None = None) -> str:
    """How a leaf of ``(args, kwargs)`` reads: the path ``[0][1]['w']`` as ``y['w']``, or ``1['w']`` where the name of
    the parameter is not known."""
    kind, _, rest = path.partition("]")
    number, _, inside = rest.removeprefix("[").partition("]")
    names = () if function is None or kind != "[0" else parameter_names(function)
    if kind == "[0" and number.isdigit() and int(number) < len(names):
        number = names[int(number)]
    return number.strip("'\"") + inside


def _numbers(setting: str, value: Any) -> tuple[int, ...]:
    """The numbers in a setting such as ``static_argnums``; TypeError for anything else."""
    given = () if value is None else value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    found = tuple(given)
    if any(isinstance(n, bool) or not hasattr(type(n), "__index__") for n in found):
        raise TypeError(f"jit: {setting} is {value!r}; an int or a tuple of ints is needed{at(user_line())}")
    return tuple(map(index, found))


def _names(setting: str, value: Any) -> tuple[str, ...]:
    """The names in a setting such as ``static_argnames``; TypeError for anything else."""
    given = () if value is None else value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    found = tuple(given)
    if not all(isinstance(n, str) for n in found):
        raise TypeError(f"jit: {setting} is {value!r}; a str or a tuple of strs is needed{at(user_line())}")
    return found


class Binder:
    """Binds calls of one function. ``static_argnums``, ``static_argnames``, ``donate_argnums`` and ``donate_argnames``
    as JAX's.

    TypeError where a setting holds no numbers or names; ValueError where a name or number does not exist, or an
    argument is both static and donated."""

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: Argnums = (),
        static_argnames: Argnames = (),
        donate_argnums: Argnums = (),
        donate_argnames: Argnames = (),
    ) -> None:
        self.name = function_name(function)
        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None
        parameters = list(self.signature.parameters.values()) if self.signature else []
        self._positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._by_name = {p.name: k for k, p in enumerate(parameters) if p.kind is p.POSITIONAL_OR_KEYWORD}
        self._forms: dict[tuple[Any, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self.is_method = self._positional[:1] == ["self"]
        self._variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters) or self.signature is None
        self._keywords = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self._open_keywords = any(p.kind is p.VAR_KEYWORD for p in parameters) or self.signature is None
        self.static_names = self._checked_names("static_argnames", static_argnames)
        self.static_nums = self._checked_nums("static_argnums", static_argnums)
        self.static_nums |= {self._by_name[n] for n in self.static_names if n in self._by_name}
        self.static_names |= {self._positional[n] for n in self.static_nums if n < len(self._positional)}
        self.donated_nums = self._checked_nums("donate_argnums", donate_argnums)
        self.donated_names = self._checked_names("donate_argnames", donate_argnames)
        self.donated_nums |= {self._by_name[n] for n in self.donated_names if n in self._by_name}
        self.donated_names |= {self._positional[n] for n in self.donated_nums if n < len(self._positional)}
        both: set[Any] = (self.static_nums & self.donated_nums) or (self.static_names & self.donated_names)
        if both:
            raise ValueError(
                f"jit: argument {self._name(min(both))} of {self.name} is both static and donated; one of these is "
                f"needed{at(user_line())}"
            )

    def _checked_names(self, setting: str, value: Argnames) -> set[str]:
        found = set(_names(setting, value))
        for name in sorted(found):
            if name not in self._keywords and not self._open_keywords:
                names = ", ".join(map(repr, sorted(self._keywords)))
                needed = f"one of {names} is needed" if names else f"{self.name} takes no argument by name"
                raise ValueError(f"jit: {setting} has {name!r}; {needed}{at(user_line())}")
        return found

    def _checked_nums(self, setting: str, value: Argnums) -> set[int]:
        count = len(self._positional)
        found = set()
        for n in _numbers(setting, value):
            number = n + count if n < 0 else n
            if number < 0 or (number >= count and not self._variadic):
                taken = [*self._positional, *(["*args"] if self._variadic else [])]
                names = f"{self.name} takes {', '.join(taken) or 'no argument by position'}"
                needed = f"a number from {-count} to {count - 1} is needed, " if count else ""
                raise ValueError(f"jit: {setting} has {n}; {needed}{names}{at(user_line())}")
            found.add(number)
        return found

    def _name(self, place: int | str) -> str:
        if isinstance(place, str):
            return place
        return self._positional[place] if place < len(self._positional) else f"args[{place}]"

    def canonical(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
        """Keywords that continue the positional arguments move into place; the others keep the signature's order.

        TypeError, as Python's own, where the arguments do not fit the signature."""
        if self.signature is None or (not kwargs and len(args) == len(self._positional)):
            return args, kwargs
        form = (len(args), *kwargs)
        known = self._forms.get(form)
        if known is None:
            self._check_call(args, kwargs)
            known = self._forms[form] = self._canonical_form(len(args), tuple(kwargs))
        moved, rest = known
        return (*args, *[kwargs[n] for n in moved]), {n: kwargs[n] for n in rest}

    def _canonical_form(self, count: int, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Which keywords move behind ``count`` positional arguments, and the others in the signature's order."""
        assert self.signature is not None
        moved: list[str] = []
        while count + len(moved) < len(self._positional) and self._positional[count + len(moved)] in names:
            moved.append(self._positional[count + len(moved)])
        order = {name: k for k, name in enumerate(self.signature.parameters)}
        rest = sorted((n for n in names if n not in moved), key=lambda n: order.get(n, len(order)))
        return tuple(moved), tuple(rest)

    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert self.signature is not None
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DtypeError(f"{self.name}: {error}{at(user_line())}") from None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], receiver: Any = None) -> BoundCall:
        """Sort every argument of a call. ``receiver`` is ``args[0]`` of a method whose object is no pytree: it stays
        as it is, keyed by its class (its arrays and numbers are captures)."""
        args, kwargs = self.canonical(args, kwargs)
        statics: dict[int | str, Any] = {}
        keys: list[Hashable] = []
        places: list[int | str] = [*range(len(args)), *kwargs]
        kept: dict[int | str, Any] = dict(zip(places, (*args, *kwargs.values()), strict=True))
        for place in places:
            if receiver is not None and place == 0:
                statics[place], kept[place] = receiver, HOLE
                keys.append(("self", type(receiver)))
            elif place in self.static_nums or place in self.static_names:
                value = kept[place]
                statics[place], kept[place] = value, HOLE
                name = self._name(place)
                keys.append((place, _hashable(value, name, self.name)))
        leaves, structure = self._leaves(kept)
        dynamic = tuple(leaf for leaf in leaves if leaf.sort != "static")
        key = (tuple(kept), structure, tuple(leaf.key for leaf in leaves), tuple(keys))
        named = tuple((self._name(p), v) for p, v in statics.items() if v is not receiver or receiver is None)
        rebuild = _rebuilder(places, statics, leaves, structure)
        return BoundCall(key, dynamic, tuple(leaves), named, rebuild, receiver)

    def _leaves(self, kept: dict[int | str, Any]) -> tuple[list[ArgumentLeaf], tuple[tree.TreeDef, ...]]:
        leaves: list[ArgumentLeaf] = []
        structures = []
        for place, argument in kept.items():
            name = self._name(place)
            donated = place in self.donated_nums or place in self.donated_names
            if type(argument) is np.ndarray:
                leaves.append(classify(argument, name, self.name, donated))
                structures.append(tree.LEAF)
                continue
            values, structure = tree.opened(argument, f"{self.name}: argument {name}")
            for value, path in zip(values, tree.paths(structure), strict=True):
                leaves.append(classify(value, name + path, self.name, donated))
            structures.append(structure)
        return leaves, tuple(structures)


def _rebuilder(
    places: Sequence[int | str],
    statics: dict[int | str, Any],
    leaves: Sequence[ArgumentLeaf],
    structures: Sequence[tree.TreeDef],
) -> Rebuild:
    # Only static values are kept: a program must not keep the arrays of its first call alive.
    fixed = [(leaf.sort == "static", leaf.value if leaf.sort == "static" else None) for leaf in leaves]

    def rebuild(values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        dynamic = iter(values)
        filled = iter([value if is_static else next(dynamic) for is_static, value in fixed])
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for place, structure in zip(places, structures, strict=True):
            taken = [next(filled) for _ in range(structure.num_leaves)]
            argument = statics[place] if place in statics else structure.unflatten(taken)
            if isinstance(place, int):
                args.append(argument)
            else:
                kwargs[place] = argument
        return tuple(args), kwargs

    return rebuild
