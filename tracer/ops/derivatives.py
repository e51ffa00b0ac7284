"""Derivatives of pointwise rows that take more than a line: rules and parts of terms (``tenferro.tracer.ops.columns``).

What a tangent is multiplied by may be infinite or NaN where its value is not used, so that factors go through
``b.scaled`` and ``b.quotient`` unless they are finite for every operand.

At kinks: |x| has slope 0 at 0; of equal operands of a maximum or minimum each has half a say; the slope of hypot at the
origin is 0. Complex derivatives are as JAX's: a derivative of a function that is not holomorphic acts on real and
imaginary parts, and what is pulled back is not conjugated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.op import JvpRule, Tangents
from tenferro.tracer.ops.columns import terms
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

LN2, LN10 = math.log(2), math.log(10)


def one_less_square(b: Derivation, x: Operand) -> Operand:
    """1 − x², as (1 − x)(1 + x), which keeps its digits near 1."""
    return b.multiply(b.subtract(b.like(1, x), x), b.add(x, b.like(1, x)))


def root_of_square_less_one(b: Derivation, x: Operand) -> Operand:
    """√(x² − 1), by way of its factors."""
    return b.multiply(b.sqrt(b.subtract(x, b.like(1, x))), b.sqrt(b.add(x, b.like(1, x))))


def _absolute(b: Derivation, t: Operand, z: Operand, x: Operand) -> Operand:
    if x.type.dtype.kind != "c":
        return b.scaled(t, b.sign(x))
    return b.real(b.scaled(t, b.conjugate(b.sign(x))))


absolute = terms(_absolute)


def sign(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """0 for real numbers. A complex number's direction z = x / |x| turns: by i z Im(conj(z) t) / |x|, and not at 0."""
    (x,), (z,), (t,) = operation.inputs, operation.outputs, tangents
    if t is None or x.type.dtype.kind != "c":
        return (None,)
    modulus = b.absolute(x)
    radius = b.where(b.equal(modulus, b.like(0, modulus)), b.like(math.inf, modulus), modulus)
    turn = b.quotient(b.imag(b.scaled(t, b.conjugate(z))), radius)
    return (b.scaled(b.convert(turn, z.type.dtype), b.multiply(b.like(1j, z), z)),)


def extreme_share(b: Derivation, z: Operand, x: Operand, other: Operand) -> Operand:
    """How much of a maximum or minimum ``z`` of two is ``x``: 1, a half, or 0."""
    half = b.where(b.equal(other, z), b.like(0.5, z), b.like(1, z))
    return b.where(b.equal(x, z), half, b.like(0, z))


extreme = terms(
    lambda b, t, z, x, y: b.times(t, extreme_share(b, z, x, y)),
    lambda b, t, z, x, y: b.times(t, extreme_share(b, z, y, x)),
)


def _share_of_log(b: Derivation, exp: str, z: Operand, x: Operand, other: Operand) -> Operand:
    """exp(x − z), and where z is infinite the share in a maximum."""
    infinite = b.equal(b.absolute(z), b.like(math.inf, z))
    return b.where(infinite, extreme_share(b, z, x, other), getattr(b, exp)(b.subtract(x, z)))


def logaddexp(exp: str) -> JvpRule:
    """Of log(eˣ + eʸ), or with another base, whose power is the row ``exp``."""
    return terms(
        lambda b, t, z, x, y: b.scaled(t, _share_of_log(b, exp, z, x, y)),
        lambda b, t, z, x, y: b.scaled(t, _share_of_log(b, exp, z, y, x)),
    )


def _power_of_base(b: Derivation, t: Operand, z: Operand, x: Operand, y: Operand) -> Operand:
    """t · y · xʸ⁻¹; an exponent of 0 makes a constant, also at x = 0."""
    return b.scaled(t, b.scaled(y, b.power(x, b.subtract(y, b.like(1, y)))))


def _power_of_exponent(b: Derivation, t: Operand, z: Operand, x: Operand, y: Operand) -> Operand:
    """t · xʸ · ln x, where 0ʸ does not vary with y."""
    zero = b.equal(x, b.like(0, x))
    return b.scaled(t, b.where(zero, b.like(0, x), b.multiply(z, b.log(x))))


power = terms(_power_of_base, _power_of_exponent)


def _over_square(b: Derivation, coordinate: Operand, other: Operand) -> Operand:
    """coordinate / (coordinate² + other²), whose squares neither overflow nor vanish: r = smaller / larger has
    larger · (1 + r²) for the sum over the larger one."""
    mine_is_larger = b.less(b.absolute(other), b.absolute(coordinate))
    larger, smaller = b.where(mine_is_larger, coordinate, other), b.where(mine_is_larger, other, coordinate)
    ratio = b.divide(smaller, larger)
    share = b.where(mine_is_larger, b.like(1, ratio), ratio)
    return b.divide(b.divide(share, larger), b.add(b.multiply(ratio, ratio), b.like(1, ratio)))


arctan2 = terms(
    lambda b, t, z, y, x: b.scaled(t, _over_square(b, x, y)),
    lambda b, t, z, y, x: b.scaled(b.negative(t), _over_square(b, y, x)),
)


def truncated_quotient(b: Derivation, z: Operand, x: Operand, y: Operand) -> Operand:
    """How often y went into x where z is left: (x − z) / y is an integer, but for rounding."""
    return b.rint(b.divide(b.subtract(x, z), y))


def hypot_share(b: Derivation, z: Operand, x: Operand) -> Operand:
    """x / hypot, which is 0 at the origin."""
    return b.where(b.equal(z, b.like(0, z)), b.like(0, z), b.divide(x, z))


def _sign_moved(b: Derivation, t: Operand, z: Operand, x: Operand, s: Operand) -> Operand:
    one = b.like(1, z)
    return b.times(t, b.multiply(b.copysign(one, x), b.copysign(one, s)))


copysign = terms(_sign_moved, None)


def imaginary_side(b: Derivation, cotangent: Operand, x: Operand) -> Operand:
    """What Im pulls back: Im z is the real part of −i z."""
    if x.type.dtype.kind != "c":
        return b.zeros(x.type)
    return b.multiply(b.convert(cotangent, x.type.dtype), b.like(-1j, x))


def where_jvp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """The tangent of the side that was taken."""
    (result,), condition = operation.outputs, operation.inputs[0]
    zero = b.number(0, result.type.dtype)
    taken = [zero if t is None else t for t in tangents[1:]]
    return (None if taken == [zero, zero] else b.broadcast(b.where(condition, *taken), result.type.shape),)


def where_transpose(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    """The cotangent goes to the side that was taken; the other gets 0."""
    (cotangent,), (condition, x, y) = cotangents, operation.inputs
    assert cotangent is not None
    zero = b.number(0, cotangent.type.dtype)
    sides = (cotangent, zero), (zero, cotangent)
    found = [
        b.summed_to(b.where(condition, *side), operand.type) if mine else None
        for side, operand, mine in zip(sides, (x, y), is_linear[1:], strict=True)
    ]
    return (None, *found)


product = terms(lambda b, t, z, g, f: b.scaled(t, f), lambda b, t, z, g, f: b.tangent_pair(g, t))
quotient = terms(
    lambda b, t, z, g, f: b.quotient(t, f),
    lambda b, t, z, g, f: b.negative(b.tangent_pair(z, b.quotient(t, f))),
)
"""Of the guarded product and quotient, whose first operand is a tangent, and so is that of the second one."""
