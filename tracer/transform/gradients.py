"""Derivatives of Python functions, inside a trace: a function and its arguments in, values and derivatives out.

A function is run on values of its own in place of its arguments; what it recorded stays in the trace, and derivatives
are operations beside it. So they nest to any depth, and closures over traced values are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tenferro.tracer.derivation import Derivation
from tenferro.tracer.errors import DerivativeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import Operand, Value
from tenferro.tracer.tape import Tangent, Tape
from tenferro.tracer.trace import Trace
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform.inputs import Leaf, Opened, apart, delivered, open_tree, results_of
from tenferro.tracer.transform.linear import as_recorded, has_tangent, on_tape, pull, push, replay
from tenferro.tracer.transform.positions import differing_further, everywhere, given_back, summed, together


@dataclass(frozen=True, slots=True)
class Linearized:
    """A function at a point: its results, and the tape that leads from tangents of the arguments to theirs.

    ``inputs``: the tape's, for each numeric leaf of the arguments one for each position of a mesh (one, where there is
    none), None where its dtype has no tangents. ``outputs``: alike for each leaf of the results, None where it does not
    vary. ``values``: the arguments'."""

    trace: Trace
    name: str
    arguments: Opened
    values: tuple[Operand, ...]
    results: Opened
    aux: Any
    tape: Tape
    inputs: tuple[Sequence[Tangent | None], ...]
    outputs: tuple[Sequence[Tangent | None], ...]

    def push(self, tangents: Sequence[Operand | None]) -> list[Operand | None]:
        """The tangents of the results, from those of the arguments."""
        trace, found = self.trace, dict[int, Operand]()
        for xs, t in zip(self.inputs, tangents, strict=True):
            if t is not None:
                mine = zip(xs, everywhere(trace, t), strict=True)
                found.update({x.id: each for x, each in mine if x is not None})
        replay(trace, self.tape, found)
        along = differing_further(trace, self.values, tangents)
        return [
            together(trace, leaf.operand, [None if y is None else found.get(y.id) for y in ys], along)
            for ys, leaf in zip(self.outputs, self.results.leaves, strict=True)
        ]

    def pull(self, cotangents: Sequence[Operand | None]) -> list[Operand | None]:
        """The cotangents of the arguments, from those of the results."""
        trace, b, seeds = self.trace, Derivation(self.trace), dict[int, Operand]()
        for ys, ct, leaf in zip(self.outputs, cotangents, self.results.leaves, strict=True):
            each = [None] * len(ys) if ct is None else given_back(trace, leaf.operand, ct, self.name)
            with as_recorded(trace):
                for y, mine in zip(ys, each, strict=True):
                    total = None if y is None else b.plus(seeds.get(y.id), mine)
                    if y is not None and total is not None:
                        seeds[y.id] = total
        found = pull(trace, self.tape, seeds)
        return [
            summed(trace, value, [None if x is None else found.get(x.id) for x in xs])
            for xs, value in zip(self.inputs, self.values, strict=True)
        ]


def linearize(
    trace: Trace, function: Callable[..., Any], args: Sequence[Any], name: str, has_aux: bool = False
) -> Linearized:
    """Run the function and differentiate what it did, with respect to all of ``args``."""
    start = len(trace.operations)
    arguments = open_tree(trace, tuple(args), f"{name}: the arguments")
    values = [apart(trace, leaf) for leaf in arguments.leaves]
    variables = [
        leaf.variable(trace, v, f"argument of {name}") for leaf, v in zip(arguments.leaves, values, strict=True)
    ]
    results, aux = separated(function(*arguments.close(variables)), has_aux, name)
    opened = results_of(trace, results, f"{name}: the result")
    with on_tape(trace) as tape:
        inputs, tangents = [], dict[int, Operand]()
        for v in values:
            each = [tape.input(x.type) if has_tangent(x.type.dtype) else None for x in everywhere(trace, v)]
            tangents.update(_by_id(everywhere(trace, v), each))
            inputs.append(each)
        push(trace, trace.operations[start:], tangents)
    outputs = [[_tangent(tangents, y) for y in everywhere(trace, leaf.operand)] for leaf in opened.leaves]
    return Linearized(trace, name, arguments, tuple(values), opened, aux, tape, tuple(inputs), tuple(outputs))


def _by_id(values: Sequence[Operand], tangents: Sequence[Operand | None]) -> dict[int, Operand]:
    return {x.id: t for x, t in zip(values, tangents, strict=True) if isinstance(x, Value) and t is not None}


