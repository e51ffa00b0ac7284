"""Poisson and binomial numbers: a key, a counter and parameters in, a whole number of float64 out.

Few are counted up from 0 until their probabilities exceed one uniform number; many are drawn and accepted by their
probability (Hörmann, The transformed rejection method for generating Poisson random variables, 1993; The generation of
binomial random variates, 1993). Probabilities are taken apart as in Loader, Fast and accurate computation of binomial
probabilities (2000), so that large parameters keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tenferro.tracer.scalar.builder import F64, I64, U64, Builder, Value
from tenferro.tracer.scalar.draws import Words, fraction, words
from tenferro.tracer.scalar.exponential import exp, horner, log
from tenferro.tracer.scalar.logarithms import log1p
from tenferro.tracer.scalar.threefry import block

MANY = 10.0
"""The mean from which on numbers are drawn and accepted."""
MOST_COUNTED = 150.0
"""Beyond it lies less than 1e-100 of a distribution whose mean is below MANY."""
# log(k!) - k log(k) + k
LOG_ROOTS = (
    0.0, 1.0, 1.3068528194400546, 1.4959226032237258, 1.6328763858683832, 1.7403021806115442, 1.828694396641771,
    1.9037903176782212, 1.9690705693065629, 2.0268062840554952, 2.0785616431350586, 2.12545984509181,
    2.168334698205882, 2.207822206123445, 2.244418568125061, 2.2785183673077407,
)  # fmt: skip
# The same is log(2 pi k) / 2 + 1/k P(1/k**2) for large k (Stirling).
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
Accepted = Callable[[Value, Value], Words]  # two uniform numbers → a number, whether it is accepted


def poisson(b: Builder, first: Value, second: Value, counter: Value, rate: Value) -> Value:
    """A number of the Poisson distribution; NaN for a rate below 0."""
    return b.call("random_poisson", _poisson, first, second, counter, rate, size="rare")


def binomial(b: Builder, first: Value, second: Value, counter: Value, n: Value, p: Value) -> Value:
    """How many of n trials succeed with probability p; NaN for n below 0 and for p outside [0, 1]."""
    return b.call("random_binomial", _binomial, first, second, counter, n, p, size="rare")


def _number(b: Builder, value: float) -> Value:
    return b.const(value, F64)


def _poisson(b: Builder, first: Value, second: Value, counter: Value, rate: Value) -> Value:
    key = block(b, first, second, counter)
    usable = b.and_(b.le(_number(b, 0.0), rate), b.lt(rate, _number(b, math.inf)))
    many = b.and_(usable, b.le(_number(b, MANY), rate))
    few = b.select(b.and_(usable, b.not_(many)), rate, _number(b, 0.0))
    start = exp(b, b.neg(few))
    counted = _counted(b, key, start, lambda k: b.div(few, k))
    large = b.select(many, rate, _number(b, MANY))
    drawn = b.if_any(many, lambda: b.select(many, _many_poisson(b, key, large, many), counted), lambda: counted)
    return b.select(usable, drawn, b.select(b.eq(rate, _number(b, math.inf)), rate, _number(b, math.nan)))


def _binomial(b: Builder, first: Value, second: Value, counter: Value, n: Value, p: Value) -> Value:
    key = block(b, first, second, counter)
    none, one = _number(b, 0.0), _number(b, 1.0)
    usable = b.and_(b.and_(b.le(none, n), b.lt(n, _number(b, math.inf))), b.and_(b.le(none, p), b.le(p, one)))
    n, p = b.floor(b.select(usable, n, none)), b.select(usable, p, none)
    mirrored = b.lt(_number(b, 0.5), p)
    q = b.select(mirrored, b.sub(one, p), p)
    many = b.le(_number(b, MANY), b.mul(n, q))
    few = b.select(many, none, n)
    odds = b.div(q, b.sub(one, q))
    start = exp(b, b.mul(few, log1p(b, b.neg(q))))
    counted = _counted(b, key, start, lambda k: b.mul(b.div(b.add(b.sub(few, k), one), k), odds))
    trials, chance = b.select(many, n, _number(b, 4 * MANY)), b.select(many, q, _number(b, 0.5))
    drawn = b.if_any(
        many, lambda: b.select(many, _many_binomial(b, key, trials, chance, many), counted), lambda: counted
    )
    return b.select(usable, b.select(mirrored, b.sub(n, drawn), drawn), _number(b, math.nan))


# -- few -----------------------------------------------------------------------------------------------------------


def _counted(b: Builder, key: Words, start: Value, factor: Callable[[Value], Value]) -> Value:
    """The first k at which the probabilities up to k exceed a uniform number. ``start``: that of 0; ``factor(k)``:
    that of k by that of k - 1."""
    target = fraction(b, words(b, key, b.const(0, U64))[0])

    def is_open(k: Value, term: Value, total: Value) -> Value:
        return b.and_(b.le(total, target), b.lt(k, _number(b, MOST_COUNTED)))

    def body(k: Value, term: Value, total: Value) -> tuple[Value, Value, Value]:
        still = is_open(k, term, total)
        after = b.add(k, _number(b, 1.0))
        following = b.mul(term, factor(after))
        return (
            b.select(still, after, k),
            b.select(still, following, term),
            b.select(still, b.add(total, following), total),
        )

    return b.while_any(is_open, body, b.mul(start, _number(b, 0.0)), start, start)[0]


# -- many ----------------------------------------------------------------------------------------------------------


def _drawn(b: Builder, key: Words, wanted: Value, propose: Accepted) -> Value:
    """Proposals from pairs of uniform numbers until one is accepted, where ``wanted``. One that is not is below 0."""

    def is_open(number: Value, k: Value) -> Value:
        return b.lt(k, _number(b, 0.0))

    def body(number: Value, k: Value) -> Words:
        left, right = (fraction(b, w) for w in words(b, key, number))
        proposed, accepted = propose(left, right)
        found = b.select(accepted, proposed, _number(b, -1.0))
        return b.add(number, b.const(1, U64)), b.select(is_open(number, k), found, k)

    start = b.select(wanted, _number(b, -1.0), _number(b, 0.0))
    return b.while_any(is_open, body, b.const(0, U64), start)[1]


def _proposal(b: Builder, left: Value, right: Value, a: Value, width: Value, middle: Value) -> Words:
    """(k, the logarithm of what its probability must exceed, less that of the hat's constant). k below 0 has none."""
    u = b.sub(left, _number(b, 0.5))
    us = b.sub(_number(b, 0.5), b.abs(u))
    k = b.floor(b.fma(b.add(b.div(b.add(a, a), us), width), u, middle))
    return k, log(b, b.div(right, b.add(b.div(a, b.mul(us, us)), width)))


def _many_poisson(b: Builder, key: Words, rate: Value, wanted: Value) -> Value:
    """PTRS of the first paper, without its squeezes."""
    width = b.fma(_number(b, 2.53), b.sqrt(rate), _number(b, 0.931))
    a = b.fma(_number(b, 0.02483), width, _number(b, -0.059))
    scale = b.add(_number(b, 1.1239), b.div(_number(b, 1.1328), b.sub(width, _number(b, 3.4))))
    log_scale, middle = log(b, scale), b.add(rate, _number(b, 0.43))

    def propose(left: Value, right: Value) -> Words:
        k, needed = _proposal(b, left, right, a, width, middle)
        found = b.le(_number(b, 0.0), k)
        k = b.select(found, k, _number(b, 0.0))
        distance = b.sub(k, rate)
        logarithm = b.sub(b.sub(distance, _weighted(b, k, b.div(distance, rate))), _log_root(b, k))
        return k, b.and_(found, b.le(b.add(needed, log_scale), logarithm))

    return _drawn(b, key, wanted, propose)


def _many_binomial(b: Builder, key: Words, n: Value, p: Value, wanted: Value) -> Value:
    """BTRS of the second paper, without its squeezes; p up to 1/2."""
    q = b.sub(_number(b, 1.0), p)
    mean, rest = b.mul(n, p), b.mul(n, q)
    spread = b.sqrt(b.mul(mean, q))
    width = b.fma(_number(b, 2.53), spread, _number(b, 1.15))
    a = b.fma(_number(b, 0.01), p, b.fma(_number(b, 0.0248), width, _number(b, -0.0873)))
    scale = b.mul(b.add(_number(b, 2.83), b.div(_number(b, 5.1), width)), spread)

    def logarithm(k: Value) -> Value:
        distance, left = b.sub(k, mean), b.sub(n, k)
        misses = _weighted(b, left, b.neg(b.div(distance, rest)))
        hits = _weighted(b, k, b.div(distance, mean))
        return b.neg(b.add(b.add(hits, misses), b.add(_log_root(b, k), _log_root(b, left))))

    most = logarithm(b.floor(b.mul(b.add(n, _number(b, 1.0)), p)))
    bound, middle = b.sub(log(b, scale), b.neg(most)), b.add(mean, _number(b, 0.5))

    def propose(left: Value, right: Value) -> Words:
        k, needed = _proposal(b, left, right, a, width, middle)
        found = b.and_(b.le(_number(b, 0.0), k), b.le(k, n))
        k = b.select(found, k, _number(b, 0.0))
        return k, b.and_(found, b.le(b.add(needed, bound), logarithm(k)))

    return _drawn(b, key, wanted, propose)


def _weighted(b: Builder, k: Value, x: Value) -> Value:
    """k log(1 + x), 0 where k is."""
    none = _number(b, 0.0)
    is_none = b.eq(k, none)
    return b.mul(k, log1p(b, b.select(is_none, none, x)))


def _log_root(b: Builder, k: Value) -> Value:
    """log(k!) - k log(k) + k for whole k from 0 on."""
    count = len(LOG_ROOTS)
    is_small = b.lt(k, _number(b, count))
    index = b.convert(b.select(is_small, k, _number(b, 0.0)), I64)
    large = b.select(is_small, _number(b, count), k)
    inverse = b.div(_number(b, 1.0), large)
    series = b.mul(inverse, horner(b, b.mul(inverse, inverse), STIRLING))
    root = b.mul(_number(b, 0.5), b.add(log(b, large), _number(b, math.log(2 * math.pi))))
    return b.select(is_small, b.lookup(LOG_ROOTS, F64, index), b.add(root, series))
