"""Loops and choices under ``disable_jit``: their functions in, called turn by turn by Python, results out.

The functions see concrete values, ``tn.Array``s and Python's numbers, so that ``print`` and debuggers work in them;
inside a derivative they see its traced values, which are known. Results have the types and bits that the loops have
elsewhere. What cannot be run so is left to the traced loops: None stands for it, any result comes in a tuple.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType
from typing import Any, TypeAlias

import numpy as np

from tenferro import disabling, tree
from tenferro.array import Array, asarray
from tenferro.tracer.code_names import names_of
from tenferro.tracer.copies import contents_of, reached
from tenferro.tracer.dim import Dim
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.places import plain_function
from tenferro.tracer.program import ArrayType
from tenferro.tracer.trace import current_trace
from tenferro.tracer.traced import TracedArray, as_traced, fresh
from tenferro.tracer.transform.control import pair_of
from tenferro.tracer.transform.inputs import is_numeric
from tenferro.tracer.tree import in_order_of

Function: TypeAlias = Callable[..., Any]
Done: TypeAlias = tuple[Any] | None

_NUMBERS = (bool, int, float, complex)


def _is_on() -> bool:
    trace = current_trace()
    return disabling.is_on() and (trace is None or trace.is_once)


def scan(f: Function, init: Any, xs: Any, length: Any, reverse: bool) -> Done:
    """``scan``. Loops of no turns are left: what they would stack is not known."""
    walked, treedef = tree.flatten(xs)
    if not _is_on() or not _all_numeric(init, xs) or not all(np.ndim(x) for x in walked):
        return None
    counts = {int(length)} if type(length) is int else set()
    counts |= {len(x) for x in walked}
    if len(counts) != 1 or (turns := counts.pop()) < 1:
        return None
    carry, entered, stacked = _own(init), [_seen(x) for x in walked], []
    shown: Any = None
    for k in range(turns)[:: -1 if reverse else 1]:
        new, y = pair_of(f(carry, tree.unflatten(treedef, [x[k] for x in entered])), "scan")
        carry = _carried(carry, new, "scan")
        values, shown = tree.flatten(y if shown is None else in_order_of(y, shown))
        stacked.append([_kept(v) for v in values])
    if reverse:
        stacked.reverse()
    ys = [_stacked(each) for each in zip(*stacked, strict=True)]
    return (_left((carry, tree.unflatten(shown, ys)), (init, xs), f),)


def while_loop(condition: Function, body: Function, init: Any) -> Done:
    """``while_loop``."""
    if not _is_on() or not _all_numeric(init):
        return None
    carry = _own(init)
    while (holds := _truth(condition(carry))) is not False:
        if holds is None:
            return None
        carry = _carried(carry, body(carry), "while_loop")
    return (_left(carry, init, body, condition),)


def fori_loop(lower: Any, upper: Any, body: Function, init: Any) -> Done:
    """``fori_loop``; the body gets Python's ints where the bounds are."""
    bounds = lower, upper
    if not _is_on() or not _all_numeric(init, bounds) or not all(map(_is_integer, bounds)):
        return None
    if _truth(lower < upper) is None:
        return None
    carry, k = _own(init), lower if type(lower) is int else _seen(lower)
    while _truth(k < upper):
        carry = _carried(carry, body(k, carry), "fori_loop")
        k = k + 1
    return (_left(carry, (init, bounds), body),)


def _is_integer(x: Any) -> bool:
    """One number of an integer or bool dtype."""
    return not np.ndim(x) and np.dtype(getattr(x, "dtype", type(x))).kind in "iub"


def cond(pred: Any, true_fun: Function, false_fun: Function, operands: tuple[Any, ...]) -> Done:
    """``cond``."""
    if not _is_on() or not is_numeric(pred) or np.ndim(pred) or (holds := _truth(pred)) is None:
        return None
    chosen = true_fun if holds else false_fun
    return (_left(chosen(*tree.map(_seen, operands)), operands, chosen),)


def switch(index: Any, branches: Sequence[Function], operands: tuple[Any, ...]) -> Done:
    """``switch``."""
    is_index = is_numeric(index) and not np.ndim(index) and np.result_type(index).kind in "iu"
    if not _is_on() or not is_index or _truth(index == 0) is None:
        return None
    chosen = branches[min(max(int(index), 0), len(branches) - 1)]
    return (_left(chosen(*tree.map(_seen, operands)), operands, chosen),)


# -- values ----------------------------------------------------------------------------------------------------------


def _all_numeric(*trees: Any) -> bool:
    return all(is_numeric(x) for t in trees for x in tree.leaves(t))


