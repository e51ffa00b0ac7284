"""Gamma functions and tails of the normal distribution, as compositions, for ``tenferro.special`` and ``tenferro.lax``.

Real numbers in, integers as float64; float32 and float16 are computed in float64 and rounded once. Derivatives are
those of the compositions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer.api.neural import OF_NETWORKS, erf, erfinv, real_array, records, rel_entr
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.dim import integer
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import fresh

DOUBLE = np.dtype(np.float64)
HALF_LOG_TURN = 0.5 * math.log(2 * math.pi)


def _in_double(name: str, function: Callable[..., Any], *xs: Any) -> Any:
    """The function of float64 arrays, and its result in the dtype that the arguments promote to."""
    arrays = [real_array(x, name) for x in xs]
    dtype = np.result_type(*(x.dtype for x in arrays))
    return function(*(x.astype(DOUBLE) for x in arrays)).astype(dtype)


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """By Horner's rule, from the constant term up."""
    found: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        found = found * x + c
    return found


# -- gamma functions -------------------------------------------------------------------------------------------------

SHIFT = 7
"""Arguments below are moved up by as much: the first term that the series leave out is below 1e-15 there."""
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
"""log Γ(w) = (w − 1/2) log w − w + log(2π) / 2 + Σ c[k] / w^(2k + 1): B[2k] / (2k (2k − 1))."""
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
"""ψ(w) = log w − 1 / (2w) − Σ c[k] / w^(2k + 2): B[2k] / 2k."""


def _reflected(x: Any) -> tuple[Any, Any, Any]:
    """Whether x is below 1/2, what is computed in its place (1 − x), and its distance from the nearest integer."""
    is_low = x < 0.5
    return is_low, np.where(is_low, 1 - x, x), x - np.rint(x)


def _log_gamma(x: Any) -> Any:
    is_low, z, rest = _reflected(x)
    is_small = z < SHIFT
    product = z
    for k in range(1, SHIFT):
        product = product * (z + k)
    w = np.where(is_small, z + SHIFT, z)
    inverse = 1 / w
    found = (w - 0.5) * np.log(w) - w + HALF_LOG_TURN + inverse * _polynomial(STIRLING, inverse * inverse)
    found = found - np.where(is_small, np.log(np.where(is_small, product, 1.0)), 0.0)
    turned = math.log(math.pi) - np.log(abs(np.sin(math.pi * np.where(is_low, rest, 0.5)))) - found
    return np.where(np.isinf(x), np.inf, np.where(is_low, turned, found))


def gammaln(x: Any) -> Any:
    """log |Γ(x)|: within 4e-15 of it, absolute where it is below 1, relative elsewhere but near its zeros below 0. +inf
    at 0, −1, −2, …"""
    return _in_double("gammaln", _log_gamma, x)


def _psi(x: Any) -> Any:
    is_low, z, rest = _reflected(x)
    is_small = z < SHIFT
    low = np.where(is_small, z, 1.0)
    below = 1 / low
    for k in range(1, SHIFT):
        below = below + 1 / (low + k)
    w = np.where(is_small, z + SHIFT, z)
    inverse = 1 / w
    found = np.log(w) - 0.5 * inverse - inverse * inverse * _polynomial(DIGAMMA, inverse * inverse)
    found = found - np.where(is_small, below, 0.0)
    is_pole = is_low & (rest == 0)
    turn = math.pi * np.where(is_low & ~is_pole, rest, 0.25)
    found = np.where(is_low, found - math.pi * np.cos(turn) / np.sin(turn), found)
    return np.where(is_pole, np.where(x == 0, np.copysign(np.inf, -x), np.nan), found)


def digamma(x: Any) -> Any:
    """ψ(x), the derivative of log Γ; NaN at −1, −2, …"""
    return _in_double("digamma", _psi, x)


def gammasgn(x: Any) -> Any:
    """The sign of Γ(x); NaN at −1, −2, …, and the sign of x at 0."""
    x = real_array(x, "gammasgn")
    floor = np.floor(x)
    of_negative = np.where(floor == x, np.nan, 1 - 2 * np.remainder(floor, 2))
    return np.where(x == 0, np.copysign(1.0, x), np.where(x < 0, of_negative, np.where(x > 0, 1.0, x)))


