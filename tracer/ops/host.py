"""Host rows: operations that call a Python function of the user's on NumPy arrays.

Operands are the arrays that the function gets; ``params["call"]`` is the function (``HostCall``), ``dtypes`` and
``shapes`` are those of the results. ``lanes``: for each mapping whose lanes are called one after the other, the outer
one first, which operands have lanes; results then begin with as many axes. ``method``: how ``vmap`` calls. Every row
with effects gives a bool of rank 0 behind its results, so that the operation has a name where nobody reads those.

``pure_callback`` may be dropped, shared and called again; the others are called once, in the program's order. None of
the rows is in the table that programs on disk are read with: a function has no name there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import CallbackError
from tenferro.tracer.op import Absent, Constant, Host, Op
from tenferro.tracer.program import ArrayType, Operand, Operation, Params

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Array = np.ndarray[Any, Any]
Results = Sequence[Any]

_numbers = count()
TRUTH = np.dtype(np.bool_)


class HostCall:
    """A function as a parameter: ``run(*arrays)`` gives a sequence of results. Two are equal where their ``key`` is:
    what they were made of. ``sees_lanes``: it is told the numbers of the lane, as ``lane=``."""

    def __init__(self, name: str, run: Callable[..., Results], key: Hashable = None, sees_lanes: bool = False) -> None:
        self.name = name
        self.run = run
        self.sees_lanes = sees_lanes
        try:
            hash(key)
        except TypeError:
            key = None
        self._key = key
        self._number = next(_numbers)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, HostCall) and self._key is not None and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key) if self._key is not None else id(self)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        """Another one for another function, as programs are compared by their texts."""
        return f"{self.name} #{self._number if self._key is None else hash(self._key)}"


def _infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    return tuple([ArrayType(d, tuple(s)) for d, s in zip(params["dtypes"], params["shapes"], strict=True)])


def _infer_with_token(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    return (*_infer(types, params), ArrayType(TRUTH, tuple(params["extents"])))


def called(
    arrays: Sequence[Any], call: HostCall, dtypes: Sequence[Any], shapes: Sequence[Any], lanes: Sequence[Any],
    lane: tuple[int, ...] = (), extents: Sequence[int] = (),
) -> list[Array]:  # fmt: skip
    """The results of a call, or of one for each lane. ``extents``: how many lanes each mapping has."""
    if not lanes:
        return _checked(call, _run(call, arrays, lane), dtypes, shapes)
    (flags, *inner), size = lanes, int(extents[0])
    found = [np.zeros(s, d) for d, s in zip(dtypes, shapes, strict=True)]
    parts = [s[1:] for s in shapes]
    for k in range(size):
        mine = [np.asarray(x)[k] if on else x for x, on in zip(arrays, flags, strict=True)]
        for whole, one in zip(found, called(mine, call, dtypes, parts, inner, (*lane, k), extents[1:]), strict=True):
            whole[k] = one
    return found


def _run(call: HostCall, arrays: Sequence[Any], lane: tuple[int, ...]) -> Results:
    given = [_shown(x) for x in arrays]
    # Programs run with NumPy's warnings off; the user's function has those that NumPy begins with.
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        return call.run(*given, lane=lane) if call.sees_lanes else call.run(*given)


def _shown(x: Any) -> Any:
    """An array that may not be written, or a NumPy scalar."""
    array = np.asarray(x)
    if not array.ndim:
        return array[()]
    view = array.view()
    view.flags.writeable = False
    return view


def _checked(call: HostCall, results: Results, dtypes: Sequence[Any], shapes: Sequence[Any]) -> list[Array]:
    """The results as arrays of the declared types."""
    found = []
    for k, (one, dtype, shape) in enumerate(zip(results, dtypes, shapes, strict=True)):
        array = np.asarray(one)
        gives_way = type(one) in (bool, int, float, complex) and np.can_cast(array.dtype, dtype, "same_kind")
        fits = array.dtype == dtype or gives_way
        if not fits or array.shape != tuple(shape):
            where = f"result {k} is " if len(dtypes) > 1 else "the result is "
            raise CallbackError(
                f"{call.name}: {where}{array.dtype} of shape {array.shape}; {dtype} of shape {tuple(shape)} is declared"
            )
        found.append(np.array(array, dtype))  # the function may keep what it gave
    return found


def _reference(*arrays: Any, call: HostCall, **params: Any) -> tuple[Array, ...]:
    return tuple(called(arrays, call, params["dtypes"], params["shapes"], params["lanes"], (), params["extents"]))


def _reference_with_token(*arrays: Any, call: HostCall, **params: Any) -> tuple[Array, ...]:
    return (*_reference(*arrays, call=call, **params), np.ones(tuple(params["extents"]), TRUTH))


def _holds(condition: Any, *arrays: Any, **params: Any) -> tuple[Array, ...]:
    """The lanes are looked at one by one where something does not hold."""
    if np.all(condition):
        return (np.ones(tuple(params["extents"]), TRUTH),)
    return _reference_with_token(condition, *arrays, **params)


def _batch(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """A call for each lane, in order, or one for all of them where ``method`` says that the function takes that."""
    params, operands = operation.params, list(operation.inputs)
    method = params["method"]
    moved = {**params, "shapes": tuple([(size, *s) for s in params["shapes"]])}
    if method == "sequential":
        moved |= {"lanes": (tuple(batched), *params["lanes"]), "extents": (size, *params["extents"])}
        return b.emit(operation.op, operands, **moved)
    for k, on in enumerate(batched):
        if not on and method == "broadcast_all":
            operands[k] = b.stretched(operands[k], size)
        elif not on:
            operands[k] = b.stretched(operands[k], 1)
    found = b.emit(operation.op, operands, **moved)
    if not isinstance(operation.op.form, Host) or not operation.op.form.ordered:
        return found
    return (*found[:-1], b.stretched(found[-1], size))  # one call has one token


_NO_SLOPE = "a Python function is called; tn.custom_jvp or tn.custom_vjp around the function that calls it gives it one"
_NOT_LINEAR = Absent("a Python function is called, which is not known to be linear")

pure_callback = Op(
    "pure_callback", Host(ordered=False), _infer, _reference, Absent(_NO_SLOPE), _NOT_LINEAR, _batch
)  # fmt: skip
io_callback = Op(
    "io_callback", Host(ordered=True), _infer_with_token, _reference_with_token, Absent(_NO_SLOPE), _NOT_LINEAR, _batch
)  # fmt: skip
debug_callback = Op(
    "debug_callback", Host(ordered=True), _infer_with_token, _reference_with_token,
    Constant("it gives nothing"), _NOT_LINEAR, _batch,
)  # fmt: skip
check = Op(
    "check", Host(ordered=True), _infer_with_token, _holds, Constant("it gives nothing"), _NOT_LINEAR, _batch
)  # fmt: skip
