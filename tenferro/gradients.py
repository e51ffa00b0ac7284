"""``grad`` and its like: functions in, functions that give their derivatives out.

Inside a trace the derivative becomes part of it; outside, a call is traced for itself (``tenferro.once``), so that
Python's ``if`` and ``print`` see concrete values. ``tn.jit(tn.grad(f))`` is one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, TypeAlias

import numpy as np

from tenferro.staging import Stage, Staged
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, Literal
from tenferro.tracer.signature import function_name
from tenferro.tracer.trace import Trace, current_trace, running_trace
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform import gradients as traced, marks
from tenferro.tracer.transform.inputs import Leaf, check_varies, delivered, is_numeric, open_tree
from tenferro.tracer.transform.keys import key_of
from tenferro.tracer.tree import container
from tenferro.transformed import Function as Function, Transformed as Transformed

Argnums: TypeAlias = int | Sequence[int]


def value_and_grad(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *, allow_int: bool = False
) -> Transformed:
    """A function that returns ``fun``'s value and its gradient.

    fun: returns one real number. argnums: which positional arguments to differentiate with respect to; for an int the
    gradient has the structure of that argument, for a sequence it is a tuple of them. Arguments may be pytrees of
    floats and of complex numbers x + iy, for which the gradient is ∂f/∂x − i ∂f/∂y. has_aux: ``fun`` returns a pair,
    whose second part comes along undifferentiated: the result is then ``((value, aux), gradient)``. holomorphic:
    ``fun`` is a holomorphic function of complex numbers. allow_int: leaves of integers are left out, with zeros as
    their gradients.

    DerivativeError for arguments that are no floats and results that are no number."""
    name = f"value_and_grad({function_name(fun)})"
    return Transformed(fun, _Gradient(argnums, has_aux, holomorphic, allow_int, name, True), name)


def grad(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *, allow_int: bool = False
) -> Transformed:
    """A function that returns ``fun``'s gradient: ``value_and_grad`` without the value. With ``has_aux``, a pair of the
    gradient and what comes along."""
    name = f"grad({function_name(fun)})"
    return Transformed(fun, _Gradient(argnums, has_aux, holomorphic, allow_int, name, False), name)


class _Gradient(Staged):
    """What ``grad`` and ``value_and_grad`` make of a function; it runs inside a trace."""

    def __init__(
        self, argnums: Argnums, has_aux: bool, holomorphic: bool, allow_int: bool, name: str, with_value: bool
    ) -> None:
        self._numbers = numbers(argnums, name)
        self._is_single = is_number(argnums)
        self._has_aux = has_aux
        self._holomorphic = holomorphic
        self._allow_int = allow_int
        self._name = name
        self._with_value = with_value

    def stage(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
        """Record the function of the chosen arguments alone."""
        chosen = chosen_of(self._numbers, args, self._name)
        called = of_chosen(function, chosen, args, kwargs)
        given = [args[k] for k in chosen]
        trace = running_trace(self._name)
        recorded = traced.record(trace, called, given, self._name, self._has_aux, self._check, "argument")
        settings = ("gradient", self._is_single, self._holomorphic, self._allow_int, self._with_value)
        return Stage(trace, lambda: key_of(recorded, settings), lambda: self._finished(recorded))

    def _check(self, leaf: Leaf) -> None:
        if not (self._allow_int and leaf.operand.type.dtype.kind in "biu"):
            check_varies(leaf, self._name, "argument", self._holomorphic)

    def _finished(self, recorded: traced.Recorded) -> Any:
        result = traced.check_scalar_result(recorded.trace, recorded.results, self._name, self._holomorphic)
        one = Literal(1.0 if not self._holomorphic else 1 + 0j, result.operand.type.dtype)
        found = recorded.linearized()
        slopes = traced.closed(recorded.trace, recorded.arguments, found.pull([one]))
        gradient = slopes[0] if self._is_single else slopes
        if not self._with_value:
            return (gradient, recorded.aux) if self._has_aux else gradient
        value = traced.values_of(recorded)
        return ((value, recorded.aux) if self._has_aux else value), gradient


def of_chosen(function: Function, chosen: Sequence[int], args: Sequence[Any], kwargs: dict[str, Any]) -> Function:
    """The function of its chosen arguments alone."""

    def called(*values: Any) -> Any:
        given = list(args)
        for k, value in zip(chosen, values, strict=True):
            given[k] = value
        return function(*given, **kwargs)

    return called


def is_number(argnums: Argnums) -> bool:
    """Whether it is one argument's place, and no sequence of them; of NumPy's integers too."""
    return isinstance(argnums, int | np.integer)


def numbers(argnums: Argnums, name: str) -> tuple[int, ...]:
    found: Any = (argnums,) if is_number(argnums) else argnums
    try:
        return tuple([index(k) for k in found])
    except TypeError:
        raise TypeError(
            f"{name}: argnums is {argnums!r}; an int or a sequence of them is needed{at(user_line())}"
        ) from None


def chosen_of(numbers: Sequence[int], args: Sequence[Any], name: str) -> list[int]:
    """The arguments' places, from 0 on, each once."""
    count = len(args)
    for k in numbers:
        if not -count <= k < count:
            raise TypeError(
                f"{name}: argnums names argument {k} of a call with {count} positional ones; arguments that are "
                f"differentiated are given by position{at(user_line())}"
            )
    found = [k % count for k in numbers]
    for k in found:
        if args[k] is not None and container(type(args[k])) is None and not is_numeric(args[k]):
            is_object = hasattr(args[k], "__dict__")
            cure = ": argnums=1 leaves the object of a method out, tn.tree.register_pytree_node opens its class"
            raise DerivativeError(
                f"{name}: argument {k} of class {type(args[k]).__name__}; an array or a number of floats, or a pytree "
                f"of them, is needed{cure if is_object else ''}{at(user_line())}"
            )
    if len(set(found)) != len(found):
        raise ValueError(
            f"{name}: argnums {tuple(numbers)} names an argument twice; each once is needed{at(user_line())}"
        )
    return found


def stop_gradient(x: Any) -> Any:
    """The same values, held constant by every derivative: a pytree of arrays and numbers in, the same out.

    Outside a trace it is ``x`` itself."""
    trace = current_trace()
    if trace is None:
        return x

    given = open_tree(trace, x, "stop_gradient: x")
    return given.close([_held(trace, leaf) for leaf in given.leaves])


def _held(trace: Trace, leaf: Leaf) -> TracedArray:
    made = delivered(trace, trace.emit1(marks.stop_gradient, leaf.operand), leaf)
    made.type = ArrayType(made.type.dtype, made.type.shape, leaf.weak)
    return made
