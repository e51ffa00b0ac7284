"""``custom_vjp``: a function and how cotangents go back through it in, a function with that rule out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenferro.rules import Call, Custom, Kind, check_symbolic, fitted, shown, value_of
from tenferro.tracer import build
from tenferro.tracer.dim import Dim, make_dim
from tenferro.tracer.errors import DerivativeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, DimScalar, Literal, Operand
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace, is_tenferro_array
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform import custom, marks
from tenferro.tracer.transform.inputs import Opened, is_numeric, leaf_of, open_tree
from tenferro.tracer.transform.linear import has_tangent
from tenferro.tracer.tree import LEAF, NONE, TreeDef, in_order_of, opened, paths, unflatten
from tenferro.transformed import Function


class custom_vjp(Custom):
    """A function whose cotangents are given by ``defvjp``. Forward mode is refused.

    fun: the function. nondiff_argnums, nondiff_argnames: arguments that are not differentiated; the rule's second half
    gets them first. Decorate the function with it, then call ``f.defvjp(fwd, bwd)``."""

    _mark = marks.custom_vjp
    _rules = ("_fwd", "_bwd")
    _fwd: Function | None = None
    _bwd: Function | None = None

    def defvjp(self, fwd: Function, bwd: Function, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set the rule: ``fwd(*args) -> (value, residuals)`` and ``bwd(*nondiff, residuals, cotangent)``, which
        returns a tuple with a cotangent for each argument that is differentiated, None for 0."""
        check_symbolic(symbolic_zeros, self._name)
        del optimize_remat  # what a derivative does not read is not computed, with or without it
        self._fwd, self._bwd = fwd, bwd

    def _check_rules(self) -> None:
        if self._fwd is None or self._bwd is None:
            raise AttributeError(f"{self._name}: has no rule; {self._name}.defvjp sets one{at(user_line())}")

    def _rule(self, call: Call) -> custom.ReverseRule:
        return custom.ReverseRule(self._name, len(call.given.leaves), _Reverse(self, call).forth)


class _Reverse:
    """The rule of one call of a ``custom_vjp`` function, on operands."""

    def __init__(self, function: custom_vjp, call: Call) -> None:
        self._function = function
        self._call = call

    def forth(self, trace: Trace, primals: Sequence[Operand], wanted: Sequence[ArrayType]) -> custom.Forth:
        """Results, and what the other half gets."""
        from tenferro.tracer.substitution import substitute

        name, call = self._function._name, self._call
        fwd = self._function._fwd
        assert fwd is not None
        fixed, free = call.rebuilt(trace, primals)
        pair = substitute(fwd)(*call.arguments((fixed, free)))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DerivativeError(
                f"{name}: fwd returned {shown(pair)}; a pair of the value and residuals is needed{at(user_line())}"
            )
        what = f"{name}: the value of fwd"
        value = value_of(trace, pair[0], call.result, what)
        results = [fitted(trace, x, t, f"{what}{x.path}") for x, t in zip(value.leaves, wanted, strict=True)]
        kept = _Kept(trace, pair[1], f"{name}: the residuals of fwd")
        # Arguments that are not differentiated go the same way as residuals do.
        held = list(primals[: len(primals) - len(call.free.leaves)])
        back = _Back(self._function, call, kept.form, value)
        return custom.Forth(results, [*held, *kept.operands], back.code)


class _Kept:
    """Residuals of a rule: arrays and sizes as operands, anything else as it is."""

    def __init__(self, trace: Trace, tree: Any, what: str) -> None:
        found = open_tree(trace, tree, what, _is_kept)
        self.operands = [leaf.operand for leaf in found.leaves]
        kinds = [Kind(x.weak, x.scalar, x.path) for x in found.leaves]
        self.form = _KeptForm(found.treedef, found.values, found.places, tuple(kinds))


def _is_kept(x: Any) -> bool:
    return type(x) in (TracedArray, Dim) or isinstance(x, np.ndarray) or is_tenferro_array(x)


@dataclass(frozen=True, slots=True)
class _KeptForm:
    treedef: Any
    values: tuple[Any, ...]
    places: tuple[int, ...]
    kinds: tuple[Kind, ...]

    def rebuilt(self, trace: Trace, operands: Sequence[Operand], name: str) -> Any:
        """The residuals again."""
        found = list(self.values)
        for place, kind, x in zip(self.places, self.kinds, operands, strict=True):
            found[place] = _rebuilt(trace, kind, x, name, type(found[place]) is Dim)
        return unflatten(self.treedef, found)