def _truth(x: Any) -> bool | None:
    """Whether it holds; None where that is not known, or no bool was given."""
    if type(x) is TracedArray:
        x = None if x.type.shape else x._known_number("bool")
    return None if x is None or np.ndim(x) else bool(x)


def _seen(x: Any) -> Any:
    """An array from outside as the functions see it: to be read."""
    if isinstance(x, Array):
        return x.copy()
    if current_trace() is not None:
        return as_traced(current_trace(), x, "scan") if isinstance(x, np.ndarray) else x  # type: ignore[arg-type]
    if not isinstance(x, np.ndarray | np.generic):
        return x
    view = np.asarray(x).view()
    view.flags.writeable = False
    return asarray(view) if view.ndim else asarray(view.reshape(1))[0]


def _own(values: Any) -> Any:
    """What a loop begins with, in arrays of its own."""
    return tree.map(lambda x: x.copy() if isinstance(x := _seen(x), Array | TracedArray) else x, values)


def _kept(x: Any) -> Any:
    """A value as it is now: the turns to come may write into it."""
    return x if type(x) in (*_NUMBERS, Dim) or isinstance(x, np.generic) else x.copy()


def _stacked(values: Sequence[Any]) -> Any:
    """The values of all turns; numbers give way to arrays."""
    firm = [x.dtype for x in values if type(x) not in (*_NUMBERS, Dim)]
    if not firm:
        return np.stack([np.asarray(x) for x in values])
    return np.stack([x if hasattr(x, "dtype") else np.asarray(x, firm[0]) for x in values])


def _left(result: Any, given: Any, *functions: Function) -> Any:
    """A result in the kind of what was given, or read outside: NumPy's for NumPy's."""
    trace = current_trace()
    if trace is not None:
        return tree.map(lambda x: fresh(trace, as_traced(trace, x, "scan").read()), result)
    if any(isinstance(x, Array) for x in tree.leaves(given)) or _read_arrays(functions):
        return tree.map(asarray, result)
    return tree.map(lambda x: np.asarray(x)[()] if not np.ndim(x) else np.asarray(x), result)


def _read_arrays(functions: Iterable[Function]) -> bool:
    """Whether functions, or those in their closures, read a ``tn.Array`` from outside."""
    waiting, known = list(functions), set[int]()
    while waiting:
        plain, held = plain_function(waiting.pop())
        values = [f.value for f in held]
        if plain is not None and id(plain) not in known:
            known.add(id(plain))
            values += [v for cell in plain.__closure__ or () for v in contents_of(cell)]
            waiting += [v for v in values if isinstance(v, FunctionType | MethodType | functools.partial)]
            values += [plain.__globals__.get(name) for name in names_of(plain.__code__)[0]]
        if any(isinstance(p, Array) for v in values for p in reached(v)):
            return True
    return False


# -- the carry ---------------------------------------------------------------------------------------------------------


def _type(x: Any) -> ArrayType:
    if type(x) is TracedArray:
        return ArrayType(x.dtype, tuple(map(int, x.shape)), x.type.weak)
    dtype = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    return ArrayType(dtype, tuple(np.shape(x)), type(x) in (int, float, complex, Dim))


def _carried(old: Any, new: Any, name: str) -> Any:
    """The next carry, in the type of the last one. ShapeError where it has another."""
    before, treedef = tree.flatten(old)
    after, found = tree.flatten(in_order_of(new, treedef))
    if found != treedef:
        raise ShapeError(
            f"{name}: the carry begins with the structure {treedef} and becomes {found}; one structure is "
            f"needed{at(user_line())}"
        )
    places = tree.paths(treedef)
    return tree.unflatten(treedef, [_fitted(*x, name) for x in zip(before, after, places, strict=True)])


def _fitted(old: Any, new: Any, place: str, name: str) -> Any:
    was, now = _type(old), _type(new)
    same = was.shape == now.shape
    if same and was.dtype == now.dtype and was.weak >= now.weak:
        return new
    if same and now.weak and np.can_cast(now.dtype, was.dtype, "same_kind"):
        if type(new) is TracedArray:
            return new.astype(was.dtype)
        made = np.asarray(new).astype(was.dtype)[()]
        return made.item() if was.weak else _seen(made)
    if same and was.weak:
        return new
    where = f" at {place}" if place else ""
    raise ShapeError(
        f"{name}: the carry{where} begins as {was.dtype.name} of shape {was.shape} and becomes {now.dtype.name} of "
        f"shape {now.shape}; one type is needed, begin with that or convert{at(user_line())}"
    )
