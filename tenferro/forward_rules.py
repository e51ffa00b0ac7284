"""``custom_jvp``: a function and how its tangents follow from those of its arguments in, a function with that rule
out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenferro.rules import Call, Custom, check_symbolic, fitted, matched, shown, value_of
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Tangents
from tenferro.tracer.program import ArrayType, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.transform import custom, marks
from tenferro.tracer.transform.inputs import delivered, results_of
from tenferro.tracer.transform.linear import has_tangent
from tenferro.transformed import Function


class custom_jvp(Custom):
    """A function whose derivative in a direction is given by ``defjvp``; reverse mode transposes that.

    fun: the function. nondiff_argnums, nondiff_argnames: arguments that are not differentiated and that the rule gets
    first, as they are: functions, settings. Decorate the function with it, then its rule with ``@f.defjvp``."""

    _mark = marks.custom_jvp
    _rules = ("_jvp",)
    _jvp: Function | None = None

    def defjvp(self, jvp: Function, symbolic_zeros: bool = False) -> Function:
        """Set the rule: ``jvp(*nondiff, primals, tangents) -> (value, tangent)``, linear in the tangents."""
        check_symbolic(symbolic_zeros, self._name)
        self._jvp = jvp
        return jvp

    def defjvps(self, *jvps: Function | None) -> None:
        """Set the rule by one function for each argument: ``jvp(tangent, value, *primals)``, or None where the argument
        has no say; the tangent is their sum."""
        if self._nondiff:
            raise TypeError(f"{self._name}: defjvps with nondiff_argnums; defjvp is needed for these{at(user_line())}")

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                raise TypeError(
                    f"{self._name}: defjvps has {len(jvps)} rules for {len(primals)} arguments; one for each is "
                    f"needed{at(user_line())}"
                )
            value = self(*primals)
            slopes = [rule(t, value, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            return value, _sum(running_trace(self._name), value, slopes, self._name)

        self._jvp = jvp

    def _check_rules(self) -> None:
        if self._jvp is None:
            raise AttributeError(f"{self._name}: has no rule; {self._name}.defjvp sets one{at(user_line())}")

    def _rule(self, call: Call) -> custom.ForwardRule:
        return custom.ForwardRule(self._name, len(call.given.leaves), _Forward(self, call).code)


def _sum(trace: Trace, value: Any, slopes: Sequence[Any], name: str) -> Any:
    like = results_of(trace, value, f"{name}: the value")
    wanted = [_tangent_type(leaf.operand.type) for leaf in like.leaves]
    b = Derivation(trace)
    total: list[Operand | None] = [None] * len(wanted)
    for slope in slopes:
        found = matched(trace, slope, like, wanted, f"{name}: a tangent of defjvps")
        total = [b.plus(a, t) for a, t in zip(total, found, strict=True)]
    made = [b.zeros(t) if x is None else x for x, t in zip(total, wanted, strict=True)]
    return like.close([delivered(trace, x, leaf) for x, leaf in zip(made, like.leaves, strict=True)])


def _tangent_type(t: ArrayType) -> ArrayType:
    return ArrayType(t.dtype, t.shape)


class _Forward:
    """The rule of one call of a ``custom_jvp`` function, on operands."""

    def __init__(self, function: custom_jvp, call: Call) -> None:
        self._function = function
        self._call = call

    def code(
        self, trace: Trace, primals: Sequence[Operand], tangents: Tangents, wanted: Sequence[ArrayType]
    ) -> tuple[list[Operand], list[Operand | None]]:
        """Results and their tangents."""
        from tenferro.tracer.substitution import substitute

        name = self._function._name
        rule = self._function._jvp
        assert rule is not None
        fixed, free = self._call.rebuilt(trace, primals)
        given = self._call.tangents(trace, tangents, primals)
        pair = substitute(rule)(*fixed, free, given)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DerivativeError(
                f"{name}: its rule returned {shown(pair)}; a pair of the value and its tangent is "
                f"needed{at(user_line())}"
            )
        what = f"{name}: the value of its rule"
        value = value_of(trace, pair[0], self._call.result, what)
        results = [fitted(trace, x, t, f"{what}{x.path}") for x, t in zip(value.leaves, wanted, strict=True)]
        slopes = matched(trace, pair[1], value, [_tangent_type(t) for t in wanted], f"{name}: the tangent of its rule")
        return results, [t if has_tangent(w.dtype) else None for t, w in zip(slopes, wanted, strict=True)]
