"""Derivatives as linear maps: ``jvp``, ``linearize``, ``vjp`` and ``linear_transpose``.

``vjp`` and ``linearize`` hand out functions of cotangents and tangents. Inside a trace these are part of it; outside
they hold the arrays that the derivative reads, and each of their calls is a small program. They are pytrees of those
arrays, so that jitted functions take and return them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tenferro.shapes import placeholder_types
from tenferro.staging import Stage, Staged
from tenferro.tracer.dim import make_dim
from tenferro.tracer.errors import DerivativeError, LeakError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import DimScalar, Literal, Operand
from tenferro.tracer.signature import check_function, function_name
from tenferro.tracer.substitution import bodies
from tenferro.tracer.trace import Trace, current_trace, running_trace
from tenferro.tracer.traced import fresh, operand
from tenferro.tracer.transform import gradients as traced
from tenferro.tracer.transform.closed import Closed, close
from tenferro.tracer.transform.gradients import Linear
from tenferro.tracer.transform.inputs import Leaf, check_varies, open_tree, results_of
from tenferro.tracer.transform.keys import key_of, key_of_trace, operand_key
from tenferro.tracer.transform.linear import has_tangent, on_tape
from tenferro.tracer.transform.recording import taken_out
from tenferro.tracer.transform.rules import linear_in
from tenferro.tracer.tree import register_pytree_node
from tenferro.transformed import Function, Transformed


def _run(transformation: Staged, fun: Function, args: tuple[Any, ...], name: str) -> Any:
    """Inside a trace at once, outside in one of its own."""
    if current_trace() is not None:
        return transformation(fun)(*args)
    from tenferro import once

    return once.staged(transformation, fun, args, {}, name)


def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, ...]:
    """The value of ``fun`` at a point, and its derivative in a direction: ``(fun(*primals), tangent)``.

    primals, tangents: tuples with one entry for each positional argument, of equal structure, shapes and dtypes;
    tangents of integers are not looked at. has_aux: ``fun`` returns a pair, whose second part comes along as a third
    result.

    ShapeError where tangents do not fit; DerivativeError for operations without a derivative."""
    check_function(fun, "jvp: fun")
    name = f"jvp({function_name(fun)})"
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise TypeError(
                f"{name}: {what} of class {type(given).__name__}; a tuple with one entry for each argument is "
                f"needed{at(user_line())}"
            )

    return _run(_Jvp(name, has_aux), fun, (tuple(primals), tuple(tangents)), name)  # type: ignore[no-any-return]


class _Jvp(Staged):
    def __init__(self, name: str, has_aux: bool) -> None:
        self._name = name
        self._has_aux = has_aux

    def stage(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
        primals, tangents = args
        trace = running_trace(self._name)
        recorded = traced.record(trace, function, primals, self._name, self._has_aux, what="the primals")
        given = traced.matching(trace, recorded.arguments, tangents, f"{self._name}: the tangents")

        def finish() -> tuple[Any, ...]:
            slopes = traced.closed(trace, recorded.results, recorded.pushed(given))
            value = traced.values_of(recorded)
            return (value, slopes, recorded.aux) if self._has_aux else (value, slopes)

        settings = ("jvp", *(None if t is None else operand_key(t) for t in given))
        return Stage(trace, lambda: key_of(recorded, settings), finish)


class LinearFunction:
    """A linear function that ``vjp`` or ``linearize`` made: callable, and a pytree of what it holds."""

    _method = ""

    def __init__(self, name: str, linear: Linear | None, form: Closed | None = None, held: Sequence[Any] = ()) -> None:
        self.__name__ = self.__qualname__ = name
        self._linear = linear  # on a tape of the trace that made it
        self._form = form
        self._held = tuple(held)

    def __call__(self, *args: Any) -> Any:
        if self._linear is not None:
            return self._called(self._live(self._linear), args)
        if current_trace() is not None:
            return self._apply(self._held, args)
        from tenferro import once

        return once.staged(_Applied(self), self, (self._held, args), {}, self.__name__)

    def _live(self, linear: Linear) -> Linear:
        if not linear.trace.alive or current_trace() is not linear.trace:
            raise LeakError(
                f"{self.__name__}: made in a trace that has ended or is not this one; return it from the function that "
                f"makes it{at(user_line())}"
            )
        return linear

    def _apply(self, held: Sequence[Any], args: tuple[Any, ...]) -> Any:
        return _Applied(self).stage(self, (held, args), {}).finish()

    def _called(self, linear: Linear, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def _leaves(self) -> tuple[tuple[Any, ...], Hashable]:
        """What it holds, and what it is."""
        if self._linear is not None:
            linear = self._live(self._linear)
            form, residuals = close(linear, self.__name__)
            return tuple([_held(linear.trace, x) for x in residuals]), (self.__name__, form)
        return self._held, (self.__name__, self._form)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


def _held(trace: Trace, x: Operand) -> Any:
    """A residual as a function holds it: a variable, or a size."""
    if isinstance(x, DimScalar):
        return make_dim(trace, x.expr)
    return int(x.value.real) if isinstance(x, Literal) else fresh(trace, x, scalar=False)


class _Applied(Staged):
    """A linear function that has left its trace, in another one."""

    def __init__(self, function: LinearFunction) -> None:
        self._function = function

    def stage(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
        held, given = args
        linear, name = self._function, self._function.__name__
        trace, form = running_trace(name), linear._form
        assert form is not None
        residuals = [operand(trace, x, name)[0] for x in held]

        def key() -> Hashable | None:
            found = key_of_trace(trace, [open_tree(trace, given, name)])
            sizes = [tuple([trace.hint(n) for n in i.value.type.shape]) for i in trace.late]
            return None if found is None else (form, *map(operand_key, residuals), *sizes, found)

        return Stage(trace, key, lambda: linear._called(form.opened(trace, residuals), given))


class Pullback(LinearFunction):
    """From a cotangent of a function's result to a tuple of those of its arguments. ``tn.vjp`` makes it."""

    def _called(self, linear: Linear, args: tuple[Any, ...]) -> Any:
        if len(args) != 1:
            raise TypeError(
                f"{self.__name__}: {len(args)} arguments; one is needed, the cotangent of the result{at(user_line())}"
            )
        given = traced.matching(linear.trace, linear.results, args[0], f"{self.__name__}: the cotangent")
        return traced.closed(linear.trace, linear.arguments, linear.pull(given))


