"""Loops and choices as operations: ``scan``, ``while_loop``, ``fori_loop``, ``cond``, ``switch``, ``map``.

A Python loop inside a traced function is unrolled; these are one operation however often they turn, and a choice runs
one side only. Outside a trace they are traced for the one call. All are differentiable both ways and mapped by
``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro import python_loops, tree
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dim import as_extent
from tenferro.tracer.errors import AxisError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import Operand
from tenferro.tracer.signature import check_function
from tenferro.tracer.trace import Trace, current_trace, running_trace
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform import control as traced
from tenferro.tracer.transform.inputs import is_numeric, leaf_of, type_text
from tenferro.tracer.tree import in_order_of

Function = Callable[..., Any]


def _run(function: Function, args: tuple[Any, ...], name: str) -> Any:
    """Inside a trace at once, outside in one of its own."""
    if current_trace() is not None:
        return function(*args)
    from tenferro import once

    return once.call(function, args, {}, name)


def scan(
    f: Function, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1,
    progress: str | bool | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Carry a value along an axis: ``carry, y = f(carry, x)`` for every ``x`` along the leading axes of ``xs``.

    init: the first carry, a pytree whose shapes and dtypes stay; ``f`` may write into the carry that it is given, which
    is the loop's own. xs: a pytree of arrays with one leading size, or None
    with ``length``. reverse: from the last to the first. unroll: how many turns are written out in one (a hint).
    progress: show a bar of this name (True for ``"scan"``) while it runs, moved at most a hundred times; tqdm's where
    that is installed, else a line on stderr; results are the same, and each number of turns is a program.
    Returns the last carry, and the ``y`` of all turns stacked.

    ShapeError where the carry changes its type, or the sizes of ``xs`` differ."""
    del unroll  # the body is compiled as a loop whatever it says; results are the same
    check_function(f, "scan: f")
    if not progress and (done := python_loops.scan(f, init, xs, length, reverse)):
        return done[0]  # type: ignore[no-any-return]

    def run(init: Any, xs: Any, length: Any) -> Any:
        trace = running_trace("scan")
        turns = None if length is None else _extent(length, "scan: length")
        if isinstance(turns, int) and turns < 0:
            raise ShapeError(f"scan: length is {turns}; a number of turns of 0 or more is needed{at(user_line())}")
        if progress:
            from tenferro import progress as bars

            name = "scan" if progress is True else str(progress)
            return bars.scan(trace, f, init, xs, turns, reverse, name)
        return traced.scan(trace, f, init, xs, turns, reverse)

    return _run(run, (init, xs, length), "scan")  # type: ignore[no-any-return]


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any) -> Any:
    """``while cond_fun(val): val = body_fun(val)``, from ``init_val`` on.

    The value is a pytree whose shapes and dtypes stay. Reverse-mode derivatives keep what each turn needs, as many as
    there turn out to be."""
    check_function(cond_fun, "while_loop: cond_fun")
    check_function(body_fun, "while_loop: body_fun")
    if done := python_loops.while_loop(cond_fun, body_fun, init_val):
        return done[0]

    def run(value: Any) -> Any:
        return traced.while_loop(running_trace("while_loop"), cond_fun, body_fun, value)

    return _run(run, (init_val,), "while_loop")