def _tangent(tangents: dict[int, Operand], y: Operand) -> Tangent | None:
    """Of a result, on the tape."""
    found = tangents.get(y.id) if isinstance(y, Value) else None
    assert found is None or isinstance(found, Tangent)
    return found


def separated(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """The result and what comes along with it."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise DerivativeError(
            f"{name}: the function returned {_class_name(result)} under has_aux=True; a pair of its result and what "
            f"comes along is needed{at(user_line())}"
        )
    return result


def jvp(
    trace: Trace, function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], name: str,
    has_aux: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Results, their tangents, and what comes along; forward, without a tape."""
    start = len(trace.operations)
    arguments = open_tree(trace, tuple(primals), f"{name}: the primals")
    given = matching(trace, arguments, tuple(tangents), f"{name}: the tangents")
    values = [apart(trace, leaf) for leaf in arguments.leaves]
    variables = [
        leaf.variable(trace, v, f"argument of {name}") for leaf, v in zip(arguments.leaves, values, strict=True)
    ]
    results, aux = separated(function(*arguments.close(variables)), has_aux, name)
    opened = results_of(trace, results, f"{name}: the result")
    found: dict[int, Operand] = {}
    for v, t in zip(values, given, strict=True):
        if t is not None:
            found.update(_by_id(everywhere(trace, v), everywhere(trace, t)))
    push(trace, trace.operations[start:], found)
    along = differing_further(trace, values, given)
    outputs = []
    for leaf in opened.leaves:
        each = [found.get(y.id) if isinstance(y, Value) else None for y in everywhere(trace, leaf.operand)]
        outputs.append(together(trace, leaf.operand, each, along))
    return results, closed(trace, opened, outputs), aux


def matching(trace: Trace, like: Opened, tree: Any, what: str) -> list[Operand | None]:
    """The operands of a pytree that must have the structure, shapes and dtypes of another. None for leaves whose dtype
    has no tangents, whatever is given there, and for leaves that are None."""
    given, treedef = trace_leaves(tree, what)
    if treedef != like.treedef:
        raise ShapeError(
            f"{what} have the structure {treedef}; that of the values, {like.treedef}, is needed{at(user_line())}"
        )
    from tenferro.tracer.transform.inputs import leaf_of

    found: list[Operand | None] = []
    b = Derivation(trace)
    for place, leaf in zip(like.places, like.leaves, strict=True):
        wanted = leaf.operand.type
        if not has_tangent(wanted.dtype) or given[place] is None:
            found.append(None)
            continue
        mine = leaf_of(trace, given[place], what)
        shape = mine.operand.type.shape
        fits = len(shape) == len(wanted.shape) and all(
            trace.guard("==", a, n) for a, n in zip(shape, wanted.shape, strict=True)
        )
        if not fits or (mine.operand.type.dtype != wanted.dtype and not mine.weak):
            raise ShapeError(
                f"{what}{leaf.path} {mine.operand.type}; {wanted} is needed, as the value's own{at(user_line())}"
            )
        found.append(b.convert(mine.operand, wanted.dtype))
    return found


def trace_leaves(tree: Any, what: str) -> tuple[list[Any], Any]:
    """The leaves of a pytree, and its structure."""
    from tenferro.tracer.tree import opened

    return opened(tree, what)


def closed(trace: Trace, like: Opened, operands: Sequence[Operand | None]) -> Any:
    """The pytree of ``like`` with fresh variables that hold these; 0 for None."""
    b = Derivation(trace)
    made = [
        delivered(trace, b.zeros(leaf.operand.type) if x is None else x, leaf)
        for leaf, x in zip(like.leaves, operands, strict=True)
    ]
    return like.close(made)


def check_scalar_result(found: Linearized, name: str, holomorphic: bool) -> Leaf:
    """The one result that a gradient is of. DerivativeError unless it is a number."""
    leaves = found.results.leaves
    kinds = "c" if holomorphic else "f"
    if len(leaves) == 1 and not leaves[0].operand.type.shape and leaves[0].operand.type.dtype.kind in kinds:
        return leaves[0]
    what = str(leaves[0].operand.type) if len(leaves) == 1 else f"{len(leaves)} values"
    needed = "one complex number" if holomorphic else "one real number"
    raise DerivativeError(
        f"{name}: the function returned {what}; {needed} is needed. tn.jacrev, tn.jacfwd and tn.vjp differentiate "
        f"functions of more results, has_aux=True sets others apart{at(user_line())}"
    )


def _class_name(x: Any) -> str:
    return "an array" if type(x) is TracedArray else f"a {type(x).__name__}"