def gamma(x: Any) -> Any:
    """Γ(x), by way of its logarithm: relative errors grow with that to 1e-13."""
    return _in_double("gamma", lambda x: gammasgn(x) * np.exp(_log_gamma(x)), x)


def factorial(n: Any) -> Any:
    """n!, Γ(n + 1), of floats too; 0 for negative n. Of whole numbers of up to 15 it is exact."""

    def of_double(x: Any) -> Any:
        found = gamma(x + 1)
        return np.where(x < 0, 0.0, np.where((np.rint(x) == x) & (x < 16), np.rint(found), found))

    return _in_double("factorial", of_double, n)


def _log_quotient(a: Any, b: Any) -> Any:
    """log(Γ(a) / Γ(a + b)) for a from ``SHIFT`` on and b from 0 on, without the difference of two large numbers
    (DiDonato and Morris 1992, "Algorithm 708")."""
    c = a + b
    rests = [_polynomial(STIRLING, 1 / (w * w)) / w for w in (a, c)]
    return rests[0] - rests[1] - (a - 0.5) * np.log1p(b / a) - b * (np.log(c) - 1)


def _is_pole(x: Any) -> Any:
    """Where Γ has no value: at 0, −1, −2, …"""
    return (x <= 0) & (x == np.floor(x))


def _betaln(a: Any, b: Any) -> Any:
    small, large = np.minimum(a, b), np.maximum(a, b)
    is_far = (small > 0) & (large >= SHIFT) & (large < np.inf)
    far = _log_quotient(np.where(is_far, large, SHIFT), np.where(is_far, small, 1.0)) + _log_gamma(small)
    return np.where(is_far, far, _log_gamma(a) + _log_gamma(b) - _log_gamma(np.where(is_far, 1.0, a + b)))


def betaln(a: Any, b: Any) -> Any:
    """log |B(a, b)| = log |Γ(a) Γ(b) / Γ(a + b)|."""
    return _in_double("betaln", _betaln, a, b)


def beta(a: Any, b: Any) -> Any:
    """B(a, b) = Γ(a) Γ(b) / Γ(a + b); inf where Γ(a) or Γ(b) has no value."""

    def of_double(a: Any, b: Any) -> Any:
        is_pole = (_is_pole(a) | _is_pole(b)) & ~_is_pole(a + b)
        return np.where(is_pole, np.inf, gammasgn(a) * gammasgn(b) * gammasgn(a + b) * np.exp(_betaln(a, b)))

    return _in_double("beta", of_double, a, b)


def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the gamma function of d dimensions."""
    count = integer(d, "multigammaln", "d")
    if count < 1:
        raise ShapeError(f"multigammaln: d is {count}; 1 or more is needed{at(user_line())}")

    def of_double(x: Any) -> Any:
        found = count * (count - 1) / 4 * math.log(math.pi) + _log_gamma(x)
        for k in range(1, count):
            found = found + _log_gamma(x - k / 2)
        return found

    return _in_double("multigammaln", of_double, a)


def poch(z: Any, m: Any) -> Any:
    """z (z + 1) … (z + m − 1) = Γ(z + m) / Γ(z); where Γ has neither value, the limit for whole steps m."""
    return _in_double("poch", _poch, z, m)


def _poch(z: Any, m: Any) -> Any:
    end = z + m
    low, step = np.minimum(z, end), abs(m)
    is_far = (low >= SHIFT) & (np.maximum(z, end) < np.inf)
    quotient = _log_quotient(np.where(is_far, low, SHIFT), np.where(is_far, step, 1.0))
    logarithm = np.where(is_far, np.where(m < 0, quotient, -quotient), _log_gamma(end) - _log_gamma(z))
    found = gammasgn(end) * gammasgn(z) * np.exp(logarithm)
    # Reflected: Γ(z) Γ(1 − z) is that of z + m but for the sign.
    is_both = _is_pole(z) & _is_pole(end)
    turned = np.exp(_log_gamma(np.where(is_both, 1 - z, 1.0)) - _log_gamma(np.where(is_both, 1 - end, 1.0)))
    limit = np.where(np.mod(m, 2) == 0, turned, -turned)
    return np.where(is_both, limit, np.where(_is_pole(z), 0.0, np.where(_is_pole(end), np.inf, found)))


TERMS = 10
ZETA = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
    -3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000,
)  # fmt: skip
"""B[2k] / (2k)!, of the Euler–Maclaurin formula."""


def _hurwitz(s: Any, q: Any) -> Any:
    found = q**-s
    for k in range(1, TERMS):
        found = found + (q + k) ** -s
    w = q + TERMS
    power = w**-s
    found = found + power * w / (s - 1) + 0.5 * power
    factor = s * power / w
    for k, c in enumerate(ZETA):
        found = found + c * factor
        factor = factor * (s + (2 * k + 1)) * (s + (2 * k + 2)) / (w * w)
    return np.where(s == 1, np.inf, np.where((s < 1) | (q <= 0), np.nan, found))


def zeta(x: Any, q: Any = 1.0) -> Any:
    """Hurwitz' zeta function Σ (k + q)^−x, Riemann's by default; for x > 1 and q > 0, NaN elsewhere."""
    return _in_double("zeta", _hurwitz, x, q)


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of ψ: of n from 1 on for x > 0, NaN below; ψ itself for 0."""

    def of_double(n: Any, x: Any) -> Any:
        sign = 1 - 2 * np.remainder(n + 1, 2)
        return np.where(n == 0, _psi(x), sign * np.exp(_log_gamma(n + 1)) * _hurwitz(np.where(n == 0, 2.0, n + 1), x))

    return _in_double("polygamma", of_double, n, x)