def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, *, unroll: int | bool | None = None) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)``. The bounds are ints, sizes, or traced integers."""
    del unroll
    check_function(body_fun, "fori_loop: body_fun")
    if done := python_loops.fori_loop(lower, upper, body_fun, init_val):
        return done[0]

    def run(lower: Any, upper: Any, value: Any) -> Any:
        trace = running_trace("fori_loop")
        for what, bound in (("lower", lower), ("upper", upper)):
            _check_bound(trace, bound, f"fori_loop: {what}")
        if not (isinstance(lower, TracedArray) or isinstance(upper, TracedArray)):
            return _counted(trace, lower, upper, body_fun, value)
        _, _, last = traced.while_loop(
            trace, lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], body_fun(s[0], s[2])),
            (lower, upper, value), "fori_loop",
        )  # fmt: skip
        return last

    return _run(run, (lower, upper, init_val), "fori_loop")


def _counted(trace: Trace, lower: Any, upper: Any, body: Function, value: Any) -> Any:
    """With a number of turns that is known before it begins."""
    begin, end = _extent(lower, "fori_loop: lower"), _extent(upper, "fori_loop: upper")
    from tenferro.tracer.dims import maximum, sub

    turns = maximum(sub(end, begin), 0)
    (_, last), _ = traced.scan(
        trace, lambda s, _: ((s[0] + 1, body(s[0], s[1])), None), (lower, value), None, turns, False,
        "fori_loop",
    )  # fmt: skip
    return last


def _check_bound(trace: Trace, x: Any, what: str) -> None:
    if is_numeric(x) and np.ndim(x):
        shown = type_text(trace, leaf_of(trace, x, what).type)
        raise ShapeError(f"{what} is {shown}; one number is needed{at(user_line())}")
    if as_extent(x) is None and is_numeric(x) and (dtype := leaf_of(trace, x, what).type.dtype).kind not in "iub":
        shown = f"a traced {dtype}" if type(x) is TracedArray else repr(x)
        raise ShapeError(f"{what} is {shown}; an integer is needed{at(user_line())}")


def _extent(x: Any, what: str) -> Any:
    found = as_extent(x)
    if found is None:
        shown = f"a traced {x.dtype}" if type(x) is TracedArray else repr(x)
        raise ShapeError(f"{what} is {shown}; an int or a size is needed{at(user_line())}")
    return found


def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any, operand: Any = None) -> Any:
    """``true_fun(*operands)`` where ``pred`` holds, else ``false_fun(*operands)``; only one of them runs.

    Both return pytrees of one structure, shapes and dtypes. ShapeError where they do not."""
    given = operands if operand is None else (*operands, operand)
    check_function(true_fun, "cond: true_fun")
    check_function(false_fun, "cond: false_fun")
    if done := python_loops.cond(pred, true_fun, false_fun, given):
        return done[0]

    def run(pred: Any, *given: Any) -> Any:
        trace = running_trace("cond")
        chosen = _truth(trace, pred)
        return traced.switch(
            trace, Derivation(trace).convert(chosen, np.dtype(np.int64)), (false_fun, true_fun), given, "cond"
        )

    return _run(run, (pred, *given), "cond")


def _truth(trace: Trace, pred: Any) -> Operand:
    if not is_numeric(pred):
        raise ShapeError(f"cond: pred of class {type(pred).__name__}; a bool is needed{at(user_line())}")
    value = leaf_of(trace, pred, "cond").operand
    if value.type.shape:
        raise ShapeError(
            f"cond: pred is {type_text(trace, value.type)}; one bool is needed, numpy.where chooses by "
            f"element{at(user_line())}"
        )
    b = Derivation(trace)
    return value if value.type.dtype == np.bool_ else b.not_equal(value, b.like(0, value))


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """``branches[index](*operands)``; an index out of range takes the nearest branch. Only one of them runs."""
    if not isinstance(branches, Sequence) or isinstance(branches, str):
        raise TypeError(
            f"switch: branches of class {type(branches).__name__}; a sequence of functions is needed{at(user_line())}"
        )
    for k, branch in enumerate(branches):
        check_function(branch, f"switch: branches[{k}]")
    if not branches:
        raise ValueError(f"switch: no branches; at least one is needed{at(user_line())}")
    if done := python_loops.switch(index, branches, operands):
        return done[0]

    def run(index: Any, *given: Any) -> Any:
        trace = running_trace("switch")
        value = leaf_of(trace, index, "switch: index").operand
        if value.type.shape or value.type.dtype.kind not in "iu":
            raise ShapeError(f"switch: index is {type_text(trace, value.type)}; one integer is needed{at(user_line())}")
        return traced.switch(
            trace, Derivation(trace).convert(value, np.dtype(np.int64)), tuple(branches), given, "switch"
        )

    return _run(run, (index, *operands), "switch")


def map(f: Function, xs: Any, *, batch_size: int | None = None) -> Any:
    """``f`` of every entry along the leading axes of ``xs``, one after the other, stacked. ``tn.vmap`` does them at
    once. batch_size: so many at once."""
    check_function(f, "map: f")
    if batch_size is not None:
        return _in_batches(f, xs, batch_size)

    def turn(_: None, x: Any) -> tuple[None, Any]:
        return None, f(x)

    if done := python_loops.scan(turn, None, xs, None, False):
        return done[0][1]

    def run(xs: Any) -> Any:
        return traced.scan(running_trace("map"), turn, None, xs, None, False, "map")[1]

    return _run(run, (xs,), "map")


def _in_batches(f: Function, xs: Any, batch_size: int) -> Any:
    from tenferro.batching import vmap

    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"map: batch_size is {batch_size!r}; an int of at least 1 is needed{at(user_line())}")
    leaves = tree.leaves(xs)
    if not leaves or not all(is_numeric(x) and np.ndim(x) for x in leaves):
        raise ShapeError(f"map: xs are no arrays with a leading axis, along which to go{at(user_line())}")
    count = len(leaves[0])
    whole = count // batch_size * batch_size
    each = vmap(f)
    first = map(each, tree.map(lambda x: x[:whole].reshape((whole // batch_size, batch_size, *x.shape[1:])), xs))
    first = tree.map(lambda y: y.reshape((whole, *y.shape[2:])), first)
    if whole == count:
        return first
    last = each(tree.map(lambda x: x[whole:], xs))
    return tree.map(lambda a, b: np.concatenate([a, b]), first, last)


def associative_scan(fn: Function, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Running results of an associative function along an axis: ``y[0] = x[0]``, ``y[k] = fn(y[k - 1], x[k])``.

    fn: of two pytrees of slices, whose entries along the axis it combines element by element. Its calls are nested as a
    tree: pairs are combined, the running results of the pairs give those of the odd entries, one more combination those
    of the even ones (Blelloch 1990, "Prefix sums and their applications"). reverse: from the end.

    ShapeError where the sizes along the axis differ, and for results of another structure or shape than the slices."""
    check_function(fn, "associative_scan: fn")

    def run(elems: Any) -> Any:
        values, treedef = tree.flatten(elems)
        if not values:
            return elems
        _check_elems(elems, axis)
        moved = [np.moveaxis(x, axis, 0) for x in values]
        if reverse:
            moved = [np.flip(x, 0) for x in moved]

        def combined(a: list[Any], b: list[Any]) -> list[Any]:
            first, second = _back(a, axis), _back(b, axis)
            found = in_order_of(fn(tree.unflatten(treedef, first), tree.unflatten(treedef, second)), treedef)
            _check_combined(found, elems, first)
            return tree.leaves(found)

        def fronted(a: list[Any], b: list[Any]) -> list[Any]:
            return [np.moveaxis(x, axis, 0) for x in combined(a, b)]

        count = len(moved[0])
        found = _running(fronted, moved, count) if count > 1 else [np.copy(x) for x in moved]
        if reverse:
            found = [np.flip(x, 0) for x in found]
        return tree.unflatten(treedef, _back(found, axis))

    return _run(run, (elems,), "associative_scan")


