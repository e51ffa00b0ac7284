"""Loops and choices as operations: ``scan``, ``while_loop``, ``fori_loop``, ``cond``, ``switch``, ``map``.

A Python loop inside a traced function is unrolled; these are one operation however often they turn, and a choice runs
one side only. Outside a trace they are traced for the one call. All are differentiable both ways and mapped by
``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro import tree
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dim import as_extent
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, current_trace, running_trace
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform import control as traced
from tenferro.tracer.transform.inputs import is_numeric, leaf_of

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

    def run(init: Any, xs: Any, length: Any) -> Any:
        trace = running_trace("scan")
        turns = None if length is None else _extent(length, "length")
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

    def run(value: Any) -> Any:
        return traced.while_loop(running_trace("while_loop"), cond_fun, body_fun, value)

    return _run(run, (init_val,), "while_loop")


def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, *, unroll: int | bool | None = None) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)``. The bounds are ints, sizes, or traced integers."""
    del unroll

    def run(lower: Any, upper: Any, value: Any) -> Any:
        trace = running_trace("fori_loop")
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
    begin, end = _extent(lower, "lower"), _extent(upper, "upper")
    from tenferro.tracer.dims import maximum, sub

    turns = maximum(sub(end, begin), 0)
    (_, last), _ = traced.scan(
        trace, lambda s, _: ((s[0] + 1, body(s[0], s[1])), None), (lower, value), None, turns, False,
        "fori_loop",
    )  # fmt: skip
    return last


def _extent(x: Any, what: str) -> Any:
    found = as_extent(x)
    if found is None:
        raise ShapeError(f"{what} is {x!r}; an int or a size is needed{at(user_line())}")
    return found


def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any, operand: Any = None) -> Any:
    """``true_fun(*operands)`` where ``pred`` holds, else ``false_fun(*operands)``; only one of them runs.

    Both return pytrees of one structure, shapes and dtypes. ShapeError where they do not."""
    given = operands if operand is None else (*operands, operand)

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
            f"cond: pred of type {value.type}; one bool is needed, numpy.where chooses by element{at(user_line())}"
        )
    b = Derivation(trace)
    return value if value.type.dtype == np.bool_ else b.not_equal(value, b.like(0, value))


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """``branches[index](*operands)``; an index out of range takes the nearest branch. Only one of them runs."""
    if not branches:
        raise ValueError(f"switch: no branches; at least one is needed{at(user_line())}")

    def run(index: Any, *given: Any) -> Any:
        trace = running_trace("switch")
        value = leaf_of(trace, index, "switch").operand
        if value.type.shape or value.type.dtype.kind not in "iu":
            raise ShapeError(f"switch: index of type {value.type}; one integer is needed{at(user_line())}")
        return traced.switch(
            trace, Derivation(trace).convert(value, np.dtype(np.int64)), tuple(branches), given, "switch"
        )

    return _run(run, (index, *operands), "switch")


def map(f: Function, xs: Any, *, batch_size: int | None = None) -> Any:
    """``f`` of every entry along the leading axes of ``xs``, one after the other, stacked. ``tn.vmap`` does them at
    once. batch_size: so many at once."""
    if batch_size is not None:
        return _in_batches(f, xs, batch_size)
    return scan(lambda _, x: (None, f(x)), None, xs)[1]


def _in_batches(f: Function, xs: Any, batch_size: int) -> Any:
    from tenferro.batching import vmap

    if batch_size < 1:
        raise ValueError(f"map: batch_size is {batch_size}; at least 1 is needed{at(user_line())}")
    count = len(tree.leaves(xs)[0])
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

    ShapeError where the sizes along the axis differ."""

    def run(elems: Any) -> Any:
        values, treedef = tree.flatten(elems)
        if not values:
            return elems
        moved = [np.moveaxis(x, axis, 0) for x in values]
        if reverse:
            moved = [np.flip(x, 0) for x in moved]

        def combined(a: list[Any], b: list[Any]) -> list[Any]:
            return tree.leaves(fn(tree.unflatten(treedef, _back(a, axis)), tree.unflatten(treedef, _back(b, axis))))

        def fronted(a: list[Any], b: list[Any]) -> list[Any]:
            return [np.moveaxis(x, axis, 0) for x in combined(a, b)]

        count = len(moved[0])
        found = _running(fronted, moved, count) if count > 1 else [np.copy(x) for x in moved]
        if reverse:
            found = [np.flip(x, 0) for x in found]
        return tree.unflatten(treedef, _back(found, axis))

    return _run(run, (elems,), "associative_scan")


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
