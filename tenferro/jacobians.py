"""``jacfwd``, ``jacrev`` and ``hessian``: functions in, functions that give matrices of derivatives out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenferro.gradients import Argnums, chosen_of, is_number, numbers, of_chosen
from tenferro.staging import Stage, Staged
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import Operand
from tenferro.tracer.signature import check_function, function_name
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, fresh
from tenferro.tracer.transform import gradients as traced, jacobians
from tenferro.tracer.transform.gradients import Linear
from tenferro.tracer.transform.inputs import Leaf, check_varies
from tenferro.tracer.transform.keys import key_of
from tenferro.transformed import Function, Transformed

Blocks = Callable[[Linear], jacobians.Blocks]


def jacfwd(fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> Transformed:
    """A function that gives ``fun``'s Jacobian, column by column: for functions of few numbers with many results.

    For a result of shape ``s`` and an argument of shape ``t`` the block has shape ``s + t``. Results and arguments may
    be pytrees: the Jacobian is a pytree of the results whose leaves are pytrees of the argument. argnums, has_aux,
    holomorphic as in ``tn.grad``.

    DerivativeError for arguments and results that are no floats."""
    name = f"jacfwd({function_name(fun)})"
    return Transformed(fun, _Jacobian(jacobians.forward, argnums, has_aux, holomorphic, name), name)


def jacrev(
    fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False, *, allow_int: bool = False
) -> Transformed:
    """A function that gives ``fun``'s Jacobian, row by row: for functions of many numbers with few results.

    The same matrix as ``tn.jacfwd`` gives. allow_int: leaves of integers are left out, with zeros as their blocks."""
    name = f"jacrev({function_name(fun)})"
    return Transformed(fun, _Jacobian(jacobians.reverse, argnums, has_aux, holomorphic, name, allow_int), name)


jacobian = jacrev


def hessian(fun: Function, argnums: Argnums = 0, has_aux: bool = False, holomorphic: bool = False) -> Transformed:
    """A function that gives the matrix of second derivatives of ``fun``, as ``jacfwd(jacrev(fun))`` does: for an
    argument of shape ``t`` and a result of shape ``s`` a block of shape ``s + t + t``."""
    check_function(fun, "hessian: fun")
    inner = jacrev(fun, argnums, has_aux, holomorphic)
    name = f"hessian({function_name(fun)})"
    return Transformed(inner, _Jacobian(jacobians.forward, argnums, has_aux, holomorphic, name), name)


class _Jacobian(Staged):
    """What the functions above make of a function; it runs inside a trace."""

    def __init__(
        self, blocks: Blocks, argnums: Argnums, has_aux: bool, holomorphic: bool, name: str, allow_int: bool = False
    ) -> None:
        self._blocks = blocks
        self._numbers = numbers(argnums, name)
        self._is_single = is_number(argnums)
        self._has_aux = has_aux
        self._holomorphic = holomorphic
        self._allow_int = allow_int
        self._name = name

    def stage(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
        """Record the function of the chosen arguments alone."""
        chosen = chosen_of(self._numbers, args, self._name)
        called = of_chosen(function, chosen, args, kwargs)
        given = [args[k] for k in chosen]
        trace = running_trace(self._name)
        recorded = traced.record(trace, called, given, self._name, self._has_aux, self._check, "argument")
        settings = (self._blocks, self._is_single, self._holomorphic, self._allow_int)
        return Stage(trace, lambda: key_of(recorded, settings), lambda: self._finished(recorded))

    def _finished(self, recorded: traced.Recorded) -> Any:
        for leaf in recorded.results.leaves:
            self._check_result(leaf)
        found = self._closed(recorded)
        return (found, recorded.aux) if self._has_aux else found

    def _check(self, leaf: Leaf) -> None:
        if not (self._allow_int and leaf.operand.type.dtype.kind in "biu"):
            forward = self._blocks is jacobians.forward
            check_varies(leaf, self._name, "argument", self._holomorphic, forward)

    def _check_result(self, leaf: Leaf) -> None:
        needed, kinds = ("complex", "c") if self._holomorphic else ("real", "f")
        if self._blocks is jacobians.forward and not self._holomorphic:
            kinds = "fc"  # a complex function of real numbers has a tangent
        if leaf.operand.type.dtype.kind not in kinds:
            raise DerivativeError(
                f"{self._name}: result{leaf.path} of dtype {leaf.operand.type.dtype.name}; {needed} numbers are needed"
                f"{', or holomorphic=True' if leaf.operand.type.dtype.kind == 'c' else ''}{at(user_line())}"
            )

    def _closed(self, recorded: traced.Recorded) -> Any:
        """The blocks as a pytree of pytrees."""
        trace = recorded.trace
        rows = []
        for y, blocks in zip(recorded.results.leaves, self._blocks(recorded.linearized()), strict=True):
            made = [_delivered(trace, z, y, x) for z, x in zip(blocks, recorded.arguments.leaves, strict=True)]
            row = recorded.arguments.close(made)
            rows.append(row[0] if self._is_single else row)
        return recorded.results.close(rows)


def _delivered(trace: Trace, block: Operand, y: Leaf, x: Leaf) -> TracedArray:
    return fresh(trace, block, scalar=not block.type.shape and y.scalar and x.scalar)
