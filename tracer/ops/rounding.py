"""Rows of rounding, signs and neighbours of floats, and shifts of integers."""

from __future__ import annotations

import numpy as np

from tenferro.tracer.ops import derivatives as d
from tenferro.tracer.ops.columns import INTEGERS, NOT_LINEAR, STEPS, terms
from tenferro.tracer.ops.rows import NUMBERS, row
from tenferro.tracer.scalar import rounding as r, shifts

floor = row(
    "floor",
    np.floor,
    kinds="f",
    result="same",
    cost=1,
    scalar=lambda b, x: r.floor(b, x),
    jvp=STEPS,
    transpose=NOT_LINEAR,
)
ceil = row(
    "ceil",
    np.ceil,
    kinds="f",
    result="same",
    cost=1,
    scalar=lambda b, x: r.ceil(b, x),
    jvp=STEPS,
    transpose=NOT_LINEAR,
)
trunc = row(
    "trunc",
    np.trunc,
    kinds="f",
    result="same",
    cost=1,
    scalar=lambda b, x: r.trunc(b, x),
    jvp=STEPS,
    transpose=NOT_LINEAR,
)
rint = row(
    "rint",
    np.rint,
    kinds="fc",
    result="same",
    cost=1,
    scalar=lambda b, x: r.rint(b, x),
    jvp=STEPS,
    transpose=NOT_LINEAR,
)
sign = row(
    "sign",
    np.sign,
    kinds=NUMBERS,
    result="same",
    cost=4,
    scalar=lambda b, x: r.sign(b, x),
    jvp=d.sign,
    transpose=NOT_LINEAR,
)
signbit = row(
    "signbit",
    np.signbit,
    kinds="f",
    result="bool",
    cost=1,
    scalar=lambda b, x: r.signbit(b, x),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
copysign = row(
    "copysign",
    np.copysign,
    kinds="f",
    result="same",
    cost=1,
    scalar=lambda b, x, y: r.copysign(b, x, y),
    jvp=d.copysign,
    transpose=NOT_LINEAR,
)
heaviside = row(
    "heaviside",
    np.heaviside,
    kinds="f",
    result="same",
    cost=5,
    scalar=lambda b, x, y: r.heaviside(b, x, y),
    jvp=terms(None, lambda b, t, z, x, y: b.where(b.equal(x, b.like(0, x)), t, b.like(0, t))),
    transpose=NOT_LINEAR,
)
nextafter = row(
    "nextafter",
    np.nextafter,
    kinds="f",
    result="same",
    cost=12,
    scalar=lambda b, x, y: r.nextafter(b, x, y),
    jvp=terms(lambda b, t, z, x, y: t, None),
    transpose=NOT_LINEAR,
)
left_shift = row(
    "left_shift",
    np.left_shift,
    kinds="iu",
    result="same",
    cost=3,
    scalar=lambda b, x, y: shifts.left_shift(b, x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
right_shift = row(
    "right_shift",
    np.right_shift,
    kinds="iu",
    result="same",
    cost=3,
    scalar=lambda b, x, y: shifts.right_shift(b, x, y),
    jvp=INTEGERS,
    transpose=NOT_LINEAR,
)
