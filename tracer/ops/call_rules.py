"""Derivatives and batches of NumPy functions that are called by name, as far as they have some, and of recurrences.

``JVPS`` gives the result's tangent from those of the operands. All are mapped, if need be by a call for each lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenferro.tracer.dims import Extent, product, sub
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops import bilinear_rules as bilinear, derivatives as d
from tenferro.tracer.ops.columns import lane_of, terms
from tenferro.tracer.ops.layout_rules import lanes, one
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Rule: TypeAlias = Callable[["Derivation", Operation, Tangents], Tangents]
Static: TypeAlias = dict[str, Any]


def jvp_call(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """By the function's name; those without a rule are refused, and those that are called lane by lane."""
    name = operation.params["function"]
    rule = JVPS.get(name)
    if rule is None or operation.params.get("lanes"):
        raise DerivativeError(
            f"{name}: its derivative was asked for, and it has none: a function of NumPy that is called by name; "
            f"stop_gradient(x) holds its operand constant{at(operation.line)}"
        )
    return rule(b, operation, tangents)


def transpose_call(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    """Of the one function that rules emit about tangents."""
    assert operation.params["function"] == "convolve" and not operation.params.get("lanes")
    return bilinear.transpose_convolve(b, operation, cotangents, is_linear)


def batch_call(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """One call for all lanes where the function has a place for their axis, else one for each."""
    params, static = dict(operation.params), static_of(operation)
    name, operands = params["function"], list(operation.inputs)
    if params.get("lanes"):
        return _by_lane(b, operation, batched, size)
    if name in ELEMENTWISE:
        lane = params["shape"]
        operands = [lane_of(b, x, mine, lane, size) for x, mine in zip(operands, batched, strict=True)]
    elif name in ALONG_AXES and static.get("axis", -1) is not None:
        axis = static.get("axis", -1)
        static["axis"] = tuple(a + 1 for a in axis) if isinstance(axis, tuple) else axis + (axis >= 0)
    elif [k for k, mine in enumerate(batched) if mine] != [OF_ANY_SHAPE.get(name)]:
        return _by_lane(b, operation, batched, size)
    moved = {"shape": (size, *params["shape"]), "static": tuple(sorted(static.items()))}
    return b.emit(operation.op, operands, **{**params, **moved})


def _by_lane(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """A call for each lane: no function of NumPy's is left out."""
    params = operation.params
    moved = {"lanes": (tuple(batched), *params.get("lanes", ())), "shape": (size, *params["shape"])}
    return b.emit(operation.op, operation.inputs, **{**params, **moved})


def static_of(operation: Operation) -> Static:
    """The function's keyword arguments."""
    return dict(operation.params["static"])


# -- running products ------------------------------------------------------------------------------------------------


def shifted(b: Derivation, x: Operand, axis: int, fill: float) -> Operand:
    """Each element one place further along the axis, with ``fill`` in front; the last one goes."""
    rank = len(x.type.shape)
    low = tuple(int(k == axis) for k in range(rank))
    longer = b.pad(x, b.like(fill, x), low=low, high=(0,) * rank)
    return b.cut(longer, (0,) * rank, x.type.shape)


def products_of_others(b: Derivation, x: Operand, axes: Sequence[int]) -> Operand:
    """For each element the product of all others over the axes. Not the product over the element: what a factor of 0
    leaves would be lost, and with it the second derivatives there."""
    shape = x.type.shape
    kept = [k for k in range(len(shape)) if k not in axes]
    order = [*kept, *axes]
    moved = b.permuted(x, order)
    row = b.reshaped(moved, (*(shape[k] for k in kept), product(shape[k] for k in axes)))
    last = len(kept)
    ends = [b.products_before(row, axis=last, reverse=reverse) for reverse in (False, True)]
    others = b.reshaped(b.multiply(*ends), moved.type.shape)
    return b.permuted(others, [order.index(k) for k in range(len(shape))])


def jvp_before(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """y[i] = x[i − 1] · y[i − 1], differentiated: a recurrence."""
    (x,), (y,), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    axis, ends = operation.params["axis"], [operation.params["axis"]] * operation.params["reverse"]
    xs, ys, ts = (b.flipped(v, ends) for v in (x, y, t))
    found = b.recurrence(shifted(b, xs, axis, 0), shifted(b, b.scaled(ts, ys), axis, 0), axis=axis)
    return (b.flipped(found, ends),)


def _jvp_cumprod(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """y[i] = x[i] · y[i − 1], differentiated: a recurrence."""
    (x,), (y,), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    axis = static_of(operation)["axis"]
    factors, t = b.convert(x, y.type.dtype), b.convert(t, y.type.dtype)
    return (b.recurrence(factors, b.scaled(t, shifted(b, y, axis, 1)), axis=axis),)


def _before(b: Derivation, y: Operand, axis: int) -> tuple[Operand, Operand]:
    """For each running result the one before it; and whether there is one."""
    places = b.iota(shape=y.type.shape, axis=axis)
    return shifted(b, y, axis, 0), b.less(b.like(0, places), places)


def _jvp_running_extreme(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """The mean of the tangents of the elements so far that are equal to the result, as that of a largest element is."""
    (x,), (y,), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    axis, dtype = static_of(operation)["axis"], y.type.dtype
    x, t = b.convert(x, dtype), b.convert(t, dtype)
    before, is_later = _before(b, y, axis)
    stays = b.convert(b.bitwise_and(is_later, b.equal(y, before)), dtype)
    is_met = b.convert(b.equal(x, y), dtype)
    count = b.recurrence(stays, is_met, axis=axis)
    total = b.recurrence(stays, b.scaled(t, is_met), axis=axis)
    return (b.quotient(total, b.maximum(count, b.like(1, count))),)


def _jvp_running_log_sum(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """y' = (e^y[i − 1] y[i − 1]' + e^x[i] x[i]') / e^y[i]: a recurrence. Of equal numbers, infinite ones too, the
    quotient is 1."""
    (x,), (y,), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    axis, dtype = static_of(operation)["axis"], y.type.dtype
    x, t = b.convert(x, dtype), b.convert(t, dtype)
    before, is_later = _before(b, y, axis)

    def share(part: Operand) -> Operand:
        return b.where(b.equal(part, y), b.like(1, y), b.exp(b.subtract(part, y)))

    kept = b.where(is_later, share(before), b.like(0, y))
    return (b.recurrence(kept, b.scaled(t, share(x)), axis=axis),)


# -- recurrences -----------------------------------------------------------------------------------------------------


def jvp_recurrence(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """The recurrence of the same factors; what a factor's tangent adds is a term of it."""
    (factors, _), (found,), axis = operation.inputs, operation.outputs, operation.params["axis"]
    s, t = tangents
    added = None if s is None else b.scaled(s, shifted(b, found, axis, 0))
    moved = b.plus(added, t)
    return (None if moved is None else b.recurrence(factors, moved, axis=axis),)


def transpose_recurrence(
    b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]
) -> Tangents:  # fmt: skip
    """The recurrence from the other end; linear in the terms."""
    (factors, _), axis = operation.inputs, operation.params["axis"]
    backwards = b.flipped(factors, [axis])
    found = b.recurrence(shifted(b, backwards, axis, 0), b.flipped(one(cotangents), [axis]), axis=axis)
    return (None, b.flipped(found, [axis]))


def batch_recurrence(
    b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent
) -> Sequence[Operand]:  # fmt: skip
    """Along the same axis of each lane."""
    return (b.recurrence(*lanes(b, operation.inputs, batched, size), axis=operation.params["axis"] + 1),)


# -- order -----------------------------------------------------------------------------------------------------------


def _ordered(b: Derivation, x: Operand, t: Operand, axes: Sequence[int], kind: Any = None) -> tuple[Operand, int]:
    """The tangents of sorted elements, the axes as one at the end; and that axis."""
    shape = x.type.shape
    kept = [k for k in range(len(shape)) if k not in axes]
    outer, length = [shape[k] for k in kept], product(shape[k] for k in axes)
    last = len(kept)
    rows, tangents = (b.reshaped(b.permuted(v, [*kept, *axes]), (*outer, length)) for v in (x, t))
    static = (("axis", last), *((("kind", kind),) if kind is not None else ()))
    order = b.numpy_call(rows, function="argsort", static=static, shape=rows.type.shape, dtype=b.int64)
    return _taken_along(b, tangents, order), last


def _taken_along(b: Derivation, x: Operand, order: Operand) -> Operand:
    """``x[..., order]`` row by row along the last axis."""
    shape = order.type.shape
    first = b.multiply(b.order_of(shape[:-1]), b.size(shape[-1], b.int64))
    places = b.add(order, b.broadcast_to(first, shape=shape, axes=tuple(range(len(shape) - 1))))
    return b.take(b.reshaped(x, (product(shape),)), places, axis=0)


def _jvp_sort(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Each tangent goes where its element goes."""
    (x,), (t,), static = operation.inputs, tangents, static_of(operation)
    assert t is not None
    rank = len(x.type.shape)
    if static.get("axis", -1) is None:
        return (_ordered(b, x, t, range(rank), static.get("kind"))[0],)
    axis = static.get("axis", -1) % rank
    found, _ = _ordered(b, x, t, [axis], static.get("kind"))
    order = [*(k for k in range(rank) if k != axis), axis]
    return (b.permuted(found, [order.index(k) for k in range(rank)]),)


def _jvp_partition(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """The tangents in order, each put where the element of its rank is."""
    (y,), static = operation.outputs, static_of(operation)
    (found,) = _jvp_sort(b, operation, tangents)
    assert found is not None
    rank = len(y.type.shape)
    axis = 0 if static.get("axis", -1) is None else static.get("axis", -1) % rank
    kept = [k for k in range(rank) if k != axis]
    order = [*kept, axis]
    rows = b.permuted(y, order)
    once = {"static": (("axis", rank - 1), ("kind", "stable")), "shape": rows.type.shape, "dtype": b.int64}
    ranks = b.numpy_call(b.numpy_call(rows, function="argsort", **once), function="argsort", **once)
    placed = _taken_along(b, b.permuted(found, order), ranks)
    return (b.permuted(placed, [order.index(k) for k in range(rank)]),)


def _jvp_quantile(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """That of the element, or between those of two neighbours in order, where the value is between them."""
    (x,), (y,), (t,), static = operation.inputs, operation.outputs, tangents, static_of(operation)
    assert t is not None
    method, axes = static.get("method", "linear"), static["axis"]
    if method not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise DerivativeError(
            f"{operation.params['function']}: its derivative with method {method!r}; linear, lower, higher, nearest "
            f"and midpoint have one{at(operation.line)}"
        )
    share = static.get("q", 0.5) / (100 if operation.params["function"] == "percentile" else 1)
    found, last = _ordered(b, x, b.convert(t, y.type.dtype), axes)
    float64 = b.float64
    end = b.subtract(b.size(found.type.shape[last], float64), b.number(1, float64))
    place = b.multiply(end, b.number(share, float64))
    if method == "nearest":
        place = b.rint(place)
    low = b.floor(place)
    middle = b.where(b.equal(low, place), b.number(0, float64), b.number(0.5, float64))
    rest: Operand = b.subtract(place, low)
    match method:
        case "lower":
            rest = b.number(0, float64)
        case "higher":
            rest = b.ceil(rest)
        case "midpoint":
            rest = middle
    low_place = b.convert(low, b.int64)
    high_place = b.convert(b.minimum(b.add(low, b.number(1, float64)), end), b.int64)
    weight = b.convert(rest, y.type.dtype)
    lower = b.scaled(b.take(found, low_place, axis=last), b.subtract(b.like(1, weight), weight))
    value = b.add(lower, b.scaled(b.take(found, high_place, axis=last), weight))
    return (b.reshaped(value, y.type.shape),)


def _jvp_interp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Along the line between two points; beyond the ends the value is that of the end, or the number that was given."""
    (x, xp, fp), (y,), static = operation.inputs, operation.outputs, static_of(operation)
    if static.get("period") is not None:
        raise DerivativeError(f"interp: its derivative with period; without it there is one{at(operation.line)}")
    dtype = y.type.dtype
    x, xp, fp = b.convert(x, b.float64), b.convert(xp, b.float64), b.convert(fp, dtype)
    given = [None if t is None else b.convert(t, b.float64 if k < 2 else dtype) for k, t in enumerate(tangents)]
    count = b.size(xp.type.shape[0], b.int64)
    found = b.numpy_call(
        xp, x, function="searchsorted", static=(("side", "right"),), shape=x.type.shape, dtype=b.int64
    )  # fmt: skip
    one_, zero = b.number(1, b.int64), b.number(0, b.int64)
    low = b.maximum(b.minimum(b.subtract(found, one_), b.subtract(count, b.number(2, b.int64))), zero)
    high = b.minimum(b.add(low, one_), b.subtract(count, one_))

    def ends(v: Operand) -> tuple[Operand, Operand]:
        return b.take(v, low, axis=0), b.take(v, high, axis=0)

    (x0, x1), (f0, f1) = ends(xp), ends(fp)
    width = b.subtract(x1, x0)
    weight = b.where(b.equal(width, b.like(0, width)), b.like(0, width), b.divide(b.subtract(x, x0), width))
    weight = b.maximum(b.minimum(weight, b.like(1, weight)), b.like(0, weight))
    slope = b.divide(b.subtract(f1, f0), b.convert(width, dtype))
    is_left, is_right = b.less(x, x0), b.less(x1, x)
    outside = b.bitwise_or(is_left, is_right)

    def between(v: Operand) -> Operand:
        share = b.convert(weight, v.type.dtype)
        first, second = ends(v)
        return b.add(b.scaled(first, b.subtract(b.like(1, share), share)), b.scaled(second, share))

    across = b.plus(given[0], None if given[1] is None else b.negative(between(given[1])))
    total = None
    if across is not None:
        moved = b.where(outside, b.like(0, across), across)
        total = b.scaled(b.convert(moved, dtype), slope)
    if given[2] is not None:
        held = between(given[2])
        for side, number in ((is_left, static.get("left")), (is_right, static.get("right"))):
            held = held if number is None else b.where(side, b.like(0, held), held)
        total = b.plus(total, held)
    return (total,)


# -- element by element ----------------------------------------------------------------------------------------------


def _power(b: Derivation, x: Operand, y: Operand) -> Operand:
    shape = max((x.type.shape, y.type.shape), key=len)
    return b.numpy_call(x, y, function="power", static=(), shape=shape, dtype=x.type.dtype)


def _power_of_base(b: Derivation, t: Operand, z: Operand, x: Operand, y: Operand) -> Operand:
    return b.scaled(t, b.scaled(y, _power(b, x, b.subtract(y, b.like(1, y)))))


def _power_of_exponent(b: Derivation, t: Operand, z: Operand, x: Operand, y: Operand) -> Operand:
    return b.scaled(t, b.where(b.equal(x, b.like(0, x)), b.like(0, x), b.multiply(z, b.log(x))))


def _power_of_two(b: Derivation, t: Operand, z: Operand, x: Operand, n: Operand) -> Operand:
    """ldexp's factor."""
    one_ = b.broadcast(b.like(1, z), n.type.shape)
    return b.scaled(t, b.numpy_call(one_, n, function="ldexp", static=(), shape=n.type.shape, dtype=z.type.dtype))


def _of_sinc(b: Derivation, t: Operand, z: Operand, x: Operand) -> Operand:
    """(cos πx − sinc x) / x; near 0, where that cancels, the first terms of its series: 0.2 x⁷ is left out."""
    turn, square = b.cos(b.multiply(x, b.like(math.pi, x))), b.multiply(x, x)
    series: Operand = b.like(-(math.pi**6) / 840, x)
    for factor in (math.pi**4 / 30, -(math.pi**2) / 3):
        series = b.add(b.multiply(series, square), b.like(factor, x))
    near = b.less(b.absolute(x), b.like(0.02, x))
    return b.scaled(t, b.where(near, b.multiply(series, x), b.divide(b.subtract(turn, z), x)))


def _jvp_ediff1d(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    (x,), (t,), (y,) = operation.inputs, tangents, operation.outputs
    assert t is not None
    count = product(x.type.shape)
    if operation.params["static"] or b.trace.concrete(sub(count, y.type.shape[0]), "ediff1d") != 1:
        raise DerivativeError(
            f"ediff1d: its derivative with to_end, to_begin or fewer than two elements; without there is one"
            f"{at(operation.line)}"
        )
    row = b.reshaped(t, (count,))
    return (b.subtract(b.cut(row, (1,), y.type.shape), b.cut(row, (0,), y.type.shape)),)


def _square_root(b: Derivation, x: Operand, sign: float) -> Operand:
    """√(1 ± x²), by way of factors for 1 − x²."""
    return b.sqrt(d.one_less_square(b, x) if sign < 0 else b.add(b.multiply(x, x), b.like(1, x)))


ELEMENTWISE: dict[str, Rule] = {
    "fmax": d.extreme,
    "fmin": d.extreme,
    "ldexp": terms(_power_of_two, None),
    "expm1": terms(lambda b, t, z, x: b.scaled(t, b.add(z, b.like(1, z)))),
    "log1p": terms(lambda b, t, z, x: b.quotient(t, b.add(x, b.like(1, x)))),
    "power": terms(_power_of_base, _power_of_exponent),
    "arcsin": terms(lambda b, t, z, x: b.quotient(t, _square_root(b, x, -1))),
    "arccos": terms(lambda b, t, z, x: b.negative(b.quotient(t, _square_root(b, x, -1)))),
    "arctan": terms(lambda b, t, z, x: b.quotient(t, b.add(b.multiply(x, x), b.like(1, x)))),
    "arcsinh": terms(lambda b, t, z, x: b.quotient(t, _square_root(b, x, 1))),
    "arccosh": terms(lambda b, t, z, x: b.quotient(t, d.root_of_square_less_one(b, x))),
    "arctanh": terms(lambda b, t, z, x: b.quotient(t, d.one_less_square(b, x))),
}
"""Of complex numbers, but for the first three; real ones have rows."""
JVPS: dict[str, Rule] = {
    **ELEMENTWISE,
    "cumprod": _jvp_cumprod,
    "maximum.accumulate": _jvp_running_extreme,
    "minimum.accumulate": _jvp_running_extreme,
    "logaddexp.accumulate": _jvp_running_log_sum,
    "sort": _jvp_sort,
    "median": _jvp_quantile,
    "quantile": _jvp_quantile,
    "percentile": _jvp_quantile,
    "interp": _jvp_interp,
    "partition": _jvp_partition,
    "ediff1d": _jvp_ediff1d,
    "unwrap": terms(lambda b, t, z, x: t),
    "sinc": terms(_of_sinc),
    "convolve": bilinear.convolve,
    "correlate": bilinear.convolve,
    "kron": bilinear.kron,
    "cross": bilinear.cross,
}
ACCUMULATED = (
    "maximum", "minimum", "fmax", "fmin", "logaddexp", "logical_and", "logical_or", "bitwise_and", "bitwise_or",
    "bitwise_xor",
)  # fmt: skip
"""Ufuncs whose ``accumulate`` runs as a call, beside the running sums and products."""
ALONG_AXES = frozenset({
    "cumprod", "sort", "argsort", "median", "quantile", "percentile", "argpartition", "partition",
    *(f"{name}.accumulate" for name in ACCUMULATED),
})  # fmt: skip
"""Functions whose ``axis`` may move: the last one where none is given."""
OF_ANY_SHAPE = {"interp": 0, "digitize": 0, "searchsorted": 1, "sinc": 0, "i0": 0}
"""Functions that work element by element of one operand, whatever its shape, and the place of that."""
