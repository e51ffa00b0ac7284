"""Rows of elementary functions beside those of ``pointwise``: exponentials, logarithms, powers, angles, C remainder."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer.ops import derivatives as d
from tenferro.tracer.ops.columns import NOT_LINEAR, terms
from tenferro.tracer.ops.rows import FLOATS, REALS, row
from tenferro.tracer.scalar import angles, complex_functions, growth, logarithms, powers
from tenferro.tracer.scalar.arithmetic import widened
from tenferro.tracer.scalar.builder import Complex
from tenferro.tracer.scalar.complex_arithmetic import hypot as _hypot, reciprocal as _reciprocal
from tenferro.tracer.scalar.division import truncated_remainder


def _rsqrt(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return (1 / np.sqrt(x)).astype(np.asarray(x).dtype)


def _exp2(x: Any) -> Any:
    """NumPy multiplies complex64 by ln 2 in float32, which leaves nothing of a large angle."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        return np.exp2(x.astype(np.complex128)).astype(x.dtype) if x.dtype == np.complex64 else np.exp2(x)


_WIDE = {
    f.__name__: widened(f)
    for f in (
        growth.expm1, growth.exp2, growth.sinh, growth.cosh, logarithms.log1p, logarithms.log2, logarithms.log10,
        logarithms.logaddexp, logarithms.logaddexp2, logarithms.arcsinh, logarithms.arccosh, logarithms.arctanh,
        powers.cbrt, powers.rsqrt, powers.power, angles.tan, angles.arcsin, angles.arccos, angles.arctan,
        angles.arctan2, _hypot,
    )
}  # fmt: skip
"""The same functions, float16 by way of float32."""


def _either(name: str, b: Any, x: Any) -> Any:
    return getattr(complex_functions, name)(b, x) if isinstance(x, Complex) else _WIDE[name](b, x)


def _power(b: Any, x: Any, y: Any) -> Any:
    return powers.integer_power(b, x, y) if x.dtype.kind in "iu" else _WIDE["power"](b, x, y)


expm1 = row(
    "expm1",
    np.expm1,
    kinds="f",
    result="same",
    cost=25,
    scalar=lambda b, x: _WIDE["expm1"](b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, b.add(z, b.like(1, z)))),
    transpose=NOT_LINEAR,
)
exp2 = row(
    "exp2",
    _exp2,
    kinds=FLOATS,
    result="same",
    cost=20,
    scalar=lambda b, x: _either("exp2", b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, b.multiply(z, b.like(d.LN2, z)))),
    transpose=NOT_LINEAR,
)
log1p = row(
    "log1p",
    np.log1p,
    kinds="f",
    result="same",
    cost=35,
    scalar=lambda b, x: _WIDE["log1p"](b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.add(x, b.like(1, x)))),
    transpose=NOT_LINEAR,
)
log2 = row(
    "log2",
    np.log2,
    kinds=FLOATS,
    result="same",
    cost=30,
    scalar=lambda b, x: _either("log2", b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.multiply(x, b.like(d.LN2, x)))),
    transpose=NOT_LINEAR,
)
log10 = row(
    "log10",
    np.log10,
    kinds=FLOATS,
    result="same",
    cost=30,
    scalar=lambda b, x: _either("log10", b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.multiply(x, b.like(d.LN10, x)))),
    transpose=NOT_LINEAR,
)
logaddexp = row(
    "logaddexp",
    np.logaddexp,
    kinds="f",
    result="same",
    cost=65,
    scalar=lambda b, x, y: _WIDE["logaddexp"](b, x, y),
    jvp=d.logaddexp("exp"),
    transpose=NOT_LINEAR,
)
logaddexp2 = row(
    "logaddexp2", np.logaddexp2, kinds="f", result="same", cost=65,
    scalar=lambda b, x, y: _WIDE["logaddexp2"](b, x, y),
    jvp=d.logaddexp("exp2"),
    transpose=NOT_LINEAR,
)  # fmt: skip
power = row(
    "power", np.power, kinds=REALS, result="same", cost=70, check="negative_exponent",
    scalar=lambda b, x, y: _power(b, x, y),
    jvp=d.power,
    transpose=NOT_LINEAR,
)  # fmt: skip
cbrt = row(
    "cbrt",
    np.cbrt,
    kinds="f",
    result="same",
    cost=35,
    scalar=lambda b, x: _WIDE["cbrt"](b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.multiply(b.like(3, z), b.multiply(z, z)))),
    transpose=NOT_LINEAR,
)
rsqrt = row(
    "rsqrt",
    _rsqrt,
    kinds="f",
    result="same",
    cost=10,
    scalar=lambda b, x: _WIDE["rsqrt"](b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, b.multiply(b.like(-0.5, z), b.divide(z, x)))),
    transpose=NOT_LINEAR,
)
hypot = row(
    "hypot",
    np.hypot,
    kinds="f",
    result="same",
    cost=40,
    scalar=lambda b, x, y: _WIDE["hypot"](b, x, y),
    jvp=terms(
        lambda b, t, z, x, y: b.scaled(t, d.hypot_share(b, z, x)),
        lambda b, t, z, x, y: b.scaled(t, d.hypot_share(b, z, y)),
    ),
    transpose=NOT_LINEAR,
)
reciprocal = row(
    "reciprocal",
    np.reciprocal,
    kinds="c",
    result="same",
    cost=5,
    scalar=lambda b, x: _reciprocal(b, x),
    jvp=terms(lambda b, t, z, x: b.negative(b.scaled(t, b.multiply(z, z)))),
    transpose=NOT_LINEAR,
)
"""Of complex numbers; of others it is a quotient."""
fmod = row(
    "fmod", np.fmod, kinds=REALS, result="same", cost=12, check="zero_divisor",
    scalar=lambda b, x, y: truncated_remainder(b, x, y),
    jvp=terms(lambda b, t, z, x, y: t, lambda b, t, z, x, y: b.negative(b.scaled(t, d.truncated_quotient(b, z, x, y)))),
    transpose=NOT_LINEAR,
)  # fmt: skip

