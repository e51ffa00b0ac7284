"""Derivatives of Python functions, inside a trace: a function and its arguments in, values and derivatives out.

A function is run on values of its own in place of its arguments; what it recorded stays in the trace, and derivatives
are operations beside it. So they nest to any depth, and closures over traced values are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenferro.tracer.derivation import Derivation
from tenferro.tracer.errors import DerivativeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import Operand, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.tape import Tangent, Tape
from tenferro.tracer.trace import KINDS, Trace
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform.inputs import Leaf, Opened, apart, delivered, leaf_of, open_tree, results_of, type_text
from tenferro.tracer.transform.linear import as_recorded, has_tangent, on_tape, pull, push, replay, sized
from tenferro.tracer.transform.positions import differing_further, everywhere, given_back, summed, together
from tenferro.tracer.tree import arrangement, opened

Check = Callable[[Leaf], None]


@contextmanager
def deeper(trace: Trace) -> Iterator[None]:
    """One more derivative is being taken."""
    trace.depth += 1
    try:
        yield
    finally:
        trace.depth -= 1


@contextmanager
def _varying(trace: Trace, values: Sequence[Value]) -> Iterator[None]:
    """A derivative is taken of these."""
    before = trace.varying
    trace.varying = before | {v.id for v in values}
    try:
        yield
    finally:
        trace.varying = before


Tangents = Sequence[Operand | None]


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map between pytrees, on a tape: from tangents of the leaves of ``arguments`` to those of ``results``.

    ``inputs``: the tape's, for each leaf of the arguments one for each position of a mesh (one, where there is none);
    None where its dtype has no tangents. ``outputs``: alike for each leaf of the results; a tangent of the tape,
    another operand that is constant, or None for 0. ``values``: the arguments'."""

    trace: Trace
    name: str
    arguments: Opened
    values: tuple[Operand, ...]
    results: Opened
    tape: Tape
    inputs: tuple[Sequence[Tangent | None], ...]
    outputs: tuple[Tangents, ...]

    def push(self, tangents: Tangents) -> list[Operand | None]:
        """The tangents of the results, from those of the arguments."""
        trace, found = self.trace, dict[int, Operand]()
        for xs, t in zip(self.inputs, tangents, strict=True):
            if t is not None:
                mine = zip(xs, everywhere(trace, t), strict=True)
                found.update({x.id: each for x, each in mine if x is not None})
        with deeper(trace):
            replay(trace, self.tape, found)
        along = differing_further(trace, self.values, tangents)
        return [
            together(trace, leaf.operand, [found.get(y.id) if type(y) is Tangent else y for y in ys], along)
            for ys, leaf in zip(self.outputs, self.results.leaves, strict=True)
        ]

    def pull(self, cotangents: Tangents) -> list[Operand | None]:
        """The cotangents of the arguments, from those of the results."""
        trace, b, seeds = self.trace, Derivation(self.trace), dict[int, Operand]()
        for ys, ct, leaf in zip(self.outputs, cotangents, self.results.leaves, strict=True):
            each = [None] * len(ys) if ct is None else given_back(trace, leaf.operand, ct, self.name)
            with as_recorded(trace):
                for y, mine in zip(ys, each, strict=True):
                    total = b.plus(seeds.get(y.id), mine) if type(y) is Tangent else None
                    if y is not None and total is not None:
                        seeds[y.id] = total  # type: ignore[union-attr]  # only of a tangent
        with deeper(trace):
            found = pull(trace, self.tape, seeds)
        return [
            summed(trace, value, [None if x is None else found.get(x.id) for x in xs])
            for xs, value in zip(self.inputs, self.values, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A function that was run on values of its own: those, its results, what came along (``aux``), and the operations
    from number ``start`` on."""

    trace: Trace
    name: str
    start: int
    arguments: Opened
    values: tuple[Value, ...]
    results: Opened
    aux: Any

    def linearized(self) -> Linear:
        """Its derivative with respect to all arguments."""
        trace = self.trace
        with on_tape(trace) as tape:
            inputs, tangents = [], dict[int, Operand]()
            for v in self.values:
                copies = everywhere(trace, v)
                each = [tape.input(x.type) if has_tangent(x.type.dtype) else None for x in copies]
                tangents.update(_by_id(copies, each))
                inputs.append(each)
            outputs = self._pushed(tangents)
        return Linear(
            trace, self.name, self.arguments, self.values, self.results, tape, tuple(inputs), tuple(outputs)
        )  # fmt: skip

    def pushed(self, tangents: Tangents) -> list[Operand | None]:
        """The tangents of the results, from those of the arguments."""
        trace, found = self.trace, dict[int, Operand]()
        for v, t in zip(self.values, tangents, strict=True):
            if t is not None:
                found.update(_by_id(everywhere(trace, v), everywhere(trace, t)))
        along = differing_further(trace, self.values, tangents)
        outputs = self._pushed(found)
        return [
            together(trace, leaf.operand, each, along) for leaf, each in zip(self.results.leaves, outputs, strict=True)
        ]

    def _pushed(self, tangents: dict[int, Operand]) -> list[Tangents]:
        """For each result the tangents of its copies."""
        trace = self.trace
        with deeper(trace):
            push(trace, trace.operations[self.start :], tangents)
        copies = [everywhere(trace, leaf.operand) for leaf in self.results.leaves]
        return [[tangents.get(y.id) if isinstance(y, Value) else None for y in ys] for ys in copies]


def _by_id(values: Sequence[Operand], tangents: Tangents) -> dict[int, Operand]:
    return {x.id: t for x, t in zip(values, tangents, strict=True) if isinstance(x, Value) and t is not None}


def record(
    trace: Trace, function: Callable[..., Any], args: Sequence[Any], name: str, has_aux: bool = False,
    check: Check | None = None, what: str = "the arguments",
) -> Recorded:  # fmt: skip
    """Run the function. ``check`` refuses leaves of the arguments."""
    start = len(trace.operations)
    arguments = open_tree(trace, tuple(args), f"{name}: {what}")
    if check is not None:
        for leaf in arguments.leaves:
            check(leaf)
    values = [apart(trace, leaf) for leaf in arguments.leaves]
    variables = [
        leaf.variable(trace, v, f"argument{leaf.path} of {name}")
        for leaf, v in zip(arguments.leaves, values, strict=True)
    ]
    with deeper(trace), _varying(trace, values):
        results, aux = separated(function(*arguments.close(variables)), has_aux, name)
    found = results_of(trace, results, f"{name}: the result")
    return Recorded(trace, name, start, arguments, tuple(values), found, aux)


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


def values_of(recorded: Recorded) -> Any:
    """The results, in fresh variables."""
    trace = recorded.trace
    return recorded.results.close([delivered(trace, leaf.operand, leaf) for leaf in recorded.results.leaves])


def matching(trace: Trace, like: Opened, tree: Any, what: str) -> list[Operand | None]:
    """The operands of a pytree that must have the structure, shapes and dtypes of another. None for leaves whose dtype
    has no tangents, whatever is given there, and for leaves that are None."""
    given, treedef = opened(tree, what)
    order = arrangement(treedef, like.treedef)
    if order is None:
        raise ShapeError(
            f"{what}: of structure {treedef}; that of the values, {like.treedef}, is needed{at(user_line())}"
        )
    given = [given[k] for k in order]
    found: list[Operand | None] = []
    for place, leaf in zip(like.places, like.leaves, strict=True):
        wanted = leaf.operand.type
        if not has_tangent(wanted.dtype) or given[place] is None:
            found.append(None)
            continue
        found.append(fitting(trace, leaf_of(trace, given[place], what), leaf, what))
    return found


def fitting(trace: Trace, given: Leaf, like: Leaf, what: str) -> Operand:
    """The leaf's operand in the dtype of another leaf. ShapeError unless shape and dtype are that one's; a Python
    number gives way."""
    mine, wanted = given.operand.type, like.operand.type
    fits = len(mine.shape) == len(wanted.shape) and all(
        trace.guard("==", a, n) for a, n in zip(mine.shape, wanted.shape, strict=True)
    )
    if not fits or (mine.dtype != wanted.dtype and not _gives_way(given, wanted.dtype.kind)):
        raise ShapeError(
            f"{what}{like.path}: {type_text(trace, mine)}; {type_text(trace, wanted)} is needed, as the value's "
            f"own{at(user_line())}"
        )
    return sized(trace, Derivation(trace).convert(given.operand, wanted.dtype), wanted)


def _gives_way(given: Leaf, kind: str) -> bool:
    return given.weak and KINDS.index(given.operand.type.dtype.kind) <= KINDS.index(kind)


def closed(trace: Trace, like: Opened, operands: Sequence[Operand | None]) -> Any:
    """The pytree of ``like`` with fresh variables that hold these; 0 for None."""
    b = Derivation(trace)
    made = [
        delivered(trace, b.zeros(leaf.operand.type) if x is None else x, leaf)
        for leaf, x in zip(like.leaves, operands, strict=True)
    ]
    return like.close(made)


def check_scalar_result(trace: Trace, results: Opened, name: str, holomorphic: bool) -> Leaf:
    """The one result that a gradient is of. DerivativeError unless it is a number."""
    leaves = results.leaves
    kinds = "c" if holomorphic else "f"
    is_one = len(leaves) == 1 and results.treedef.node is None
    if is_one and not leaves[0].operand.type.shape and leaves[0].operand.type.dtype.kind in kinds:
        return leaves[0]
    if is_one:
        what = type_text(trace, leaves[0].operand.type)
    else:
        what = f"one value inside {results.treedef}" if len(leaves) == 1 else f"{len(leaves) or 'no'} values"
    needed = "one complex number" if holomorphic else "one real number"
    cure = "tn.jacrev, tn.jacfwd and tn.vjp differentiate functions of more results, has_aux=True sets others apart"
    if len(leaves) == 1 and leaves[0].operand.type.dtype.kind == "c" and not holomorphic:
        cure = "holomorphic=True asks for the derivative of a holomorphic function, tn.vjp differentiates others"
    raise DerivativeError(f"{name}: the function returned {what}; {needed} is needed. {cure}{at(user_line())}")


def _class_name(x: Any) -> str:
    return "an array" if type(x) is TracedArray else f"a {type(x).__name__}"
