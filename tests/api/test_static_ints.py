"""Traced ints where NumPy needs a number (an axis, an order, an offset): pinned, in jitted and in eager calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.arange(12.0).reshape(3, 4)
HOLED = np.where(X == 5, np.nan, X)
V = np.arange(1.0, 5)
SQUARE = np.arange(9.0).reshape(3, 3) ** 2

_ALONG = "sum prod mean var max min argmax any cumsum cumprod median sort argsort flip unwrap count_nonzero diff ptp"
_NAN = "nanmean nanmax nanmin nansum nanstd nanvar nanmedian nancumsum"


def _along(name: str) -> Callable[[Any, Any], Any]:
    return lambda x, n: getattr(np, name)(x, axis=n)


CASES: dict[str, tuple[Callable[[Any, Any], Any], Any, int]] = {
    **{name: (_along(name), X, 1) for name in _ALONG.split()},
    **{name: (_along(name), HOLED, 1) for name in _NAN.split()},
    "cross": (lambda x, n: np.cross(x, x[::-1] + 1, axis=n), SQUARE, 1),
    "vander": (np.vander, V, 3),
    "corrcoef": (lambda x, n: np.corrcoef(x, rowvar=n), SQUARE, 0),
    "cov": (lambda x, n: np.cov(x, ddof=n), SQUARE, 0),
    "partition": (np.partition, V, 2),
    "argpartition": (np.argpartition, V, 2),
    "partition along": (lambda x, n: np.partition(x, 1, axis=n), X, 0),
    "diagonal": (np.diagonal, X, 1),
    "diagonal below": (lambda x, n: np.diagonal(x, -n), X, 1),
    "trace": (np.trace, X, 1),
    "tensordot": (lambda x, n: np.tensordot(x, x.T, axes=n), X, 1),
    "roll": (np.roll, X, 2),
    "roll along": (lambda x, n: np.roll(x, (n, 1), axis=(0, n)), X, 1),
    "rot90": (np.rot90, X, 3),
    "repeat": (lambda x, n: np.repeat(x, n, axis=n), X, 1),
    "split": (np.array_split, X, 2),
    "concatenate": (lambda x, n: np.concatenate([x, x], axis=n), X, 1),
    "moveaxis": (lambda x, n: np.moveaxis(x, n, 0), X, 1),
    "take": (lambda x, n: np.take(x, [0, 1], axis=n), X, 1),
    "percentile": (np.percentile, X, 30),
    "round": (lambda x, n: np.round(x / 7, n), X, 2),
    "ediff1d": (lambda x, n: np.ediff1d(x, to_end=n), V, 2),
    "keepdims": (lambda x, n: np.nansum(x, axis=0, keepdims=n), HOLED, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_static_ints(name: str) -> None:
    function, x, n = CASES[name]
    wanted = function(x.copy(), n)
    for found in (
        tn.jit(function)(x.copy(), n),
        function(tn.asarray(x.copy()), n),
        function(tn.asarray(x.copy()), np.int64(n)),
    ):
        if isinstance(wanted, list):
            assert len(found) == len(wanted)
        for got, expected in zip(*((r if isinstance(wanted, list) else [r]) for r in (found, wanted)), strict=True):
            assert np.asarray(got).dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(got), expected)


_UFUNCS = sorted(
    {u.__name__ for u in vars(np).values() if isinstance(u, np.ufunc) and u.nout == 1 and u.signature is None}
    - {"isnat"}
)


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", _UFUNCS)
def test_every_ufunc(name: str) -> None:
    """With NumPy's dtypes and values, or refused where NumPy refuses; never with a raw error."""
    ufunc = getattr(np, name)
    for x in (np.linspace(0.5, 3, 6), np.arange(1, 7), np.arange(6) > 2, np.arange(1, 7, dtype=np.uint8)):
        args = (x,) * ufunc.nin
        try:
            wanted = ufunc(*args)
        except TypeError:
            for function in (tn.jit(lambda *a: ufunc(*a)), lambda *a: ufunc(*map(tn.asarray, a))):
                with pytest.raises(tn.DtypeError):
                    function(*args)
            continue
        for found in (tn.jit(lambda *a: ufunc(*a))(*args), ufunc(*map(tn.asarray, args))):
            assert np.asarray(found).dtype == wanted.dtype
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-3 if wanted.dtype == "f2" else 1e-6)


def test_shifts_in_place_keep_the_memory() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        z = y
        y <<= 2
        z >>= 1
        return y

    x = np.arange(4)
    np.testing.assert_array_equal(tn.jit(f)(x), x * 2)
    np.testing.assert_array_equal(np.asarray(f(tn.asarray(x))), x * 2)
