"""Elementwise functions: NumPy's ufuncs by name, each a few rows of the op table.

In: traced arrays, numbers, Dims, arrays from outside. Out: one traced array (two for ``divmod``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import deliver, new, new_array, strengthened
from tenferro.tracer.api.promotion import (
    as_bool,
    beyond,
    broadcast_operands,
    chosen,
    converted,
    is_weak,
    resolve,
    result_type,
)
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dim import Dim
from tenferro.tracer.errors import ExponentError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import elementary, library, pointwise as p
from tenferro.tracer.program import DimScalar, Literal, Operand, Value
from tenferro.tracer.trace import Trace, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand

Lower = Callable[..., Operand]


def apply(
    ufunc: np.ufunc,
    lower: Lower,
    args: tuple[Any, ...],
    out: Any = None,
    where: Any = True,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> Any:
    """Promote, convert, broadcast, and write the function with ``lower(trace, *operands)``."""
    name = ufunc.__name__
    trace = running_trace(name)
    return _apply(trace, ufunc, lower, [operand(trace, x, name) for x in args], out, where, dtype, casting)


def _apply(
    trace: Trace,
    ufunc: np.ufunc,
    lower: Lower,
    pairs: Sequence[tuple[Operand, Any]],
    out: Any,
    where: Any,
    dtype: Any,
    casting: Any,
) -> Any:
    name = ufunc.__name__
    resolved = resolve(ufunc, tuple([k for _, k in pairs]), dtype, casting)
    operands = [
        x if type(x) is Value and x.type.dtype is d else converted(trace, x, d, name)
        for (x, _), d in zip(pairs, resolved, strict=False)
    ]
    if len(operands) > 1:
        operands = broadcast_operands(trace, name, operands)
    value = lower(trace, *operands)
    return new(trace, value) if out is None and where is True else deliver(trace, name, value, out, where, casting)


def row(op: Op) -> Lower:
    """A function that is one row."""
    return lambda trace, *operands: trace.emit1(op, *operands)


def _unary(ufunc: np.ufunc, lower: Lower) -> Callable[..., Any]:
    def function(
        x: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: Any = "same_kind"
    ) -> Any:
        return apply(ufunc, lower, (x,), out, where, dtype, casting)

    function.__name__ = ufunc.__name__
    return function


def _binary(ufunc: np.ufunc, lower: Lower) -> Callable[..., Any]:
    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: Any = "same_kind"
    ) -> Any:
        return apply(ufunc, lower, (x1, x2), out, where, dtype, casting)

    function.__name__ = ufunc.__name__
    return function


# -- comparisons ---------------------------------------------------------------------------------------------------


def _compare(trace: Trace, op: Op, a: Operand, b: Operand) -> Operand:
    """One comparison; int64 against uint64 is exact, as in NumPy."""
    if a.type.dtype == b.type.dtype:
        return trace.emit1(op, a, b)
    signed, unsigned = (a, b) if a.type.dtype.kind == "i" else (b, a)
    negative = trace.emit1(p.less, signed, Literal(0, signed.type.dtype))
    wide = build.convert(trace, signed, unsigned.type.dtype)
    plain = trace.emit1(op, *((wide, unsigned) if signed is a else (unsigned, wide)))
    if op is p.not_equal or (op in (p.less, p.less_equal) and signed is a):
        return trace.emit1(p.bitwise_or, negative, plain)
    return trace.emit1(p.bitwise_and, trace.emit1(p.invert, negative), plain)


def _constant_answer(trace: Trace, pairs: Sequence[tuple[Operand, Any]]) -> tuple[Operand, int] | None:
    """(array, sign) where one side is a Python int that the array's integer dtype cannot hold: every comparison with
    it is that of 0 with the sign."""
    left, right = pairs
    for (array, key), (number, kind), side in ((left, right, 1), (right, left, -1)):
        if kind is int and not is_weak(key) and (found := beyond(trace, number, key)):
            return array, side * found
    return None


def _beside_none(trace: Trace, name: str, x: Any) -> Operand:
    """No number equals None."""
    answer = Literal(name == "not_equal", np.dtype(np.bool_))
    return build.broadcast(trace, answer, operand(trace, x, name)[0].type.shape)


def _comparison(ufunc: np.ufunc, op: Op, swap: bool) -> Callable[..., Any]:
    name = ufunc.__name__

    def lower(trace: Trace, a: Operand, b: Operand) -> Operand:
        return _compare(trace, op, b, a) if swap else _compare(trace, op, a, b)

    def function(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: Any = "same_kind"
    ) -> Any:
        trace = running_trace(name)
        if op in (p.equal, p.not_equal) and (x1 is None or x2 is None):
            return deliver(trace, name, _beside_none(trace, name, x2 if x1 is None else x1), out, where)
        pairs = [operand(trace, x, name) for x in (x1, x2)]
        constant = _constant_answer(trace, pairs)
        if constant is None:
            return _apply(trace, ufunc, lower, pairs, out, where, dtype, casting)
        array, sign = constant
        value = build.broadcast(trace, Literal(bool(ufunc(0, sign)), np.dtype(np.bool_)), array.type.shape)
        return deliver(trace, name, value, out, where, casting)

    function.__name__ = name
    return function


# -- compositions --------------------------------------------------------------------------------------------------


def _one(x: Operand) -> Literal:
    return build.literal(1, x.type.dtype)


def _square(trace: Trace, x: Operand) -> Operand:
    return trace.emit1(p.multiply, x, x)


def _reciprocal(trace: Trace, x: Operand) -> Operand:
    if x.type.dtype.kind in "iu":
        floor = trace.emit1(p.floor_divide, _one(x), x)
        if x.type.dtype.kind == "u":
            return floor
        # NumPy's reciprocal of integers rounds towards 0. Of 0 it is what x86-64 converts infinity to, the lowest int32
        # or int64; that is added, since what a where discards does not warn.
        below = trace.emit1(p.less, x, build.literal(-1, x.type.dtype))
        towards_0 = trace.emit1(p.where, below, build.literal(0, x.type.dtype), floor)
        if x.type.dtype.itemsize < 4:
            return towards_0
        is_0 = trace.emit1(p.equal, x, build.literal(0, x.type.dtype))
        lowest = build.literal(np.iinfo(x.type.dtype).min, x.type.dtype)
        return trace.emit1(p.add, towards_0, trace.emit1(p.where, is_0, lowest, build.literal(0, x.type.dtype)))
    if x.type.dtype.kind == "c":
        return trace.emit1(elementary.reciprocal, x)
    return trace.emit1(p.divide, _one(x), x)


def _add(trace: Trace, x: Operand, y: Operand) -> Operand:
    return trace.emit1(p.add, x, y)


def _isnan(trace: Trace, x: Operand) -> Operand:
    return trace.emit1(p.not_equal, x, x)


def _isfinite(trace: Trace, x: Operand) -> Operand:
    """``|re| < inf`` and ``|im| < inf``: the modulus itself could overflow."""
    if x.type.dtype.kind == "c":
        parts = [_isfinite(trace, trace.emit1(op, x)) for op in (p.real, p.imag)]
        return trace.emit1(p.bitwise_and, *parts)
    size = trace.emit1(p.absolute, x)
    if x.type.dtype.kind in "biu":
        return trace.emit1(p.equal, x, x)
    return trace.emit1(p.less, size, build.literal(np.inf, x.type.dtype))


def _isinf(trace: Trace, x: Operand) -> Operand:
    if x.type.dtype.kind == "c":
        parts = [_isinf(trace, trace.emit1(op, x)) for op in (p.real, p.imag)]
        return trace.emit1(p.bitwise_or, *parts)
    if x.type.dtype.kind in "biu":
        return trace.emit1(p.not_equal, x, x)
    return trace.emit1(p.equal, trace.emit1(p.absolute, x), build.literal(np.inf, x.type.dtype))


def _logical(op: Op) -> Lower:
    return lambda trace, x, y: trace.emit1(op, as_bool(trace, x), as_bool(trace, y))


def _logical_not(trace: Trace, x: Operand) -> Operand:
    return trace.emit1(p.invert, as_bool(trace, x))


def _fmax(op: Op) -> Lower:
    """NaN only where both are NaN."""

    def lower(trace: Trace, x: Operand, y: Operand) -> Operand:
        if x.type.dtype.kind not in "fc":
            return trace.emit1(op, x, y)
        x_nan, y_nan = (trace.emit1(p.not_equal, v, v) for v in (x, y))
        return trace.emit1(p.where, y_nan, x, trace.emit1(p.where, x_nan, y, trace.emit1(op, x, y)))

    return lower


def _copy(trace: Trace, x: Operand) -> Operand:
    return build.copied(trace, x)


# -- power ---------------------------------------------------------------------------------------------------------

_WHOLE_EXPONENTS = range(-1, 4)
SMALL_EXPONENTS: tuple[float, ...] = (*_WHOLE_EXPONENTS, 0.5)


def _exponent(x: Any) -> Any:
    """The exponent as a Python number where the trace knows it, else None. Whether a size or an int argument is one
    of the small exponents becomes a guard."""
    if type(x) in (int, float):
        return x
    if type(x) is Dim:
        return next((k for k in _WHOLE_EXPONENTS if x == k), None)
    if isinstance(x, np.integer | np.floating):
        return x.item()
    if type(x) is TracedArray and not x.type.shape:
        known = x.known()
        return None if known is None else known.item()  # a formula of sizes is no exponent: it would pin them unasked
    return None


def power(
    x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """``x1 ** x2``: products, a reciprocal and a square root for the exponents -1, 0, 1, 2, 3 and 0.5.

    ValueError where an integer meets a negative integer exponent."""
    exponent = _exponent(x2)
    if exponent in SMALL_EXPONENTS:
        return apply(np.power, partial(_power, exponent=exponent), (x1, x2), out, where, dtype, casting)
    from tenferro.tracer.api.vocabulary import general_power

    trace = running_trace("power")
    (base, base_key), (value, key) = (operand(trace, x, "power") for x in (x1, x2))
    dtype_of_base, dtype_of_exponent, _ = resolve(np.power, (base_key, key), dtype, casting)
    fits = not (key is int and beyond(trace, value, dtype_of_exponent))  # else an OverflowError, as in NumPy
    if fits and dtype_of_base.kind in "iu" and _is_negative(trace, value):
        raise _negative_exponent(trace.hint(value.expr) if isinstance(value, DimScalar) else exponent)
    return apply(np.power, general_power, (x1, x2), out, where, dtype, casting)


def _is_negative(trace: Trace, x: Operand) -> bool:
    """Whether a number that the trace knows is below 0."""
    if isinstance(x, DimScalar):
        return trace.guard("<", x.expr, 0)
    return isinstance(x, Literal) and not isinstance(x.value, complex) and x.value < 0


def _negative_exponent(exponent: Any) -> ExponentError:
    return ExponentError(
        f"power: integers to the exponent {exponent}; integers to negative integer powers are not allowed, "
        f"x.astype(float) is needed{at(user_line())}"
    )


def _power(trace: Trace, x: Operand, y: Operand, *, exponent: float) -> Operand:
    if x.type.dtype.kind in "iu" and exponent < 0:
        raise _negative_exponent(exponent)
    match exponent:
        case 0.5:
            return trace.emit1(p.sqrt, x)
        case 0:
            return build.broadcast(trace, _one(x), x.type.shape)
        case 1:
            return build.copied(trace, x)
        case -1:
            return _reciprocal(trace, x)
        case _:
            square = trace.emit1(p.multiply, x, x)
            return square if exponent == 2 else trace.emit1(p.multiply, square, x)


# -- functions that are no plain ufuncs ------------------------------------------------------------------------------


def divmod_(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """``(x1 // x2, x1 % x2)``."""
    if out is not None:
        raise TraceError(f"divmod: out; floor_divide and remainder, each with its own, are available{at(user_line())}")
    rules = {"dtype": dtype, "casting": casting}
    return FLOOR_DIVIDE(x1, x2, **rules), REMAINDER(x1, x2, **rules)


def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """Elements of ``x`` where the condition holds, else of ``y``; the one-argument form is ``nonzero``."""
    if x is None and y is None:
        from tenferro.tracer.api.indexing import nonzero

        return nonzero(condition)
    if x is None or y is None:
        raise ShapeError(f"where: one of x and y; both, or neither, are needed{at(user_line())}")
    trace = running_trace("where")
    mask, _ = operand(trace, condition, "where")
    (a, a_key), (b, b_key) = operand(trace, x, "where"), operand(trace, y, "where")
    dtype = result_type((a_key, b_key))
    a, b = chosen(trace, a, dtype), chosen(trace, b, dtype)
    operands = broadcast_operands(trace, "where", [as_bool(trace, mask), a, b])
    return new_array(trace, trace.emit1(p.where, *operands))


def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """``minimum(maximum(a, a_min), a_max)``; None leaves a side open, and so does a Python int beyond the dtype."""
    trace = running_trace("clip")
    array, key = operand(trace, strengthened(trace, a, "clip"), "clip")
    low = _clip_bound(trace, key, a_min if a_min is not None else min, -1)
    high = _clip_bound(trace, key, a_max if a_max is not None else max, 1)
    bounds = [x for x in (low, high) if x is not None]
    pairs = [(array, key), *(operand(trace, x, "clip") for x in bounds)]
    dtype = result_type([k for _, k in pairs])
    operands = broadcast_operands(trace, "clip", [converted(trace, x, dtype, "clip") for x, _ in pairs])
    value = operands[0]
    for bound, op in zip(operands[1:], ([p.maximum] if low is not None else []) + [p.minimum], strict=False):
        value = trace.emit1(op, value, bound)
    return deliver(trace, "clip", build.copied(trace, value) if not bounds else value, out)


def _clip_bound(trace: Trace, key: Any, bound: Any, side: int) -> Any:
    """The bound, or None where no element of the dtype can lie beyond it."""
    if bound is None or is_weak(key):
        return bound
    value, kind = operand(trace, bound, "clip")
    return None if kind is int and beyond(trace, value, key) == side else bound


def _predicate(name: str, answer: Callable[[Any], bool]) -> ApiFunction:
    def function(x: Any) -> bool:
        return answer(x)

    return ApiFunction(name, function, ("x",), False, getattr(np, name))


def _is_complex(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    return isinstance(x, complex) if dtype is None else bool(dtype.kind == "c")


def iscomplex(x: Any) -> Any:
    """Where the imaginary part is not 0."""
    trace = running_trace("iscomplex")
    value, _ = operand(trace, x, "iscomplex")
    part = trace.emit1(p.imag, value)
    return new(trace, trace.emit1(p.not_equal, part, build.literal(0, part.type.dtype)))


def isreal(x: Any) -> Any:
    """Where the imaginary part is 0."""
    return apply(np.logical_not, _logical_not, (iscomplex(x),))


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """NaN and infinities replaced by numbers; in the array itself where ``copy`` is False."""
    trace = running_trace("nan_to_num")
    is_array = isinstance(x, np.ndarray) or is_tenferro_array(x)
    if is_array and not (copy or getattr(x, "_scalar", False)):
        made = nan_to_num(x, True, nan, posinf, neginf)
        return deliver(trace, "nan_to_num", made.read(), as_traced(trace, x, "nan_to_num"))
    value, _ = operand(trace, x, "nan_to_num")
    dtype = value.type.dtype
    if dtype.kind in "biu":
        return new(trace, build.copied(trace, value))
    if dtype.kind == "c":
        static = (("nan", nan), ("neginf", neginf), ("posinf", posinf))
        shape = value.type.shape
        call = trace.emit1(library.numpy_call, value, function="nan_to_num", static=static, shape=shape, dtype=dtype)
        return new(trace, call)
    info = np.finfo(dtype)
    limits = [
        (_isnan(trace, value), nan),
        (trace.emit1(p.equal, value, build.literal(np.inf, dtype)), info.max if posinf is None else posinf),
        (trace.emit1(p.equal, value, build.literal(-np.inf, dtype)), info.min if neginf is None else neginf),
    ]
    for condition, replacement in limits:
        value = trace.emit1(p.where, condition, build.literal(float(replacement), dtype), value)
    return new(trace, value)


_ROWS: tuple[tuple[np.ufunc, Lower], ...] = (
    (np.add, _add),
    (np.subtract, row(p.subtract)),
    (np.multiply, row(p.multiply)),
    (np.divide, row(p.divide)),
    (np.floor_divide, row(p.floor_divide)),
    (np.remainder, row(p.remainder)),
    (np.maximum, row(p.maximum)),
    (np.minimum, row(p.minimum)),
    (np.fmax, _fmax(p.maximum)),
    (np.fmin, _fmax(p.minimum)),
    (np.bitwise_and, row(p.bitwise_and)),
    (np.bitwise_or, row(p.bitwise_or)),
    (np.bitwise_xor, row(p.bitwise_xor)),
    (np.logical_and, _logical(p.bitwise_and)),
    (np.logical_or, _logical(p.bitwise_or)),
    (np.logical_xor, _logical(p.bitwise_xor)),
    (np.negative, row(p.negative)),
    (np.positive, _copy),
    (np.absolute, row(p.absolute)),
    (np.fabs, row(p.absolute)),
    (np.exp, row(p.exp)),
    (np.log, row(p.log)),
    (np.sin, row(p.sin)),
    (np.cos, row(p.cos)),
    (np.tanh, row(p.tanh)),
    (np.sqrt, row(p.sqrt)),
    (np.square, _square),
    (np.reciprocal, _reciprocal),
    (np.conjugate, row(p.conjugate)),
    (np.invert, row(p.invert)),
    (np.isnan, _isnan),
    (np.isfinite, _isfinite),
    (np.isinf, _isinf),
    (np.logical_not, _logical_not),
)
_COMPARISONS: tuple[tuple[np.ufunc, Op, bool], ...] = (
    (np.equal, p.equal, False),
    (np.not_equal, p.not_equal, False),
    (np.less, p.less, False),
    (np.less_equal, p.less_equal, False),
    (np.greater, p.less, True),
    (np.greater_equal, p.less_equal, True),
)


def _record(ufunc: np.ufunc, function: Callable[..., Any]) -> ApiFunction:
    arrays = ("x", "out", "where") if ufunc.nin == 1 else ("x1", "x2", "out", "where")
    return ApiFunction(ufunc.__name__, function, arrays, False, ufunc)


def of_rows(ufunc: np.ufunc, lower: Lower) -> ApiFunction:
    """The record of a ufunc that ``lower`` writes in rows."""
    return _record(ufunc, (_unary if ufunc.nin == 1 else _binary)(ufunc, lower))


FUNCTIONS: tuple[ApiFunction, ...] = (
    *(of_rows(u, lower) for u, lower in _ROWS),
    *(_record(u, _comparison(u, op, swap)) for u, op, swap in _COMPARISONS),
    _record(np.power, power),
    ApiFunction("divmod", divmod_, ("x1", "x2"), False, np.divmod),
    ApiFunction("where", where, ("condition", "x", "y"), False, np.where),
    ApiFunction("clip", clip, ("a", "a_min", "a_max", "out", "min", "max"), False, np.clip),
    ApiFunction("iscomplex", iscomplex, ("x",), False, np.iscomplex),
    ApiFunction("isreal", isreal, ("x",), False, np.isreal),
    ApiFunction("nan_to_num", nan_to_num, ("x",), False, np.nan_to_num),
    _predicate("iscomplexobj", _is_complex),
    _predicate("isrealobj", lambda x: not _is_complex(x)),
)
BY_UFUNC: dict[np.ufunc, ApiFunction] = {f.reference: f for f in FUNCTIONS if isinstance(f.reference, np.ufunc)}
FLOOR_DIVIDE: Callable[..., Any] = BY_UFUNC[np.floor_divide].function
REMAINDER: Callable[..., Any] = BY_UFUNC[np.remainder].function
