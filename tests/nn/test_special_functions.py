"""Gamma functions and normal tails against mpmath in 40 digits; the rest against their definitions; slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import tenferro as tn
from tenferro import nn, special

mpmath.mp.dps = 40


def _tail(x: Any) -> Any:
    return mpmath.log(mpmath.ncdf(x)) if x < 5 else mpmath.log1p(-mpmath.ncdf(-x))


EXACT: dict[str, tuple[Callable[..., Any], Any, float]] = {
    "gammaln": (
        lambda x: mpmath.log(abs(mpmath.gamma(x))),
        [0.1, 0.5, 1.5, 3.0, 6.99, 7.0, 30.3, 1e10, -0.3, -5.3],
        4e-15,
    ),
    "digamma": (lambda x: mpmath.psi(0, x), [0.1, 0.5, 1.0, 3.0, 6.99, 7.0, 30.3, 1e10, -0.3, -5.3], 4e-15),
    "gamma": (mpmath.gamma, [0.1, 0.5, 1.0, 5.0, 30.3, 170.0, -0.3, -5.3], 1e-13),
    "erfc": (mpmath.erfc, [-3.0, -0.1, 0.0, 0.1, 1.0, 3.3, 8.0, 15.0, 26.0], 1e-15),
    "ndtr": (mpmath.ncdf, [-37.0, -20.1, -5.2, -1.0, 0.0, 0.3, 2.0, 9.0], 1e-15),
    "log_ndtr": (_tail, [-1e5, -37.0, -5.2, -1.0, 0.0, 0.3, 2.0, 9.0, 28.0], 2e-15),
    "factorial": (mpmath.factorial, [0.0, 1.0, 5.0, 10.5, 22.0], 2e-14),
}
"""Name → exact function, places, and the largest error relative to it, or absolute below 1 for the logarithms."""


@pytest.mark.parametrize("name", EXACT)
def test_against_mpmath(name: str) -> None:
    exact, places, bound = EXACT[name]
    x = np.array(places)
    wanted = [exact(mpmath.mpf(v)) for v in places]
    for function in (getattr(special, name), tn.jit(getattr(special, name))):
        for found, w in zip(function(x), wanted, strict=True):
            scale = max(abs(w), 1) if name in ("gammaln", "digamma") else abs(w)
            assert abs(mpmath.mpf(float(found)) - w) <= bound * scale, (name, found, w)
    narrow = getattr(special, name)(x.astype(np.float32)[1:4])
    assert narrow.dtype == np.float32
    wanted_narrow = np.array([float(exact(mpmath.mpf(float(v)))) for v in x.astype(np.float32)[1:4]])
    np.testing.assert_allclose(narrow, wanted_narrow, rtol=1e-7, atol=1e-7)
    assert getattr(special, name)(np.array([1, 2])).dtype == np.float64


def test_where_there_is_no_number() -> None:
    x = np.array([0.0, -0.0, -1.0, -2.0, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(special.gammaln(x), [np.inf] * 6 + [np.nan])
    np.testing.assert_array_equal(special.digamma(x)[:5], [-np.inf, np.inf, np.nan, np.nan, np.inf])
    np.testing.assert_array_equal(special.gammasgn(np.array([-0.5, -1.5, 2.0, 0.0, -1.0])), [-1, 1, 1, 1, np.nan])
    np.testing.assert_array_equal(special.erfc(x[4:]), [0, 2, np.nan])
    np.testing.assert_array_equal([special.erfc(0.0), special.ndtr(0.0), special.ndtri(0.5)], [1, 0.5, 0])
    np.testing.assert_array_equal(special.ndtr(x[4:]), [1, 0, np.nan])
    np.testing.assert_array_equal(special.factorial(np.array([-1, 0, 5, 15])), [0, 1, 120, math.factorial(15)])
    np.testing.assert_array_equal(
        special.ndtri(np.array([0.0, 1.0, 0.5, -1.0, 2.0])), [-np.inf, np.inf, 0, np.nan, np.nan]
    )
    np.testing.assert_array_equal(
        special.kl_div(np.array([0.0, -1.0, 1.0]), np.array([2.0, 1.0, 0.0])), [2, np.inf, np.inf]
    )
    assert special.gammaln(np.zeros(0)).shape == (0,)


def test_of_two() -> None:
    for s, q in ((1.5, 1.0), (2.0, 1.0), (3.0, 0.2), (1.01, 3.0), (20.0, 2.0)):
        assert abs(float(special.zeta(s, q)) / float(mpmath.zeta(s, q)) - 1) < 1e-14
    for n in (0, 1, 2, 5):
        x = np.array([0.1, 1.0, 3.0, 20.0])
        np.testing.assert_allclose(special.polygamma(n, x), [float(mpmath.psi(n, v)) for v in x], rtol=1e-13)
    a, b = np.array([0.5, 2.0, 30.0]), np.array([0.1, 7.0, 40.0])
    exact = [mpmath.beta(mpmath.mpf(p), mpmath.mpf(q)) for p, q in zip(a, b, strict=True)]
    np.testing.assert_allclose(special.beta(a, b), [float(v) for v in exact], rtol=1e-13)
    np.testing.assert_allclose(special.betaln(a, b), [float(mpmath.log(v)) for v in exact], rtol=1e-13)
    np.testing.assert_allclose(
        special.poch(a, b), [float(mpmath.rf(p, q)) for p, q in zip(a, b, strict=True)], rtol=1e-12
    )
    wanted = [0.5 * math.log(math.pi) + math.lgamma(v) + math.lgamma(v - 0.5) for v in a + 1]
    np.testing.assert_allclose(special.multigammaln(a + 1, 2), wanted, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(special.kl_div(a, b), a * np.log(a / b) - a + b, rtol=1e-13)
    np.testing.assert_allclose(special.boxcox(b, np.array([0.0, 0.5, 2.0])), [np.log(0.1), 2 * (7**0.5 - 1), 799.5])
    np.testing.assert_allclose(
        special.boxcox1p(b - 1, np.array([0.0, 0.5, 2.0])), [np.log(0.1), 2 * (7**0.5 - 1), 799.5]
    )
    with pytest.raises(tn.ShapeError, match="multigammaln: d is 0"):
        special.multigammaln(a, 0)


def test_quantiles_invert_the_distribution() -> None:
    p = np.array([1e-300, 1e-20, 1e-5, 0.0199, 0.0201, 0.3, 0.5, 0.9, 0.99, 1 - 1e-12])
    np.testing.assert_allclose(special.log_ndtr(special.ndtri(p)), np.log(p), rtol=1e-14, atol=1e-15)
    slope = tn.grad(lambda p: special.ndtri(p).sum())(p)
    x = special.ndtri(p)
    np.testing.assert_allclose(slope, np.sqrt(2 * np.pi) * np.exp(0.5 * x * x), rtol=1e-11)


def test_slopes() -> None:
    x = np.array([0.3, 1.0, 2.0, 4.5, 9.0, -0.4, -3.3])
    zero = np.array([0.0, -0.0])
    derivatives: dict[str, Callable[[Any], Any]] = {
        "gammaln": lambda v: mpmath.psi(0, v),
        "digamma": lambda v: mpmath.psi(1, v),
        "erfc": lambda v: -2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-v * v),
        "ndtr": mpmath.npdf,
        "log_ndtr": lambda v: mpmath.npdf(v) / mpmath.ncdf(v),
    }
    for name, slope in derivatives.items():
        found = tn.jit(tn.grad(lambda x, name=name: getattr(special, name)(x).sum()))(x)
        np.testing.assert_allclose(found, [float(slope(mpmath.mpf(v))) for v in x], rtol=2e-12, err_msg=name)
        np.testing.assert_array_equal(tn.vmap(getattr(special, name))(x), getattr(special, name)(x))
        if name in ("erfc", "ndtr", "log_ndtr"):
            found = tn.grad(lambda x, name=name: getattr(special, name)(x).sum())(zero)
            np.testing.assert_allclose(found, [float(slope(mpmath.mpf(0)))] * 2, rtol=1e-14)
    curved = tn.grad(tn.grad(special.gammaln))(2.5)
    assert abs(curved - float(mpmath.psi(1, 2.5))) < 1e-13


# -- networks --------------------------------------------------------------------------------------------------------


def test_activations_by_their_formulas() -> None:
    x = np.linspace(-3, 3, 13)
    for function, wanted in (
        (nn.squareplus, 0.5 * (x + np.sqrt(x * x + 4))), (nn.tanh, np.tanh(x)), (nn.identity, x),
        (nn.sparse_plus, np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4))),
        (nn.sparse_sigmoid, np.clip((x + 1) / 2, 0, 1)), (nn.logmeanexp, np.log(np.exp(x).mean())),
        (lambda x: nn.log1mexp(abs(x) + 0.1), np.log(1 - np.exp(-abs(x) - 0.1))),
    ):  # fmt: skip
        for run in (function, tn.jit(function)):
            np.testing.assert_allclose(run(x), wanted, rtol=1e-13, atol=1e-15)
    rows, where = x[:12].reshape(3, 4), np.arange(12).reshape(3, 4) % 3 > 0
    wanted = np.log(np.where(where, np.exp(rows), 0).sum(1) / where.sum(1))
    np.testing.assert_allclose(nn.logmeanexp(rows, axis=1, where=where), wanted, rtol=1e-13)


@pytest.mark.parametrize("option", ["plain", "causal", "mask", "bias"])
def test_attention(option: str) -> None:
    rng = np.random.default_rng(3)
    q, k, v = rng.normal(size=(2, 5, 4, 3)), rng.normal(size=(2, 6, 2, 3)), rng.normal(size=(2, 6, 2, 3))
    mask, bias = rng.random((2, 4, 5, 6)) > 0.3, rng.normal(size=(2, 4, 5, 6))
    by_name: dict[str, dict[str, Any]] = {
        "plain": {}, "causal": {"is_causal": True}, "mask": {"mask": mask}, "bias": {"bias": bias, "scale": 0.3},
    }  # fmt: skip
    options = by_name[option]
    wanted = np.empty(q.shape)
    for b, h in np.ndindex(2, 4):
        scores = q[b, :, h] @ k[b, :, h // 2].T * options.get("scale", 1 / math.sqrt(3))
        scores = scores + (bias[b, h] if option == "bias" else 0)
        kept = (
            mask[b, h]
            if option == "mask"
            else np.tri(5, 6, dtype=bool)
            if option == "causal"
            else np.full((5, 6), True)
        )
        weights = np.where(kept, np.exp(scores), 0)
        wanted[b, :, h] = weights / weights.sum(1, keepdims=True) @ v[b, :, h // 2]
    for function in (nn.dot_product_attention, tn.jit(lambda *xs: nn.dot_product_attention(*xs, **options))):
        given = options if function is nn.dot_product_attention else {}
        np.testing.assert_allclose(function(q, k, v, **given), wanted, rtol=1e-12, atol=1e-14)
    if option == "plain":
        np.testing.assert_allclose(nn.dot_product_attention(q[0], k[0], v[0]), wanted[0], rtol=1e-12)
        with pytest.raises(tn.ShapeError, match="dot_product_attention: 3 heads of queries for 2 of keys"):
            nn.dot_product_attention(q[:, :, :3], k, v)
