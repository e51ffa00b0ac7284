"""A bad call of every row as users write it: the error's class, what it found and needed, and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import TenferroError
from tenferro.tracer.ops import OPS
from tests.vocabulary import UNARY

A3, A4, M23 = np.ones(3), np.ones(4), np.ones((2, 3))
I3, B3, C3 = np.arange(3), np.ones(3, bool), np.ones(3, complex)
KEY = np.array([0, 42], np.uint32)

Bad = tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]


def _on_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Under ``shard_map`` on a mesh of one engine."""
    return tn.shard_map(function, tn.Mesh(tn.list_engines()[:1], "i"), tn.P("i"), tn.P("i"))


# Each lambda stands on one line: that line is the user's line that the error must name.
BAD_CALLS: dict[str, Bad] = {
    "add": (lambda x, y: x + y, (A3, A4), ValueError, r"^add: .*\(3,\).*\(4,\)"),
    "subtract": (lambda x, y: x - y, (B3, B3), TypeError, r"^subtract: .*bool"),
    "multiply": (lambda x, y: x * y, (M23, A4), ValueError, r"^multiply: .*\(2, 3\).*\(4,\)"),
    "divide": (lambda x, y: x / y, (A3, A4), ValueError, r"^divide: .*\(3,\).*\(4,\)"),
    "floor_divide": (lambda x, y: x // y, (C3, C3), TypeError, r"^floor_divide: .*complex128"),
    "remainder": (lambda x, y: x % y, (C3, C3), TypeError, r"^remainder: .*complex128"),
    "negative": (lambda x: -x, (B3,), TypeError, r"^negative: .*bool"),
    "maximum": (lambda x, y: np.maximum(x, y), (A3, A4), ValueError, r"^maximum: .*\(3,\).*\(4,\)"),
    "minimum": (lambda x, y: np.minimum(x, y), (A3, A4), ValueError, r"^minimum: .*\(3,\).*\(4,\)"),
    "equal": (lambda x, y: x == y, (A3, A4), ValueError, r"^equal: .*\(3,\).*\(4,\)"),
    "not_equal": (lambda x, y: x != y, (A3, A4), ValueError, r"^not_equal: .*\(3,\).*\(4,\)"),
    "less": (lambda x, y: x < y, (A3, A4), ValueError, r"^less: .*\(3,\).*\(4,\)"),
    "less_equal": (lambda x, y: x <= y, (A3, A4), ValueError, r"^less_equal: .*\(3,\).*\(4,\)"),
    "bitwise_and": (lambda x, y: x & y, (A3, A3), TypeError, r"^bitwise_and: .*float64"),
    "bitwise_or": (lambda x, y: x | y, (A3, A3), TypeError, r"^bitwise_or: .*float64"),
    "bitwise_xor": (lambda x, y: x ^ y, (A3, A3), TypeError, r"^bitwise_xor: .*float64"),
    "invert": (lambda x: ~x, (A3,), TypeError, r"^invert: .*float64"),
    **{
        f.__name__: (lambda x, f=f: f(x), (C3,), TypeError, rf"^{f.__name__}: .*complex128")
        for f in (np.floor, np.ceil, np.trunc, np.signbit, np.cbrt)
    },
    "sign": (lambda x: np.sign(x), (B3,), TypeError, r"^sign: .*bool"),
    "copysign": (lambda x, y: np.copysign(x, y), (A3, A4), ValueError, r"^copysign: .*\(3,\).*\(4,\)"),
    "heaviside": (lambda x, y: np.heaviside(x, y), (C3, A3), TypeError, r"^heaviside: .*complex128"),
    "nextafter": (lambda x, y: np.nextafter(x, y), (A3, A4), ValueError, r"^nextafter: .*\(3,\).*\(4,\)"),
    "left_shift": (lambda x, y: x << y, (A3, I3), TypeError, r"^left_shift: .*float64"),
    "right_shift": (lambda x, y: x >> y, (A3, I3), TypeError, r"^right_shift: .*float64"),
    **{
        f.__name__: (lambda x, y, f=f: f(x, y), (A3, A4), ValueError, rf"^{f.__name__}: .*\(3,\).*\(4,\)")
        for f in (np.logaddexp, np.logaddexp2, np.hypot, np.arctan2)
    },
    "fmod": (lambda x, y: np.fmod(x, y), (C3, C3), TypeError, r"^fmod: .*complex128"),
    "power": (lambda x, y: x**y, (I3, I3 - 1), ValueError, r"^power: integers to the exponent -1"),
    "required": (lambda x: np.nanargmax(x * np.nan), (A3,), ValueError, r"^nanargmax: All-NaN slice encountered"),
    "threefry": (lambda k: tn.random.bits(k.astype(np.int64)), (KEY,), TypeError, r"^bits: key of dtype int64"),
    "random_gamma": (lambda k, x: tn.random.gamma(k, x), (KEY, C3), TypeError, r"^gamma: a of dtype complex128"),
    "random_poisson": (
        lambda k, x: tn.random.poisson(k, x),
        (KEY, C3),
        TypeError,
        r"^poisson: lam of dtype complex128",
    ),
    "random_binomial": (
        lambda k, x: tn.random.binomial(k, 5, x),
        (KEY, C3),
        TypeError,
        r"^binomial: p of dtype complex128",
    ),
    "where": (lambda x, y: np.where(x > 0, x, y), (A3, A4), ValueError, r"^where: .*\(3,\).*\(4,\)"),
    "astype": (lambda x: x.astype("U3"), (A3,), TypeError, r"^astype: .*"),
    "bitcast": (lambda x: x.view("f4"), (A3,), TypeError, r"^view: float64 as float32"),
    "sum": (lambda x: x.sum(axis=2), (M23,), IndexError, r"^sum: axis 2"),
    "prod": (lambda x: x.prod(axis=2), (M23,), IndexError, r"^prod: axis 2"),
    "max": (lambda x: x.max(axis=-3), (M23,), IndexError, r"^max: axis -3"),
    "min": (lambda x: x[:0].min(), (A3,), ValueError, r"^min: .*"),
    "argmax": (lambda x: x[:0].argmax(), (A3,), ValueError, r"^argmax: .*"),
    "argmin": (lambda x: x.argmin(axis=1), (A3,), IndexError, r"^argmin: axis 1"),
    "squared_deviations": (lambda x: x.var(axis=1), (A3,), IndexError, r"^var: axis 1"),
    "reshape": (lambda x: x.reshape(4, 2), (M23,), ValueError, r"^reshape: 6 elements .*\(4, 2\)"),
    "transpose": (lambda x: np.transpose(x, (0, 0)), (M23,), ValueError, r"^transpose: axes \(0, 0\)"),
    "broadcast_to": (lambda x: np.broadcast_to(x, (2, 4)), (A3,), ValueError, r"^broadcast_to: .*\(3,\).*\(2, 4\)"),
    "slice": (lambda x: x[0, 0], (A3,), IndexError, r"^.*2 .*rank 1|^.*too many"),
    "pad": (lambda x: np.pad(x, -1), (A3,), ValueError, r"^pad: .*-1"),
    "concatenate": (lambda x, y: np.concatenate([x, y]), (A3, M23), ValueError, r"^concatenate: .*"),
    "take": (lambda x: np.take(x, 0.5), (A3,), TypeError, r"^take: .*float64"),
    "matmul": (lambda x, y: x @ y, (M23, A4), ValueError, r"^matmul: .*\(2, 3\).*\(4,\)"),
    "mask_select": (lambda x, y: x[y > 0], (A3, A4), IndexError, r"^getitem: mask of size 4 for axis 0 of size 3"),
    "bincount": (lambda x: np.bincount(x - 1), (I3,), ValueError, r"^bincount: .*negative"),
    "cumsum": (lambda x: np.cumsum(x, axis=1), (A3,), IndexError, r"^cumsum: axis 1"),
    "all_reduce": (lambda x: _on_one(lambda v: tn.psum(v > 0, "i"))(x), (A3,), TypeError, r"^psum: .*bool"),
    "all_gather": (
        lambda x: _on_one(lambda v: tn.all_gather(v, "i", axis=3))(x),
        (A3,),
        IndexError,
        r"^all_gather: axis 3",
    ),
    "reduce_scatter": (
        lambda x: _on_one(lambda v: tn.psum_scatter(v, "i"))(x),
        (A3,),
        ValueError,
        r"^psum_scatter: axis 0",
    ),
    "broadcast": (
        lambda x: _on_one(lambda v: tn.pbroadcast(v, "i", 1))(x),
        (A3,),
        ValueError,
        r"^pbroadcast: source 1",
    ),
    "permute": (
        lambda x: _on_one(lambda v: tn.ppermute(v, "i", [(0, 1)]))(x),
        (A3,),
        ValueError,
        r"^ppermute: .*\[1\]",
    ),
}
WITHOUT = {
    "copy", "absolute", "conjugate", "real", "imag", "exp", "log", "sin", "cos", "tanh", "sqrt", "rint", "iota",
    "reciprocal", "slice_update", "scatter", *(name for name in UNARY if name != "cbrt"), "mask_update", "numpy_call",
    "tangent_product", "tangent_quotient", "tangent_pair", "recurrence",
    "products_before", "scan", "while", "cond", "fma", "erf",
    "erfinv", "lane_sum", "lane_max", "lane_min", "lane_gather", "lane_index",
    "cholesky", "triangular_solve", "solve", "inv", "slogdet", "eigh", "qr", "svd",
}  # fmt: skip
"""Rows that refuse nothing a user can write, or that users reach only through the assignments tested below, or through
derivatives. What refuses of control rows a user can write is refused where they are made (``tests/control``)."""


def test_every_row_has_a_bad_call_or_none() -> None:
    assert set(BAD_CALLS) | WITHOUT == set(OPS)
    assert not set(BAD_CALLS) & WITHOUT


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_call(name: str) -> None:
    function, arguments, error, text = BAD_CALLS[name]
    jitted = tn.jit(function)
    with pytest.raises(error, match=text) as caught:
        jitted(*arguments)
    assert isinstance(caught.value, TenferroError)
    assert str(caught.value).endswith(f"test_errors.py:{function.__code__.co_firstlineno})")


def _assign(x: Any, index: Any, value: Any) -> Any:
    out = x.copy()
    out[index] = value
    return out


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        (lambda x, y: _assign(x, slice(1, None), y), (A3, A4), ValueError),
        (lambda x, y: _assign(x, y, x), (A4, I3), ValueError),
        (lambda x, y: _assign(x, y > 0, 1.0), (A3, A4), IndexError),
        (lambda x, y: _assign(x, 7, y), (A3, 1.0), IndexError),
        (lambda x, y: _assign(x, slice(None), y), (I3, C3), TypeError),
    ],
)
def test_bad_assignment(function: Callable[..., Any], arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        tn.jit(function)(*arguments)
    assert isinstance(caught.value, TenferroError)
    line = _assign.__code__.co_firstlineno + 2
    assert str(caught.value).endswith(f"test_errors.py:{line})")


def test_the_next_call_works() -> None:
    jitted = tn.jit(lambda x, y: x + y)
    with pytest.raises(ValueError, match="^add: "):
        jitted(A3, A4)
    np.testing.assert_array_equal(jitted(A3, A3), [2, 2, 2])
