"""Pointwise rows. Operands arrive converted and broadcast: all have the result's shape or rank 0.

``scalar`` columns live in ``tenferro.tracer.scalar``, written once for every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer import scalar
from tenferro.tracer.errors import DtypeError
from tenferro.tracer.op import Constant, Op, Pointwise
from tenferro.tracer.ops import derivatives as d
from tenferro.tracer.ops.columns import INTEGERS, NOT_LINEAR, STEPS, batch_pointwise, linear, sides, terms
from tenferro.tracer.ops.rows import ALL, BOOL, FLOATS, NUMBERS, REALS, common_shape, row
from tenferro.tracer.program import ArrayType, Params


def _infer_where(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    condition, x, y = types
    if condition.dtype != BOOL or x.dtype != y.dtype:
        raise DtypeError(f"where: operands {[str(t) for t in types]}; a bool and two of one dtype are needed here")
    return (ArrayType(x.dtype, common_shape("where", types).shape, x.weak and y.weak),)


def _infer_required(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    x, found = types
    if found.dtype != np.int64:
        texts = [str(t) for t in types]
        raise DtypeError(f"required: operands {texts}; the second as int64 of one shape is needed here")
    return (ArrayType(x.dtype, common_shape("required", types).shape),)


def _infer_astype(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    if params["dtype"].kind not in ALL:
        raise DtypeError(f"astype: dtype {params['dtype'].name}; no rule for it")
    return (ArrayType(params["dtype"], types[0].shape),)


def _infer_bitcast(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    (x,), dtype = types, params["dtype"]
    if dtype.itemsize != x.dtype.itemsize or "c" in (dtype.kind, x.dtype.kind) or dtype.kind not in ALL:
        raise DtypeError(f"bitcast: {x.dtype.name} as {dtype.name}; real dtypes of equal width are needed here")
    return (ArrayType(dtype, x.shape),)


def _reference_bitcast(x: Any, *, dtype: np.dtype[Any]) -> Any:
    """A bool is 0 or 1; as a bool, what is not 0 is True."""
    return np.asarray(x) != 0 if dtype.kind == "b" else np.asarray(x).view(dtype)


def _reference_astype(x: Any, *, dtype: np.dtype[Any]) -> Any:
    """NumPy's conversion with the corners defined: float to int saturates, NaN gives 0, complex drops the imaginary
    part."""
    x = np.asarray(x)
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        x = x.real
    if x.dtype.kind == "f" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        safe = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        inside = (safe >= float(info.min)) & (safe < float(info.max) + (1.0 if dtype.itemsize < 8 else 0.0))
        low = np.where(safe < 0, info.min, info.max).astype(dtype)
        return np.where(inside, np.where(inside, safe, 0.0).astype(dtype), low)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def _floor_divide(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.floor_divide(x, y)


def _reference_guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(g: Any, f: Any) -> Any:
        with np.errstate(all="ignore"):
            found = function(g, f)
        return np.where(np.equal(g, 0), np.zeros((), found.dtype), found)

    return reference


def _reference_pair(g: Any, h: Any) -> Any:
    with np.errstate(all="ignore"):
        found = np.multiply(g, h)
    return np.where(np.equal(g, 0) | np.equal(h, 0), np.zeros((), found.dtype), found)


add = row(
    "add",
    np.add,
    kinds=ALL,
    result="same",
    cost=1,
    scalar=lambda b, x, y: scalar.add(b, x, y),
    jvp=terms(lambda b, t, z, x, y: t, lambda b, t, z, x, y: t),
    transpose=sides(lambda b, ct, x, y: ct, lambda b, ct, x, y: ct),
)
subtract = row(
    "subtract",
    np.subtract,
    kinds=NUMBERS,
    result="same",
    cost=1,
    scalar=lambda b, x, y: scalar.subtract(b, x, y),
    jvp=terms(lambda b, t, z, x, y: t, lambda b, t, z, x, y: b.negative(t)),
    transpose=sides(lambda b, ct, x, y: ct, lambda b, ct, x, y: b.negative(ct)),
)
multiply = row(
    "multiply",
    np.multiply,
    kinds=ALL,
    result="same",
    cost=1,
    scalar=lambda b, x, y: scalar.multiply(b, x, y),
    jvp=terms(lambda b, t, z, x, y: b.scaled(t, y), lambda b, t, z, x, y: b.scaled(t, x)),
    transpose=sides(lambda b, ct, x, y: b.times(ct, y), lambda b, ct, x, y: b.times(ct, x)),
)
divide = row(
    "divide",
    np.divide,
    kinds=FLOATS,
    result="same",
    cost=4,
    scalar=lambda b, x, y: scalar.divide(b, x, y),
    jvp=terms(lambda b, t, z, x, y: b.quotient(t, y), lambda b, t, z, x, y: b.negative(b.scaled(b.quotient(t, y), z))),
    transpose=sides(lambda b, ct, x, y: b.divide(ct, y), None),
)
floor_divide = row(
    "floor_divide", _floor_divide, kinds=REALS, result="same", cost=12, check="zero_divisor",
    scalar=lambda b, x, y: scalar.floor_divide(b, x, y),
    jvp=STEPS,
    transpose=NOT_LINEAR,
)  # fmt: skip
remainder = row(
    "remainder", np.remainder, kinds=REALS, result="same", cost=14, check="zero_divisor",
    scalar=lambda b, x, y: scalar.remainder(b, x, y),
    jvp=terms(lambda b, t, z, x, y: t, lambda b, t, z, x, y: b.negative(b.scaled(t, b.floor_divide(x, y)))),
    transpose=NOT_LINEAR,
)  # fmt: skip
negative = row(
    "negative",
    np.negative,
    kinds=NUMBERS,
    result="same",
    cost=1,
    scalar=lambda b, x: scalar.negative(b, x),
    jvp=linear(),
    transpose=sides(lambda b, ct, x: b.negative(ct)),
)
absolute = row(
    "absolute",
    np.absolute,
    kinds=ALL,
    result="real",
    cost=1,
    scalar=lambda b, x: scalar.absolute(b, x),
    jvp=d.absolute,
    transpose=NOT_LINEAR,
)
maximum = row(
    "maximum",
    np.maximum,
    kinds=ALL,
    result="same",
    cost=3,
    scalar=lambda b, x, y: scalar.maximum(b, x, y),
    jvp=d.extreme,
    transpose=NOT_LINEAR,
)
minimum = row(
    "minimum",
    np.minimum,
    kinds=ALL,
    result="same",
    cost=3,
    scalar=lambda b, x, y: scalar.minimum(b, x, y),
    jvp=d.extreme,
    transpose=NOT_LINEAR,
)
required = Op(
    "required", Pointwise(lambda b, x, found, name, reason: x, 1, "unmet"), _infer_required,
    lambda x, found, *, name, reason: np.broadcast_arrays(x, found)[0], terms(lambda b, t, z, x, found: t, None),
    sides(lambda b, ct, x, found: ct, None), batch_pointwise,
)  # fmt: skip
"""The first operand. Where the second is 0, which is int64, the function ``name`` has no result, for the ``reason``."""
copy = row(
    "copy",
    np.array,
    kinds=ALL,
    result="same",
    cost=0,
    scalar=lambda b, x: x,
    jvp=linear(),
    transpose=sides(lambda b, ct, x: ct),
)

equal = row(
    "equal",
    np.equal,
    kinds=ALL,
    result="bool",
    cost=1,
    scalar=lambda b, x, y: scalar.equal(b, x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
not_equal = row(
    "not_equal",
    np.not_equal,
    kinds=ALL,
    result="bool",
    cost=1,
    scalar=lambda b, x, y: scalar.not_equal(b, x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
less = row(
    "less",
    np.less,
    kinds=ALL,
    result="bool",
    cost=1,
    scalar=lambda b, x, y: scalar.less(b, x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
less_equal = row(
    "less_equal",
    np.less_equal,
    kinds=ALL,
    result="bool",
    cost=1,
    scalar=lambda b, x, y: scalar.less_equal(b, x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
# greater and greater_equal are less and less_equal with the operands exchanged, as IEEE comparison allows.

bitwise_and = row(
    "bitwise_and",
    np.bitwise_and,
    kinds="biu",
    result="same",
    cost=1,
    scalar=lambda b, x, y: b.and_(x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
bitwise_or = row(
    "bitwise_or",
    np.bitwise_or,
    kinds="biu",
    result="same",
    cost=1,
    scalar=lambda b, x, y: b.or_(x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
bitwise_xor = row(
    "bitwise_xor",
    np.bitwise_xor,
    kinds="biu",
    result="same",
    cost=1,
    scalar=lambda b, x, y: b.xor(x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
invert = row(
    "invert",
    np.invert,
    kinds="biu",
    result="same",
    cost=1,
    scalar=lambda b, x: b.not_(x),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)

exp = row(
    "exp",
    np.exp,
    kinds=FLOATS,
    result="same",
    cost=20,
    scalar=lambda b, x: scalar.exp(b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, z)),
    transpose=NOT_LINEAR,
)
log = row(
    "log",
    np.log,
    kinds=FLOATS,
    result="same",
    cost=25,
    scalar=lambda b, x: scalar.log(b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, x)),
    transpose=NOT_LINEAR,
)
sin = row(
    "sin",
    np.sin,
    kinds=FLOATS,
    result="same",
    cost=30,
    scalar=lambda b, x: scalar.sin(b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, b.cos(x))),
    transpose=NOT_LINEAR,
)
cos = row(
    "cos",
    np.cos,
    kinds=FLOATS,
    result="same",
    cost=30,
    scalar=lambda b, x: scalar.cos(b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(b.negative(t), b.sin(x))),
    transpose=NOT_LINEAR,
)
tanh = row(
    "tanh",
    np.tanh,
    kinds=FLOATS,
    result="same",
    cost=30,
    scalar=lambda b, x: scalar.tanh(b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, d.one_less_square(b, z))),
    transpose=NOT_LINEAR,
)
sqrt = row(
    "sqrt",
    np.sqrt,
    kinds=FLOATS,
    result="same",
    cost=5,
    scalar=lambda b, x: scalar.sqrt(b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.times(z, b.like(2, z)))),
    transpose=NOT_LINEAR,
)
conjugate = row(
    "conjugate",
    np.conjugate,
    kinds=NUMBERS,
    result="same",
    cost=1,
    scalar=lambda b, x: scalar.conjugate(b, x),
    jvp=linear(),
    transpose=sides(lambda b, ct, x: b.conjugate(ct)),
)
real = row(
    "real",
    np.real,
    kinds=ALL,
    result="real",
    cost=0,
    scalar=lambda b, x: scalar.real(b, x),
    jvp=linear(),
    transpose=sides(lambda b, ct, x: b.convert(ct, x.type.dtype)),
)
imag = row(
    "imag",
    np.imag,
    kinds=ALL,
    result="real",
    cost=0,
    scalar=lambda b, x: scalar.imag(b, x),
    jvp=linear(),
    transpose=sides(d.imaginary_side),
)

tangent_product = row(
    "tangent_product", _reference_guarded(np.multiply), kinds=FLOATS, result="same", cost=3,
    scalar=lambda b, g, f: scalar.guarded(b, g, scalar.multiply(b, g, f)),
    jvp=d.product,
    transpose=sides(lambda b, ct, g, f: b.scaled(ct, f), lambda b, ct, g, f: b.tangent_pair(ct, g)),
)  # fmt: skip
"""A tangent times a factor, which is 0 where the tangent is, whatever the factor is."""
tangent_quotient = row(
    "tangent_quotient", _reference_guarded(np.divide), kinds=FLOATS, result="same", cost=6,
    scalar=lambda b, g, f: scalar.guarded(b, g, scalar.divide(b, g, f)),
    jvp=d.quotient, transpose=sides(lambda b, ct, g, f: b.quotient(ct, f), None),
)  # fmt: skip
"""A tangent over a divisor, which is 0 where the tangent is, whatever the divisor is."""
tangent_pair = row(
    "tangent_pair", _reference_pair, kinds=FLOATS, result="same", cost=5,
    scalar=lambda b, g, h: scalar.guarded(b, h, scalar.guarded(b, g, scalar.multiply(b, g, h))),
    jvp=terms(lambda b, t, z, g, h: b.tangent_pair(t, h), lambda b, t, z, g, h: b.tangent_pair(g, t)),
    transpose=sides(lambda b, ct, g, h: b.tangent_pair(ct, h), lambda b, ct, g, h: b.tangent_pair(g, ct)),
)  # fmt: skip
"""The product of two tangents, which is 0 where one of them is. Derivatives of guarded products are made of it."""
bitcast = Op(
    "bitcast", Pointwise(lambda b, x, dtype: scalar.bitcast(b, x, dtype), 0, None), _infer_bitcast, _reference_bitcast,
    Constant("bits, not a number"), NOT_LINEAR, batch_pointwise,
)  # fmt: skip
where = Op(
    "where", Pointwise(lambda b, c, x, y: scalar.where(b, c, x, y), 1, None), _infer_where, np.where,
    d.where_jvp, d.where_transpose, batch_pointwise,
)  # fmt: skip
astype = Op(
    "astype", Pointwise(lambda b, x, dtype: scalar.astype(b, x, dtype), 1, None), _infer_astype, _reference_astype,
    linear(), sides(lambda b, ct, x: b.convert(ct, x.type.dtype)), batch_pointwise,
)  # fmt: skip