sinh = row(
    "sinh",
    np.sinh,
    kinds=FLOATS,
    result="same",
    cost=45,
    scalar=lambda b, x: _either("sinh", b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, b.cosh(x))),
    transpose=NOT_LINEAR,
)
cosh = row(
    "cosh",
    np.cosh,
    kinds=FLOATS,
    result="same",
    cost=35,
    scalar=lambda b, x: _either("cosh", b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, b.sinh(x))),
    transpose=NOT_LINEAR,
)
arcsinh = row(
    "arcsinh",
    np.arcsinh,
    kinds="f",
    result="same",
    cost=55,
    scalar=lambda b, x: _WIDE["arcsinh"](b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.hypot(x, b.like(1, x)))),
    transpose=NOT_LINEAR,
)
arccosh = row(
    "arccosh",
    np.arccosh,
    kinds="f",
    result="same",
    cost=55,
    scalar=lambda b, x: _WIDE["arccosh"](b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, d.root_of_square_less_one(b, x))),
    transpose=NOT_LINEAR,
)
arctanh = row(
    "arctanh",
    np.arctanh,
    kinds="f",
    result="same",
    cost=50,
    scalar=lambda b, x: _WIDE["arctanh"](b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, d.one_less_square(b, x))),
    transpose=NOT_LINEAR,
)
tan = row(
    "tan",
    np.tan,
    kinds=FLOATS,
    result="same",
    cost=50,
    scalar=lambda b, x: _either("tan", b, x),
    jvp=terms(lambda b, t, z, x: b.scaled(t, b.add(b.multiply(z, z), b.like(1, z)))),
    transpose=NOT_LINEAR,
)
arcsin = row(
    "arcsin",
    np.arcsin,
    kinds="f",
    result="same",
    cost=40,
    scalar=lambda b, x: _WIDE["arcsin"](b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.sqrt(d.one_less_square(b, x)))),
    transpose=NOT_LINEAR,
)
arccos = row(
    "arccos",
    np.arccos,
    kinds="f",
    result="same",
    cost=40,
    scalar=lambda b, x: _WIDE["arccos"](b, x),
    jvp=terms(lambda b, t, z, x: b.negative(b.quotient(t, b.sqrt(d.one_less_square(b, x))))),
    transpose=NOT_LINEAR,
)
arctan = row(
    "arctan",
    np.arctan,
    kinds="f",
    result="same",
    cost=40,
    scalar=lambda b, x: _WIDE["arctan"](b, x),
    jvp=terms(lambda b, t, z, x: b.quotient(t, b.add(b.multiply(x, x), b.like(1, x)))),
    transpose=NOT_LINEAR,
)
arctan2 = row(
    "arctan2",
    np.arctan2,
    kinds="f",
    result="same",
    cost=55,
    scalar=lambda b, x, y: _WIDE["arctan2"](b, x, y),
    jvp=d.arctan2,
    transpose=NOT_LINEAR,
)