def _check_elems(elems: Any, axis: int) -> None:
    """ShapeError unless all leaves are arrays of one size along the axis."""
    if not isinstance(axis, int):
        raise TypeError(f"associative_scan: axis is {axis!r}; an int is needed{at(user_line())}")
    values, places = tree.leaves(elems), tree.paths(tree.structure(elems))
    sizes = []
    for x, place in zip(values, places, strict=True):
        if not is_numeric(x):
            raise TypeError(
                f"associative_scan: elems{place} of class {type(x).__name__}; an array is needed{at(user_line())}"
            )
        rank = np.ndim(x)
        if not -rank <= axis < rank:
            raise AxisError(
                f"associative_scan: elems{place} has rank {rank}; axis {axis}, along which to go, is "
                f"needed{at(user_line())}"
            )
        sizes.append(x.shape[axis])
        if sizes[-1] != sizes[0]:
            raise ShapeError(
                f"associative_scan: elems{place} has {sizes[-1]} entries along axis {axis}, elems{places[0]} has "
                f"{sizes[0]}; one number of them is needed{at(user_line())}"
            )


def _check_combined(found: Any, elems: Any, slices: Sequence[Any]) -> None:
    """ShapeError unless ``fn`` returned what could be slices of ``elems``."""
    wanted, structure = tree.structure(elems), tree.structure(found)
    if structure != wanted:
        raise ShapeError(
            f"associative_scan: fn returned the structure {structure}; that of elems, {wanted}, is "
            f"needed{at(user_line())}"
        )
    for x, y, place in zip(tree.leaves(found), slices, tree.paths(wanted), strict=True):
        if np.shape(x) != np.shape(y):
            where = f" at {place}" if place else ""
            raise ShapeError(
                f"associative_scan: fn returned shape {np.shape(x)}{where} for slices of shape {np.shape(y)}; the same "
                f"is needed{at(user_line())}"
            )


def _back(xs: list[Any], axis: int) -> list[Any]:
    return [np.moveaxis(x, 0, axis) for x in xs]


def _running(fn: Callable[[list[Any], list[Any]], list[Any]], xs: list[Any], count: int) -> list[Any]:
    """Running results along axis 0 of ``count`` entries."""
    if count < 2:
        return xs
    pairs = fn([x[: count - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = _running(fn, pairs, count // 2)
    last = (count - 1) // 2
    even = fn([x[:last] for x in odd], [x[2::2] for x in xs]) if last else [x[:0] for x in xs]
    even = [np.concatenate([x[:1], e]) for x, e in zip(xs, even, strict=True)]
    return [_interleaved(e, o, count) for e, o in zip(even, odd, strict=True)]


def _interleaved(even: Any, odd: Any, count: int) -> Any:
    """Entries of both in turn, the even one first."""
    pairs = count // 2
    both = np.reshape(np.stack([even[:pairs], odd], 1), (2 * pairs, *odd.shape[1:]))
    return both if count == 2 * pairs else np.concatenate([both, even[pairs:]])


__all__ = ["associative_scan", "cond", "fori_loop", "map", "scan", "switch", "while_loop"]
