"""``custom_vmap``: a function and what it is for all lanes at once in, a function with that rule out.

The function is recorded where it is called, and a mark behind it carries the rule; ``vmap`` asks the rule instead of
mapping what was recorded. What the rule records is as any other code: it may be differentiated and mapped again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenferro import tree
from tenferro.rules import Call, Custom, _positional, fitted
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dim import make_dim
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import BatchError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Tangents
from tenferro.tracer.program import ArrayType, Operand, Operation
from tenferro.tracer.trace import Trace, current_trace
from tenferro.tracer.transform import marks
from tenferro.tracer.transform.inputs import Opened, delivered, results_of
from tenferro.tracer.transform.rules import Rule, users_code
from tenferro.tracer.tree import in_order_of
from tenferro.transformed import Function


class custom_vmap(Custom):
    """A function whose ``vmap`` is given by ``def_vmap``. Decorate the function with it, then its rule with
    ``@f.def_vmap``. A derivative taken inside of ``vmap`` is that of the function, one taken of what ``vmap`` made is
    that of the rule."""

    _mark = marks.custom_vmap
    _rules = ("_vmap",)
    _vmap: Function | None = None

    def __init__(self, fun: Function) -> None:
        super().__init__(fun)

    def def_vmap(self, vmap: Function) -> Function:
        """Set the rule: ``vmap(axis_size, in_batched, *args) -> (result, out_batched)``.

        axis_size: the number of lanes. in_batched: a list with, for each argument, a pytree like it of bools: whether a
        leaf has the lanes along its leading axis. out_batched: the same of the result; what is not is the same in all
        lanes. BatchError where structure, shapes or dtypes are not those of the function."""
        self._vmap = vmap
        return vmap

    def _check_rules(self) -> None:
        if self._vmap is None:
            raise AttributeError(f"{self._name}: has no rule; {self._name}.def_vmap sets one{at(user_line())}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = _positional(self.__wrapped__, args, kwargs, self._name)
        self._check_rules()
        trace = current_trace()
        if trace is None:
            return self.__wrapped__(*args)
        from tenferro.tracer.substitution import substitute

        call = Call(trace, self._name, args, ())
        leaves = call.given.leaves
        variables = [x.variable(trace, x.operand, f"argument of {self._name}") for x in leaves]
        function = substitute(self.__wrapped__)
        given = call.arguments(call.given.hand_on(variables))
        results = results_of(trace, function(*given), f"{self._name}: the result")
        found = [x.operand for x in results.leaves]
        made = trace.emit(self._mark, [*(x.operand for x in leaves), *found], rule=_LanesRule(self, call, results))
        return results.close([delivered(trace, y, x) for y, x in zip(made, results.leaves, strict=True)])


class _LanesRule(Rule):
    """The rule of one call."""

    def __init__(self, function: custom_vmap, call: Call, results: Opened) -> None:
        super().__init__(function._name, len(call.given.leaves))
        self._function = function
        self._call = call
        self._results = results

    def jvp(self, b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        """Those of the results that the function itself gave."""
        return tangents[self.count :]

    def for_lanes(self, b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Rule:
        raise AssertionError("its results are the rule's own")

    def batch(self, b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Sequence[Operand]:
        """The rule's results, all with lanes."""
        count, trace = self.count, b.trace
        if not any(has_lanes[:count]):  # what the function closes over has lanes
            return [
                x if on else b.stretched(x, size)
                for x, on in zip(operation.inputs[count:], has_lanes[count:], strict=True)
            ]
        wanted = [ArrayType(v.type.dtype, v.type.shape) for v in operation.outputs]
        with users_code(trace):
            return self._asked(trace, operation.inputs[:count], has_lanes[:count], size, wanted)

    def _asked(
        self, trace: Trace, operands: Sequence[Operand], has_lanes: Sequence[bool], size: Extent,
        wanted: Sequence[ArrayType],
    ) -> list[Operand]:  # fmt: skip
        from tenferro.tracer.substitution import substitute

        vmap, call = self._function._vmap, self._call
        assert vmap is not None
        flags = call.given.close(list(has_lanes))
        batched = [tree.map(lambda x: x is True, x) for x in call.arguments(flags)]
        variables = [k.variable(trace, x, self.name) for k, x in zip(call.forms, operands, strict=True)]
        args = call.arguments(call.given.close(variables))
        pair = substitute(vmap)(make_dim(trace, size), batched, *args)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BatchError(
                f"{self.name}: its rule returned a {type(pair).__name__}; a pair of the result and of which of it has "
                f"lanes is needed{at(user_line())}"
            )
        wanted_tree = self._results.treedef
        found = results_of(trace, pair[0], f"{self.name}: the result of its rule").in_order_of(wanted_tree)
        flags_out, treedef = tree.flatten(in_order_of(pair[1], wanted_tree))
        if found.treedef != self._results.treedef or treedef != self._results.treedef:
            raise BatchError(
                f"{self.name}: its rule returned the structures {found.treedef} and {treedef}; that of the function's "
                f"result, {self._results.treedef}, is needed{at(user_line())}"
            )
        b, results = Derivation(trace), []
        for leaf, on, t in zip(found.leaves, flags_out, wanted, strict=True):
            type_ = ArrayType(t.dtype, (size, *t.shape)) if on else t
            one = fitted(trace, leaf, type_, f"{self.name}: the result of its rule{leaf.path}")
            results.append(one if on else b.stretched(one, size))
        return results


__all__ = ["custom_vmap"]