# -- the normal distribution's tails ---------------------------------------------------------------------------------

TAIL = (
    -0.6513268598908547, 0.6419697923564902, 0.019476473204185836, -0.009561514786808632, -0.0009465953444820369,
    0.00036683949785276145, 4.252332480690777e-05, -2.0278578112534242e-05, -1.6242900046470256e-06,
    1.3036558355805232e-06, 1.5626441722066142e-08, -8.523809591492654e-08, 6.5290544390988515e-09,
    5.059343495551469e-09, -9.91364156493033e-10, -2.273651222931836e-10, 9.646791102015526e-11,
    2.3940380830391356e-12, -6.886027526497544e-12, 8.944879273088389e-13, 3.130921399350774e-13,
    -1.1270822361426012e-13, 3.810905198687404e-16, 7.106097640250525e-15, -1.5230282401808004e-15,
    -9.457508174873026e-17, 1.2102459734085757e-16, -2.81682694222719e-17,
)  # fmt: skip
"""log(erfc(z) e^(z²) / t) as a Chebyshev series in 2t − 1, t = 2 / (2 + z), z >= 0: 6.3e-18. Coefficients at the
series' nodes in 40 digits."""


def _log_tail(z: Any) -> tuple[Any, Any]:
    """(t, the logarithm of erfc(z) e^(z²) / t) for z >= 0."""
    t = 2 / (2 + z)
    y = 4 * t - 2
    later: Any = 0.0
    found: Any = 0.0
    for c in reversed(TAIL[1:]):
        later, found = found, y * found - later + c
    return t, 0.5 * y * found - later + TAIL[0]


def _square_in_parts(z: Any) -> tuple[Any, Any]:
    """z² as a sum of two numbers, so that e^(−z²) keeps its digits."""
    high = z * z
    trace = running_trace("erfc")
    low = fresh(trace, trace.emit1(OPS["fma"], z.read(), z.read(), (-high).read()))
    return high, low


def _size(x: Any) -> Any:
    """|x|, with slope 1 at 0."""
    return np.where(x < 0, -x, x)


def _tail(x: Any, root: float) -> Any:
    """erfc(x √root), for root 1 and 1/2; by erf where nothing cancels."""
    size = np.minimum(_size(x), 45.0)  # beyond, it is 0
    t, log_tail = _log_tail(size * math.sqrt(root))
    high, low = _square_in_parts(size)
    found = t * np.exp(-root * high) * np.exp(log_tail - root * low)
    near = 1 - erf(x * math.sqrt(root))
    return np.where(x != x, x, np.where(size < 0.5, near, np.where(x < 0, 2 - found, found)))


def erfc(x: Any) -> Any:
    """1 − erf(x), with all its digits where that is small."""
    return _in_double("erfc", lambda x: _tail(x, 1.0), x)


def ndtr(x: Any) -> Any:
    """The normal distribution's Φ, with all its digits in the lower tail."""
    return _in_double("ndtr", lambda x: 0.5 * _tail(-x, 0.5), x)


