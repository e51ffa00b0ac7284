"""The error function of float32 and float64 values, and its inverse: in goes a value, out comes its function.

For the inverse, y / x is a smooth function of w = -log(1 - x**2): Giles, Approximating the erfinv function (GPU
Computing Gems, 2011), whose change of variable this is. The fits are our own, printed by ``python tools/minimax.py``;
the bounds beside them are of the fits alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import F32, F64, Builder, Value
from tenferro.tracer.scalar.exponential import exp, horner, log

# erf(x) = x + x P(x**2), |x| <= 1: 2**-29.6
ERF_NEAR_SINGLE = (
    0.12837916572670763, -0.376126258238009, 0.11283585146534411, -0.026853811936154194, 0.005188327797571396,
    -0.0008010195196513867, 7.853867617070948e-05,
)  # fmt: skip
# The same: 2**-62.7
ERF_NEAR_DOUBLE = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954857, -0.026866170645072896, 0.005223977624780852,
    -0.0008548326978740432, 0.0001205533103681035, -1.49255935043302e-05, 1.6460972771354107e-06,
    -1.635002470541872e-07, 1.465787621779686e-08, -1.1365651606452061e-09, 5.945237147866407e-11,
)  # fmt: skip
# 1 - erf(x) = exp(-x**2) R((x - 2) / (x + 2)), 1 <= x <= 4; of the whole function: 2**-34.7
ERF_FAR_SINGLE = (
    0.2553956779135692, -0.42718585348819405, 0.2416572702893615, -0.07898690568149855, 0.0037297397664254823,
    0.007212551292658426,
)  # fmt: skip
# The same up to x = 6: 2**-60.7
ERF_FAR_DOUBLE = (
    0.25539567631050575, -0.4271858474139568, 0.24165819424246882, -0.07897858101641564, 0.0037328923985382066,
    0.006997461785656986, -0.0008471425904746048, -0.0009819764791708925, 4.353616048100762e-05,
    0.00017428846895362434, 2.762317808935656e-05, -2.6611493234260018e-05, -1.264410171037403e-05,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """y / x as a polynomial in w - middle, or in sqrt(w) - middle, for w up to ``end``."""

    end: float
    middle: float
    coefficients: Sequence[float]


# 2**-27.4
CENTRE_SINGLE = Part(5.0, 1.25, (
    1.1895615825715453, 0.24951961615381724, 0.0025116218959535296, -0.0022537079530742187,
    0.00014369185818243122, 3.105781779939774e-05, -5.082988411397314e-06, -2.6065350211307804e-07,
    1.2213236917468155e-07, -8.7910919058416e-09,
))  # fmt: skip
# 2**-29.3
TAIL_SINGLE = Part(16.7, 3.0, (
    2.8329768013162466, 1.0016752362007444, 0.009445312457727008, -0.007642747455017579, 0.005687604433159342,
    -0.003567212749393731, 0.001475450633459236, -0.00011975693942163061, -0.00027801307594023573,
    0.00016033874041736823, -2.921908652054016e-05,
))  # fmt: skip
# 2**-58.2
CENTRE_DOUBLE = Part(6.25, 3.125, (
    1.6536545626831027, 0.24015818242558834, -0.006033670871426997, -0.0007407025341545546, 0.0001867342080205305,
    -1.3882523394196414e-05, -1.365469177265752e-06, 4.234788171193768e-07, -2.907038989406588e-08,
    -4.112660642141371e-09, 1.05122256609655e-09, -5.414294656212179e-11, -1.2978503892028067e-11,
    2.6305035358396617e-12, -8.079297916059373e-14, -4.001591198329128e-14, 6.533350859768937e-15,
    -3.9876369517244416e-17, -1.2344956503713488e-16, 1.5545083238812706e-17, 6.957137412652395e-19,
    -3.4876015023467846e-19, 1.6537638061132416e-20, 3.2192861559608788e-21, -3.001362049479321e-22,
))  # fmt: skip
# 2**-59.8
NEAR_TAIL_DOUBLE = Part(16.0, 3.25, (
    3.0838856104922208, 1.0052589676941655, 0.00537091455355509, -0.003751208508223808, 0.0024914420979534452,
    -0.0016882755354779776, 0.0009532893416628081, -0.00035503781336925346, 2.403151186829303e-05,
    6.828711417550186e-05, -4.732067385029913e-05, 1.2465042831561306e-05, 2.9325502284564868e-06,
    -3.98574601790688e-06, 1.4816699001973612e-06, -2.7551853784321586e-08, -2.456092172433203e-07,
    1.315284450824368e-07, -2.0820104657546317e-08, -1.5283571394348747e-08, 7.646131258517774e-09,
))  # fmt: skip
# 2**-59.6
FAR_TAIL_DOUBLE = Part(37.5, 5.0, (
    4.849906401408584, 1.010300464864545, -0.00013871931838025698, -0.0002150301198042264, 7.599527809921547e-05,
    -1.9681771108646937e-05, 4.526052505301323e-06, -9.9302618061409e-07, 2.290529090082886e-07, -6.756982200645616e-08,
    2.901841423172876e-08, -1.5220942391483963e-08, 7.821803898484947e-09, -3.523164506908314e-09,
    1.3156523683706049e-09, -3.9061109929659595e-10, 6.973600918218234e-11, 1.9545456797373017e-11,
    -2.0424730675895346e-11, 4.888817543802121e-12,
))  # fmt: skip


def erf(b: Builder, x: Value) -> Value:
    """The error function."""
    return b.call("erf", _erf, x)


def _erf(b: Builder, x: Value) -> Value:
    is_single = x.dtype == F32
    one, two = b.const(1.0, x.dtype), b.const(2.0, x.dtype)
    limit = b.const(4.0 if is_single else 6.0, x.dtype)  # from here on the result rounds to 1
    size = b.abs(x)
    size = b.select(b.lt(limit, size), limit, size)
    square = b.mul(size, size)
    near = b.fma(size, horner(b, square, ERF_NEAR_SINGLE if is_single else ERF_NEAR_DOUBLE), size)
    place = b.div(b.sub(size, two), b.add(size, two))
    rest = horner(b, place, ERF_FAR_SINGLE if is_single else ERF_FAR_DOUBLE)
    far = b.fma(b.neg(exp(b, b.neg(square))), rest, one)
    return b.copysign(b.select(b.lt(one, size), far, near), x)


def erfinv(b: Builder, x: Value) -> Value:
    """The inverse error function; infinite at 1 and -1, NaN beyond them."""
    return b.call("erfinv", _erfinv, x)


def _erfinv(b: Builder, x: Value) -> Value:
    one = b.const(1.0, x.dtype)
    w = b.neg(log(b, b.fma(b.neg(x), x, one)))
    centre = CENTRE_SINGLE if x.dtype == F32 else CENTRE_DOUBLE
    near = b.le(w, b.const(centre.end, x.dtype))
    return b.if_any(
        b.not_(near),
        lambda: b.select(near, _scaled(b, x, w, centre), b.call("erfinv_tail", _tail, x, w, size="rare")),
        lambda: _scaled(b, x, w, centre),
    )


def _scaled(b: Builder, x: Value, w: Value, part: Part) -> Value:
    v = b.sub(w, b.const(part.middle, x.dtype))
    if x.dtype == F64:
        return b.mul(x, horner(b, v, part.coefficients))
    # The last step as a sum of two numbers: it would lose as much as all the others together.
    first, slope = part.coefficients[0], horner(b, v, part.coefficients[1:])
    start, lost = b.const(first, F32), b.const(first - float(np.float32(first)), F32)
    ratio = b.fma(v, slope, start)
    rest = b.add(b.fma(v, slope, b.sub(start, ratio)), lost)
    return b.copysign(b.fma(x, ratio, b.mul(x, rest)), x)


def _tail(b: Builder, x: Value, w: Value) -> Value:
    root = b.sqrt(w)
    if x.dtype == F32:
        result = _scaled(b, x, root, TAIL_SINGLE)
    else:
        far = b.lt(b.const(NEAR_TAIL_DOUBLE.end, F64), w)
        result = b.select(far, _scaled(b, x, root, FAR_TAIL_DOUBLE), _scaled(b, x, root, NEAR_TAIL_DOUBLE))
    infinity = b.const(np.inf, x.dtype)
    return b.select(b.eq(w, infinity), b.copysign(infinity, x), result)
