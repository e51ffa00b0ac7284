"""Functions in, digests of their code out: the same in every process that runs the same text, line numbers included."""

from __future__ import annotations

import functools
from hashlib import sha256
from types import CodeType, FunctionType, MethodType
from typing import Any

from tenferro.tracer.named import name_of
from tenferro.tracer.ownership import is_foreign
from tenferro.tracer.stored import NotStored, Plain, Writer, class_name

_MAX_DEPTH = 8  # of functions and objects in one another


@functools.lru_cache(maxsize=1024)
def code_digest(code: CodeType) -> str:
    """Of everything that the code does, and where it stands: a program's lines are its own."""
    return sha256(repr(_parts(code)).encode()).hexdigest()


def _parts(code: CodeType) -> tuple[Any, ...]:
    return (
        code.co_code, tuple(map(_constant, code.co_consts)), code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        code.co_qualname, code.co_filename, code.co_firstlineno, code.co_linetable, code.co_exceptiontable,
    )  # fmt: skip


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _parts(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):  # its order differs from process to process
        return ("frozenset", *sorted(repr(_constant(v)) for v in value))
    return (type(value).__name__, value)


def function_digest(function: FunctionType) -> str:
    """Of the code and its default arguments; of those that can change, the class alone."""
    keywords = function.__kwdefaults__ or {}
    text = [
        function.__module__, function.__qualname__, code_digest(function.__code__),
        [default_text(d) for d in function.__defaults__ or ()], [[k, default_text(d)] for k, d in keywords.items()],
    ]  # fmt: skip
    return sha256(repr(text).encode()).hexdigest()


def default_text(value: Any) -> Plain:
    """A default argument, exactly; of an array or an object the class, for what is in it is guarded."""
    try:
        return Writer().value(value)
    except NotStored:
        return ["of class", type(value).__module__, type(value).__qualname__]


def callable_key(function: Any, seen: set[int] | None = None) -> Plain:
    """What tells jitted functions apart: code, and the code of the functions that they hold. NotStored for what is made
    of neither functions, methods, partials, objects that are called nor NumPy's own."""
    seen = set() if seen is None else seen
    seen.add(id(function))
    if isinstance(function, FunctionType):
        held = [f for f in map(_content, function.__closure__ or ()) if _is_followed(f) and id(f) not in seen]
        return ["function", function_digest(function), *(callable_key(f, seen) for f in held)]
    if isinstance(function, MethodType):
        return ["method", callable_key(function.__func__, seen), class_name(type(function.__self__))]
    if type(function) is functools.partial:
        return ["partial", callable_key(function.func, seen), len(function.args), list(function.keywords)]
    call = getattr(type(function), "__call__", None)  # noqa: B004
    if isinstance(call, FunctionType) and not hasattr(function, "__wrapped__"):
        return ["object", class_name(type(function)), callable_key(call, seen)]
    name = name_of(function)
    if name is not None and is_foreign(name[0]) and not isinstance(function, type):  # one of NumPy's
        return ["named", *name]
    raise NotStored(f"a {type(function).__module__}.{type(function).__qualname__} is traced")


def maker_key(value: Any, depth: int = 0) -> Plain:
    """What tells apart what transformations are made of: functions and objects of this package with their settings.
    NotStored where a function of the user's own, an engine or a mesh is among these."""
    if depth == _MAX_DEPTH:
        raise NotStored("a transformation is made of too much")
    parts: Any
    if isinstance(value, FunctionType) and _is_ours(value.__module__):
        parts = [_content(c) for c in value.__closure__ or ()]
        return ["function", function_digest(value), *(maker_key(p, depth + 1) for p in parts)]
    if isinstance(value, MethodType):
        return ["method", maker_key(value.__func__, depth + 1), maker_key(value.__self__, depth + 1)]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *(maker_key(p, depth + 1) for p in value)]
    if _is_ours(type(value).__module__) and not isinstance(value, type):
        slots = {n for c in type(value).__mro__ for n in vars(c).get("__slots__", ())}
        names = sorted(slots | set(getattr(value, "__dict__", ())))
        parts = {n: getattr(value, n) for n in names if hasattr(value, n)}
        return ["object", class_name(type(value)), *([n, maker_key(p, depth + 1)] for n, p in parts.items())]
    return Writer().value(value)


def _is_ours(module: str | None) -> bool:
    return (module or "").startswith("tenferro.")


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _is_followed(value: Any) -> bool:
    return isinstance(value, FunctionType | MethodType) or type(value) is functools.partial
