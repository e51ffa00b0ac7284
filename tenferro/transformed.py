"""Transformed functions: a function and what a transformation makes of it in, a callable out.

Inside a trace the transformation becomes part of it; outside, a call is traced for itself (``tenferro.once``), so that
Python's ``if`` and ``print`` see concrete values. ``tn.jit`` of a transformed function is one program.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, TypeAlias

from tenferro.staging import Function as Function, Staged
from tenferro.tracer.signature import check_function
from tenferro.tracer.trace import current_trace

Around: TypeAlias = Callable[[Function], Function]
"""The function that is traced in another one's place, from that one."""


class Transformed:
    """A function made of another one by a transformation.

    ``__wrapped__`` is the innermost function, the user's own. ``_around`` makes, of the function that is traced in its
    place, the function that runs inside the trace."""

    __wrapped__: Function
    __name__: str
    __qualname__: str

    def __init__(self, function: Function, around: Around, name: str, parameters: Sequence[str] | None = None) -> None:
        """``parameters``: names of the positional ones, where they are not the function's own. TypeError for what is no
        function."""
        check_function(function, f"{name.partition('(')[0]}: fun")
        inner, outer = unwrapped(function)
        functools.update_wrapper(self, inner)
        self.__dict__["__name__"] = name  # the qualified name stays the user's: pickling a decorated function finds it
        self.__wrapped__ = inner
        if parameters is not None:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            self.__signature__ = inspect.Signature([inspect.Parameter(p, kind) for p in parameters])
        self._staged = around if isinstance(around, Staged) else None
        self._outer = outer
        self._around: Around = around if outer is None else _composed(around, outer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            from tenferro.tracer.substitution import substitute

            return self._around(substitute(self.__wrapped__))(*args, **kwargs)
        from tenferro import once

        if self._staged is None:
            return once.call(self._around(self.__wrapped__), args, kwargs, self.__name__)
        function = self.__wrapped__ if self._outer is None else self._outer(self.__wrapped__)
        return once.staged(self._staged, function, args, kwargs, self.__name__)

    def _unwrapped(self) -> tuple[Function, Around | None]:
        return self.__wrapped__, self._around

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> str:
        return str(self.__qualname__)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


def _composed(around: Around, outer: Around) -> Around:
    def both(function: Function) -> Function:
        return around(outer(function))

    return both


def of_method(method: MethodType, around: Around | None) -> tuple[Function, Around | None]:
    """A plain method, and what is made of it where ``around`` makes that of its function."""
    if around is None:
        return method, None
    return method, lambda bound: functools.partial(around(bound.__func__), bound.__self__)


def unwrapped(function: Function) -> tuple[Function, Around | None]:
    """The user's own function inside transformed and jitted ones, and what they make of it: a jitted function inside a
    transformation is part of its trace. Their classes say so themselves (``_unwrapped``)."""
    found = getattr(type(function), "_unwrapped", None)
    return (function, None) if found is None else found(function)
