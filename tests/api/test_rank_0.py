"""Results of rank 0: a NumPy scalar, an array or a Python number where NumPy gives that, jitted and eager."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp

KINDS: dict[str, Callable[[Any], Any]] = {
    "sum": np.sum,
    "sum of rank 0": lambda x: np.sum(x[0, ...]),
    "sum over axes": lambda x: np.sum(x[None], axis=(0, 1)),
    "mean": lambda x: x.mean(),
    "argmax": lambda x: x.argmax(),
    "median": np.median,
    "prod": np.prod,
    "nansum": np.nansum,
    "element": lambda x: x[0],
    "element by array": lambda x: x[np.array(0)],
    "element by array and dots": lambda x: x[np.array(0), ...],
    "view of a selection": lambda x: x[x == x][0, ...],
    "norm": lambda x: np.linalg.norm(x),
    "norm over an axis": lambda x: np.linalg.norm(x, axis=0),
    "norm of a matrix": lambda x: np.linalg.norm(np.outer(x, x), "fro"),
    "cond": lambda x: np.linalg.cond(np.diag(x + 1)),
    "kron": lambda x: np.kron(x[0], x[1]),
    "view of rank 0": lambda x: x[0, ...],
    "element of rank 0": lambda x: x[0, ...][()],
    "element of an element": lambda x: x[0][()],
    "view of an element": lambda x: x[0][...],
    "reshape": lambda x: np.reshape(x[:1], ()),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze of strides": lambda x: x[::4].squeeze(),
    "transpose": lambda x: np.transpose(x[0, ...]),
    "T of a scalar": lambda x: x.sum().T,
    "reshape of a scalar": lambda x: x.sum().reshape(()),
    "flip": lambda x: np.flip(x[0, ...]),
    "broadcast_to": lambda x: np.broadcast_to(x[0], ()),
    "array": lambda x: np.array(1.0),
    "array of a scalar": lambda x: np.array(x[0]),
    "zeros": lambda x: np.zeros(()),
    "full": lambda x: np.full((), x[0]),
    "zeros_like": lambda x: np.zeros_like(x[0]),
    "copy": lambda x: np.copy(x[0]),
    "copy of a view": lambda x: x[0, ...].copy(),
    "copy of a scalar": lambda x: x[0].copy(),
    "astype of a view": lambda x: x[0, ...].astype("f4"),
    "astype of a scalar": lambda x: x[0].astype("f4"),
    "operator on a view": lambda x: x[0, ...] + 1,
    "abs": lambda x: abs(x[0, ...]),
    "power": lambda x: x[0, ...] ** 2,
    "clip": lambda x: np.clip(x[0, ...], 0, 1),
    "round": lambda x: x[0, ...].round(),
    "conj": lambda x: x[0, ...].conj(),
    "conj of a scalar": lambda x: x[0].conj(),
    "conjugate": lambda x: np.conj(x[0, ...]),
    "where": lambda x: np.where(x.sum() > 0, x[0], x[1]),
    "real of a view": lambda x: np.real(x[0, ...]),
    "real of a scalar": lambda x: np.real(x[0]),
    "imag of a view": lambda x: np.imag(x[0, ...]),
    "real of a complex view": lambda x: np.real((x + 1j)[0, ...]),
    "real of a complex scalar": lambda x: np.real(x[0] + 1j),
    "nan_to_num": lambda x: np.nan_to_num(x[0, ...]),
    "take": lambda x: np.take(x, 0),
    "dot": lambda x: np.dot(x, x),
    "matmul": lambda x: x @ x,
    "vdot": lambda x: np.vdot(x, x),
    "tensordot": lambda x: np.tensordot(x, x, 1),
    "trace": lambda x: np.trace(np.outer(x, x)),
    "searchsorted": lambda x: np.searchsorted(x, 1.5),
    "interp": lambda x: np.interp(1.5, x, x),
    "sinc": lambda x: np.sinc(x[0]),
    "i0": lambda x: np.i0(x[0]),
    "cov": np.cov,
    "isclose": lambda x: np.isclose(x[0], 0.0),
    "allclose": lambda x: np.allclose(x, x),
    "array_equal": lambda x: np.array_equal(x, x),
    "out": lambda x: np.sum(x, out=np.zeros(())),
    "ufunc's out": lambda x: np.add(x[0], 1, out=np.zeros(())),
    "in place": lambda x: operator.iadd(np.zeros(()), x[0]),
}


def kind(x: Any) -> str:
    if isinstance(x, tn.Array):
        assert x.ndim == 0
        return "scalar" if x._scalar else "array"
    return "array" if isinstance(x, np.ndarray) else "scalar" if isinstance(x, np.generic) else type(x).__name__


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    function, x = KINDS[name], np.arange(4.0) + 1
    wanted = kind(function(x))
    jitted = tn.jit(function)
    assert [kind(jitted(x)), kind(jitted(x.copy())), kind(function(tn.asarray(x)))] == [wanted] * 3
    jitted_on_arrays = kind(jitted(tn.asarray(x)))
    assert jitted_on_arrays == wanted


def test_arguments_keep_their_kind() -> None:
    views = tn.jit(lambda x: (x, x[...], x[()], x.copy(), x.astype("f4"), np.asarray(x)))
    for x in (np.float64(2), np.array(2.0), np.float64(3)):
        wanted = [kind(v) for v in views.__wrapped__(x)]
        assert [kind(v) for v in views(x)] == wanted
        assert [
            kind(v) for v in views(tn.asarray(np.array([x]))[0 if isinstance(x, np.generic) else (0, ...)])
        ] == wanted
    assert views.cache_info().compiles == 2


def _alias(x: Any, reduce: Callable[[Any], Any]) -> tuple[Any, Any]:
    a = reduce(x)
    b = a
    a += 1
    return float(b), float(a)


REDUCTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.sum(), lambda x: x[1], lambda x: x @ x, np.median, lambda x: +x[1, ...], lambda x: x.sum().T,
    lambda x: x[1, ...].copy(), lambda x: np.asarray(x.sum()), lambda x: np.where(x[0] > 0, x[1], x[2]),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(REDUCTIONS)))
def test_in_place_on_a_scalar_rebinds(number: int) -> None:
    reduce, x = REDUCTIONS[number], np.arange(4.0)
    assert _alias(tn.array(x), reduce) == _alias(x.copy(), reduce)

    def both(x: Any) -> Any:
        a = reduce(x)
        b = a
        a += 1
        return b, a

    found = tn.jit(both)(x)
    assert tuple(map(float, found)) == _alias(x.copy(), reduce)


def test_eager_in_place_of_every_operator() -> None:
    x = tn.asarray(np.arange(4))
    for name in ("iadd", "isub", "imul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"):
        a = x.max()
        b = getattr(operator, name)(a, 2)
        assert b is not a and int(a) == 3 and int(b) == int(getattr(operator, name)(3, 2))


def _written(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        write(x.sum())
        return x

    return function


@pytest.mark.parametrize(
    "write",
    [
        lambda s: operator.setitem(s, (), 1.0),
        lambda s: operator.setitem(s, ..., 1.0),
        lambda s: np.add(1.0, 2.0, out=s),
        lambda s: np.copyto(s, 1.0),
        lambda s: tnp.add(1.0, 2.0, out=s),
    ],
)
def test_scalars_are_not_written(write: Callable[[Any], Any]) -> None:
    x = np.arange(3.0)
    for function in (tn.jit(_written(write)), lambda x: _written(write)(tn.asarray(x))):
        with pytest.raises(tn.DtypeError, match=r"a scalar, which cannot be written.*\(at .*test_rank_0\.py:\d+\)"):
            function(x)


def test_captured_scalars_rebind_too() -> None:
    s = tn.asarray(np.arange(3.0)).sum()

    @tn.jit
    def f(x: Any) -> Any:
        a = s
        a += x.sum()
        return a, s

    found = f(tn.asarray(np.ones(2)))
    assert [float(v) for v in found] == [5, 3] and float(s) == 3


def test_memory_of_a_scalar_is_not_given_away() -> None:
    s = tn.asarray(np.arange(3.0)).sum()
    for made in (np.asarray(s), tn.asarray(s), tnp.asarray(s), np.from_dlpack(s), s[...], s.reshape(1)):
        made[...] = 7
        assert float(s) == 3
    assert hash(s) == hash(3.0) and len({s: 1, 3.0: 2}) == 1
    with pytest.raises(TypeError):
        hash(tn.asarray(np.zeros(())))


WEAK: dict[str, Callable[[Any, Any, int], Any]] = {
    "operators": lambda x, a, n: (2.0 * a - 1) ** 2 * x,
    "operators on sizes": lambda x, a, n: x * (n / 2),
    "abs": lambda x, a, n: abs(-a) * x,
    "divmod": lambda x, a, n: divmod(a, 1)[0] * x,
    "round": lambda x, a, n: round(a, 1) * x,
    "ufunc": lambda x, a, n: np.sin(a) * x,
    "ufunc of two": lambda x, a, n: np.multiply(a, 2.0) * x,
    "library ufunc": lambda x, a, n: np.logaddexp(a, a) * x,
    "root of an int": lambda x, a, n: x / np.sqrt(n),
    "root of a size": lambda x, a, n: x / np.sqrt(x.shape[0]),
    "where of numbers": lambda x, a, n: np.where(x > 0, 1.0, 0.0) * x,
    "where of ints": lambda x, a, n: np.where(x > 0, 1, 0) * x,
    "where of arguments": lambda x, a, n: np.where(x > 0, a, 0.0) * x,
    "maximum": lambda x, a, n: np.maximum(a, 0.0) * x,
    "clip": lambda x, a, n: np.clip(a, 0.0, 1.0) * x,
    "full": lambda x, a, n: np.full(4, a) * x,
    "broadcast_to": lambda x, a, n: np.broadcast_to(a, (4,)) * x,
    "reshape": lambda x, a, n: np.reshape(a, (1,)) * x,
    "sum": lambda x, a, n: np.sum(a) * x,
    "dot": lambda x, a, n: np.dot(a, a) * x,
    "real": lambda x, a, n: np.real(a) * x,
    "NumPy's scalar": lambda x, a, n: a * np.float64(2) * x,
}


@pytest.mark.parametrize("dtype", ["f4", "i1", "f2"])
@pytest.mark.parametrize("name", WEAK)
def test_only_operators_keep_python_numbers_weak(name: str, dtype: str) -> None:
    function, x = WEAK[name], np.arange(4).astype(dtype)
    wanted = function(x, 2.5, 3)
    found = tn.jit(function)(x, 2.5, 3)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_python_numbers_come_back_as_python_numbers() -> None:
    @tn.jit
    def f(a: Any, c: Any, n: int) -> Any:
        return a * 2, -c, n / 4, a > 1, a, np.sin(a), np.float64(2) * a

    wanted, found = f.__wrapped__(0.5, 1j, 3), f(0.5, 1j, 3)
    assert found == wanted and [type(v) for v in found] == [type(v) for v in wanted]
    assert type(tn.jit(lambda x, a: a * 2)(tn.asarray(np.ones(2)), 1.5)) is float