def _log_ndtr(x: Any) -> Any:
    z = _size(x) * math.sqrt(0.5)
    t, log_tail = _log_tail(z)
    below = np.log(t) + log_tail - 0.5 * x * x - math.log(2)
    above = np.log1p(-0.5 * _tail(np.where(x < 0, 0.0, x), 0.5))
    return np.where(x < 0, below, above)


def log_ndtr(x: Any) -> Any:
    """log Φ(x), with all its digits in both tails."""
    return _in_double("log_ndtr", _log_ndtr, x)


STEPS = 5


def _quantile(p: Any) -> Any:
    """By ``erfinv`` in the middle; below 0.02 Newton's steps for log Φ(x) = log p, which is concave."""
    from tenferro.tracer.transform import control  # made of the table of ops

    is_high = p > 0.5
    small = np.where(is_high, 1 - p, p)
    is_tail = (small > 0) & (small < 0.02)
    wanted = np.log(np.where(is_tail, small, 0.01))

    def step(state: tuple[Any, Any]) -> tuple[Any, Any]:
        k, x = state
        found = _log_ndtr(x)
        return k + 1, x - (found - wanted) * np.exp(found + 0.5 * x * x + HALF_LOG_TURN)

    start = (0, -np.sqrt(-2 * wanted))
    _, x = control.while_loop(running_trace("ndtri"), lambda state: state[0] < STEPS, step, start, "ndtri")
    tail = np.where(is_high, -x, x)
    return np.where(is_tail, tail, math.sqrt(2) * erfinv(2 * np.where(is_tail, 0.5, p) - 1))


def ndtri(p: Any) -> Any:
    """The inverse of ``ndtr``: the normal distribution's quantiles; NaN outside of [0, 1]. Its slope is 1 / φ(x)."""
    from tenferro.tracer.transform import custom, inputs, marks  # made of the table of ops

    def code(
        trace: Trace, primals: Sequence[Operand], tangents: Tangents, wanted: Any
    ) -> tuple[list[Operand], list[Operand | None]]:  # fmt: skip
        x, (t,) = ndtri(fresh(trace, primals[0])), tangents
        slope = None if t is None else np.exp(0.5 * x * x + HALF_LOG_TURN) * fresh(trace, t)
        return [x.read()], [None if slope is None else slope.read()]

    def of_double(p: Any) -> Any:
        trace = running_trace("ndtri")
        rule = custom.ForwardRule("ndtri", 1, code)
        given = inputs.open_tree(trace, p, "ndtri")
        return custom.call(trace, _quantile, given, marks.custom_jvp, rule)

    return _in_double("ndtri", of_double, p)


# -- entropies and transforms ----------------------------------------------------------------------------------------


def kl_div(x: Any, y: Any) -> Any:
    """x log(x / y) − x + y; y where x is 0, inf outside of what distributions hold."""
    x, y = real_array(x, "kl_div"), real_array(y, "kl_div")
    inside = (x > 0) & (y > 0)
    return np.where(inside, rel_entr(x, y) - x + y, np.where((x == 0) & (y >= 0), y, np.inf))


def boxcox(x: Any, lmbda: Any) -> Any:
    """(x^λ − 1) / λ, and log(x) for λ = 0."""
    return _box(np.log(real_array(x, "boxcox")), real_array(lmbda, "boxcox"))


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """``boxcox`` of 1 + x."""
    return _box(np.log1p(real_array(x, "boxcox1p")), real_array(lmbda, "boxcox1p"))


def _box(logarithm: Any, power: Any) -> Any:
    is_zero = power == 0
    divisor = np.where(is_zero, 1.0, power)
    return np.where(is_zero, logarithm + 0 * power, np.expm1(divisor * logarithm) / divisor)


SPECIAL: dict[str, TracedFunction] = OF_NETWORKS | records(
    *((f, ("x",)) for f in (gammaln, digamma, gammasgn, gamma, erfc, ndtr, log_ndtr)),
    *((f, ("x", "lmbda")) for f in (boxcox, boxcox1p)), *((f, ("a", "b")) for f in (beta, betaln)),
    (factorial, ("n",)), (multigammaln, ("a",)), (poch, ("z", "m")), (zeta, ("x", "q")), (polygamma, ("n", "x")),
    (ndtri, ("p",)), (kl_div, ("x", "y")),
)  # fmt: skip
SPECIAL |= {"psi": TracedFunction("psi", digamma, ("x",))}
"""By SciPy's name in ``scipy.special``."""
