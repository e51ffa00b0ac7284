"""``grad`` and its like: functions in, functions that give their derivatives out.

Inside a trace the derivative becomes part of it; outside, a call is traced for itself (``tenferro.once``), so that
Python's ``if`` and ``print`` see concrete values. ``tn.jit(tn.grad(f))`` is one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, TypeAlias

from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import Literal
from tenferro.tracer.signature import function_name
from tenferro.tracer.trace import running_trace
from tenferro.tracer.transform import gradients as traced
from tenferro.tracer.transform.inputs import check_varies
from tenferro.transformed import Function as Function, Transformed as Transformed

Argnums: TypeAlias = int | Sequence[int]


def value_and_grad(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *, allow_int: bool = False
) -> Transformed:
    """A function that returns ``fun``'s value and its gradient.

    fun: returns one real number. argnums: which positional arguments to differentiate with respect to; for an int the
    gradient has the structure of that argument, for a sequence it is a tuple of them. Arguments may be pytrees of
    floats. has_aux: ``fun`` returns a pair, whose second part comes along undifferentiated: the result is then
    ``((value, aux), gradient)``. holomorphic: ``fun`` is a holomorphic function of complex numbers. allow_int: leaves
    of integers are left out, with zeros as their gradients.

    DerivativeError for arguments that are no floats and results that are no number."""
    name = f"value_and_grad({function_name(fun)})"
    return Transformed(fun, _gradient(argnums, has_aux, holomorphic, allow_int, name), name)


def grad(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *, allow_int: bool = False
) -> Transformed:
    """A function that returns ``fun``'s gradient: ``value_and_grad`` without the value. With ``has_aux``, a pair of the
    gradient and what comes along."""
    name = f"grad({function_name(fun)})"
    both = _gradient(argnums, has_aux, holomorphic, allow_int, name)

    def around(function: Function) -> Function:
        found = both(function)

        def gradient(*args: Any, **kwargs: Any) -> Any:
            value, result = found(*args, **kwargs)
            return (result, value[1]) if has_aux else result

        return gradient

    return Transformed(fun, around, name)


def _gradient(
    argnums: Argnums, has_aux: bool, holomorphic: bool, allow_int: bool, name: str
) -> Callable[[Function], Function]:
    numbers = _numbers(argnums, name)

    def around(function: Function) -> Function:
        def gradient(*args: Any, **kwargs: Any) -> Any:
            trace = running_trace(name)
            chosen = _chosen(numbers, args, name)
            found = traced.linearize(
                trace, _of_chosen(function, chosen, args, kwargs), [args[k] for k in chosen], name, has_aux
            )
            for leaf in found.arguments.leaves:
                if not (allow_int and leaf.operand.type.dtype.kind in "biu"):
                    check_varies(leaf, name, "argument", holomorphic)
            result = traced.check_scalar_result(found, name, holomorphic)
            one = Literal(1.0 if not holomorphic else 1 + 0j, result.operand.type.dtype)
            slopes = traced.closed(trace, found.arguments, found.pull([one]))
            value = found.results.close([traced.delivered(trace, result.operand, result)])
            return (value, found.aux) if has_aux else value, slopes[0] if isinstance(argnums, int) else slopes

        return gradient

    return around


def _of_chosen(function: Function, chosen: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]) -> Function:
    """The function of its chosen arguments alone."""

    def called(*values: Any) -> Any:
        given = list(args)
        for k, value in zip(chosen, values, strict=True):
            given[k] = value
        return function(*given, **kwargs)

    return called


def _numbers(argnums: Argnums, name: str) -> tuple[int, ...]:
    found = (argnums,) if isinstance(argnums, int) else argnums
    try:
        return tuple(index(k) for k in found)
    except TypeError:
        raise TypeError(
            f"{name}: argnums is {argnums!r}; an int or a sequence of them is needed{at(user_line())}"
        ) from None


def _chosen(numbers: Sequence[int], args: Sequence[Any], name: str) -> list[int]:
    """The arguments' places, from 0 on, each once."""
    count = len(args)
    for k in numbers:
        if not -count <= k < count:
            raise TypeError(
                f"{name}: argnums names argument {k} of a call with {count} positional ones; arguments that are "
                f"differentiated are given by position{at(user_line())}"
            )
    found = [k % count for k in numbers]
    if len(set(found)) != len(found):
        raise ValueError(
            f"{name}: argnums {tuple(numbers)} names an argument twice; each once is needed{at(user_line())}"
        )
    return found