class Pushforward(LinearFunction):
    """From tangents of a function's arguments to that of its result. ``tn.linearize`` makes it."""

    def _called(self, linear: Linear, args: tuple[Any, ...]) -> Any:
        given = traced.matching(linear.trace, linear.arguments, args, f"{self.__name__}: the tangents")
        return traced.closed(linear.trace, linear.results, linear.push(given))


def _register(cls: type[LinearFunction]) -> None:
    def rebuilt(metadata: Any, held: Sequence[Any]) -> LinearFunction:
        name, form = metadata
        return cls(name, None, form, held)

    register_pytree_node(cls, lambda x: x._leaves(), rebuilt)


_register(Pullback)
_register(Pushforward)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of ``fun`` at a point, and the function that takes cotangents back: ``(fun(*primals), pull)``.

    ``pull(cotangent)`` takes a cotangent of the structure, shapes and dtypes of the result and returns a tuple with
    those of all arguments. It holds what the derivative reads; it may be called often, jitted and transformed.
    has_aux: ``fun`` returns a pair, whose second part comes along as a third result.

    DerivativeError for operations that have no derivative."""
    check_function(fun, "vjp: fun")
    name = f"vjp({function_name(fun)})"

    return _run(_Held(Pullback, name, has_aux), fun, primals, name)  # type: ignore[no-any-return]


def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of ``fun`` at a point, and its derivative there as a function: ``(fun(*primals), push)``.

    ``push(*tangents)`` gives what ``jvp`` gives for these tangents, without computing ``fun`` again. has_aux: ``fun``
    returns a pair, whose second part comes along as a third result."""
    check_function(fun, "linearize: fun")
    name = f"linearize({function_name(fun)})"

    return _run(_Held(Pushforward, name, has_aux), fun, primals, name)  # type: ignore[no-any-return]


class _Held(Staged):
    """A function at a point: its value, and its derivative there as a function."""

    def __init__(self, kind: type[LinearFunction], name: str, has_aux: bool) -> None:
        self._kind = kind
        self._name = name
        self._has_aux = has_aux

    def stage(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
        recorded = traced.record(running_trace(self._name), function, args, self._name, self._has_aux)

        def finish() -> tuple[Any, ...]:
            made = self._kind(self._name, recorded.linearized())
            value = traced.values_of(recorded)
            return (value, made, recorded.aux) if self._has_aux else (value, made)

        return Stage(recorded.trace, lambda: key_of(recorded, self._kind.__name__), finish)


def linear_transpose(fun: Function, *primals: Any) -> Transformed:
    """The transpose of a linear function: from a cotangent of its result to a tuple of those of its arguments.

    primals: arrays, or ``tn.ShapeDtypeStruct``, that give the arguments' shapes and dtypes; values are not looked at.

    DerivativeError where ``fun`` does something that is not linear in its arguments."""
    name = f"linear_transpose({function_name(fun)})"

    def around(function: Function) -> Function:
        def transposed(cotangent: Any) -> Any:
            linear = _linear(running_trace(name), function, primals, name)
            given = traced.matching(linear.trace, linear.results, cotangent, f"{name}: the cotangent")
            return traced.closed(linear.trace, linear.arguments, linear.pull(given))

        return transposed

    return Transformed(fun, around, name, ["cotangent"])


def _linear(trace: Trace, function: Callable[..., Any], primals: tuple[Any, ...], name: str) -> Linear:
    """A function that is linear itself, on a tape."""
    shown = placeholder_types(trace, primals, name)
    with taken_out(trace, name) as recording:
        given = [trace.placeholder(t.operand.type) for t in shown.leaves]
        for leaf in shown.leaves:
            _check_linear(leaf, name)
        variables = [
            leaf.variable(trace, v, f"argument of {name}") for leaf, v in zip(shown.leaves, given, strict=True)
        ]
        with bodies(trace, function) as (body,):
            results = results_of(trace, body(*shown.close(variables)), f"{name}: the result")
        outputs = [leaf.operand for leaf in results.leaves]
    with on_tape(trace) as tape:
        inputs = [tape.input(v.type) for v in given]
        found = linear_in(trace, name, list(zip(given, inputs, strict=True)), recording.operations, outputs)
    for y, slope in zip(outputs, found, strict=True):
        if slope is None and not _is_zero(y):
            raise DerivativeError(
                f"{name}: a result does not depend on the arguments; results that are linear in them are "
                f"needed{at(user_line())}"
            )
    each, ys = tuple([(t,) for t in inputs]), tuple([(y,) for y in found])
    return Linear(trace, name, shown, tuple(given), results, tape, each, ys)


def _check_linear(leaf: Leaf, name: str) -> None:
    if not has_tangent(leaf.operand.type.dtype):
        check_varies(leaf, name, "argument", False)


def _is_zero(y: Operand) -> bool:
    return isinstance(y, Literal) and not y.value
