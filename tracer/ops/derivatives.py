"""Derivatives of pointwise rows that take more than a line: rules and parts of terms (``tenferro.tracer.ops.columns``).

At kinks: |x| has slope 0 at 0; of equal operands of a maximum or minimum each has half a say; the slope of hypot at the
origin is 0. Complex derivatives are as JAX's: a derivative of a function that is not holomorphic acts on real and
imaginary parts, and what is pulled back is not conjugated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.op import JvpRule, Tangents
from tenferro.tracer.ops.columns import Term, terms
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
        return b.times(t, b.sign(x))
    modulus = b.convert(z, x.type.dtype)
    direction = b.where(b.equal(z, b.like(0, z)), b.like(0, x), b.divide(x, modulus))
    return b.real(b.times(t, b.conjugate(direction)))


absolute = terms(_absolute)


def extreme_share(b: Derivation, z: Operand, x: Operand, other: Operand) -> Operand:
    """How much of a maximum or minimum ``z`` of two is ``x``: 1, a half, or 0."""
    half = b.where(b.equal(other, z), b.like(0.5, z), b.like(1, z))
    return b.where(b.equal(x, z), half, b.like(0, z))


extreme = terms(
    lambda b, t, z, x, y: b.times(t, extreme_share(b, z, x, y)),
    lambda b, t, z, x, y: b.times(t, extreme_share(b, z, y, x)),
)


def _share_of_log(b: Derivation, exp: str, z: Operand, x: Operand) -> Operand:
    """exp(x − z), which where z is infinite asks whether x is the infinite one."""
    infinite = b.equal(b.absolute(z), b.like(math.inf, z))
    mine = b.where(b.equal(x, z), b.like(0, z), b.like(-math.inf, z))
    return getattr(b, exp)(b.where(infinite, mine, b.subtract(x, z)))  # type: ignore[no-any-return]


def logaddexp(exp: str) -> JvpRule:
    """Of log(eˣ + eʸ), or with another base, whose power is the row ``exp``."""
    return terms(
        lambda b, t, z, x, y: b.times(t, _share_of_log(b, exp, z, x)),
        lambda b, t, z, x, y: b.times(t, _share_of_log(b, exp, z, y)),
    )


def _power_of_base(b: Derivation, t: Operand, z: Operand, x: Operand, y: Operand) -> Operand:
    """t · y · xʸ⁻¹; an exponent of 0 makes a constant, also at x = 0."""
    zero = b.equal(y, b.like(0, y))
    lower = b.where(zero, b.like(1, y), b.subtract(y, b.like(1, y)))
    return b.scaled(t, b.multiply(y, b.power(x, lower)))


def _power_of_exponent(b: Derivation, t: Operand, z: Operand, x: Operand, y: Operand) -> Operand:
    """t · xʸ · ln x, where 0ʸ does not vary with y."""
    base = b.where(b.equal(x, b.like(0, x)), b.like(1, x), x)
    return b.scaled(t, b.multiply(z, b.log(base)))


power = terms(_power_of_base, _power_of_exponent)


def _over_square(sign: float) -> Term:
    """Of the angle of (x, y): the other coordinate over the square of the distance, with a sign."""

    def term(b: Derivation, t: Operand, z: Operand, y: Operand, x: Operand) -> Operand:
        other = x if sign > 0 else b.negative(y)
        return b.scaled(t, b.divide(other, b.add(b.multiply(x, x), b.multiply(y, y))))

    return term


arctan2 = terms(_over_square(1), _over_square(-1))


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


def _second_factor(b: Derivation, t: Operand, g: Operand, term: Operand) -> Operand:
    """What the second factor adds to a guarded product: nothing where the first is 0."""
    return b.where(b.equal(g, b.like(0, g)), b.like(0, g), term)


product = terms(
    lambda b, t, z, g, f: b.scaled(t, f),
    lambda b, t, z, g, f: _second_factor(b, t, g, b.scaled(t, g)),
)
quotient = terms(
    lambda b, t, z, g, f: b.quotient(t, f),
    lambda b, t, z, g, f: _second_factor(b, t, g, b.negative(b.scaled(b.quotient(t, f), z))),
)