def _rebuilt(trace: Trace, kind: Kind, x: Operand, name: str, is_size: bool) -> Any:
    if is_size and isinstance(x, DimScalar):
        return make_dim(trace, x.expr)
    if is_size and isinstance(x, Literal):
        return int(x.value.real)
    return kind.variable(trace, x, name)


def _is_none(x: Any) -> bool:
    return x is None


def _with_nones(treedef: TreeDef) -> tuple[TreeDef, list[bool]]:
    """An argument's structure with its Nones as leaves, as they are in cotangents; for each leaf whether it is one of
    the argument's."""
    if treedef in (LEAF, NONE):
        return LEAF, [treedef == LEAF]
    each = [_with_nones(c) for c in treedef.children]
    found = replace(treedef, children=tuple([c for c, _ in each]))
    return found, [on for _, flags in each for on in flags]


class _Back:
    """The second half of a rule."""

    def __init__(self, function: custom_vjp, call: Call, kept: _KeptForm, value: Opened) -> None:
        self._function = function
        self._call = call
        self._kept = kept
        self._treedef = value.treedef
        self._values = value.values
        self._places = value.places
        self._kinds = [Kind(x.weak, x.scalar, x.path) for x in value.leaves]
        self._dtypes = [x.operand.type.dtype for x in value.leaves]

    def code(
        self, trace: Trace, residuals: Sequence[Operand], cotangents: Sequence[Operand], types: Sequence[ArrayType]
    ) -> list[Operand | None]:
        """The cotangents of all leaves of the arguments."""
        from tenferro.tracer.substitution import substitute

        name, call = self._function._name, self._call
        bwd = self._function._bwd
        assert bwd is not None
        count = len(types) - len(call.free.leaves)
        nothing = [k.variable(trace, build.literal(0, t.dtype), name) for k, t in zip(call.forms, types, strict=True)]
        held = [k.variable(trace, x, name) for k, x in zip(call.forms[:count], residuals[:count], strict=True)]
        fixed = call.given.close([*held, *nothing[count:]])[0]
        kept = self._kept.rebuilt(trace, residuals[count:], name)
        given = substitute(bwd)(*fixed, kept, self._cotangent(trace, cotangents))
        return [*(None for _ in range(count)), *self._checked(trace, given, types[count:])]

    def _cotangent(self, trace: Trace, cotangents: Sequence[Operand]) -> Any:
        """The cotangent in the structure of the value; zeros for results of integers."""
        found, made = list(self._values), iter(cotangents)
        for place, kind, dtype in zip(self._places, self._kinds, self._dtypes, strict=True):
            x = next(made) if has_tangent(dtype) else build.literal(0, dtype)
            found[place] = kind.variable(trace, x, self._function._name)
        return unflatten(self._treedef, found)

    def _checked(self, trace: Trace, given: Any, types: Sequence[ArrayType]) -> list[Operand | None]:
        """The cotangents of the leaves that are differentiated, from those of the arguments."""
        name, like = self._function._name, self._call.free
        count = len(like.treedef.children)
        if not isinstance(given, tuple | list) or len(given) != count:
            found = f"{len(given)} cotangents" if isinstance(given, tuple | list) else shown(given)
            raise DerivativeError(
                f"{name}: bwd returned {found}; a tuple of {count} is needed, one for each argument that is "
                f"differentiated{at(user_line())}"
            )
        answers: list[Operand | None] = []
        following, leaves = 0, list(zip(like.places, types, strict=True))
        for number, (child, ct) in enumerate(zip(like.treedef.children, given, strict=True)):
            mine = [t for place, t in leaves if following <= place < following + child.num_leaves]
            following += child.num_leaves
            what = f"{name}: cotangent {number} of bwd"
            answers += [None] * len(mine) if ct is None else self._of_argument(trace, ct, child, mine, what)
        return answers

    def _of_argument(
        self, trace: Trace, given: Any, treedef: Any, types: Sequence[ArrayType], what: str
    ) -> list[Operand | None]:
        open_, is_there = _with_nones(treedef)
        values, found = opened(in_order_of(given, open_, _is_none), what, _is_none)
        if found != open_ or any(x is not None and not on for x, on in zip(values, is_there, strict=True)):
            raise ShapeError(f"{what} has the structure {found}; {treedef} is needed{at(user_line())}")
        answers: list[Operand | None] = []
        wanted = iter(types)
        for x, path, on in zip(values, paths(found), is_there, strict=True):
            if not on or x is not None and not is_numeric(x):
                continue
            t = next(wanted)
            if x is None or not has_tangent(t.dtype):
                answers.append(None)
            else:
                answers.append(fitted(trace, leaf_of(trace, x, what), t, f"{what}{path}"))
        return answers
