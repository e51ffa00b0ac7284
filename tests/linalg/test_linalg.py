"""``numpy.linalg`` in traced functions: results as NumPy's, derivatives as JAX's, batches as loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DtypeError, LinAlgError, ShapeError, TraceError

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 4))
S = A @ A.T + 4 * np.eye(4)
B = RNG.normal(size=(4, 2))
T = RNG.normal(size=(6, 4))


def _lower(solve: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: solve(a, b, lower=True, trans=1)


# Of eigenvectors and the like squares: their signs are anybody's.
CALLS: dict[str, tuple[Callable[[Any], Callable[..., Any]], tuple[Any, ...]]] = {
    "cholesky": (lambda la: la.cholesky, (S,)),
    "solve": (lambda la: la.solve, (A, B)),
    "solve_vector": (lambda la: la.solve, (A, B[:, 0])),
    "inv": (lambda la: la.inv, (A,)),
    "det": (lambda la: la.det, (A,)),
    "slogdet": (lambda la: lambda a: la.slogdet(a)[1], (A,)),
    "eigvalsh": (lambda la: la.eigvalsh, (S,)),
    "eigh": (lambda la: lambda a: la.eigh(a)[1] ** 2, (S,)),
    "qr": (lambda la: lambda a: la.qr(a)[0] ** 2 + la.qr(a)[1].sum() ** 2, (T,)),
    "svdvals": (lambda la: lambda a: la.svd(a, full_matrices=False)[1], (T,)),
    "svd": (lambda la: lambda a: la.svd(a, full_matrices=False)[0] ** 2, (T,)),
    "svd_wide": (lambda la: lambda a: la.svd(a, full_matrices=False)[2] ** 2, (T.T,)),
    "pinv": (lambda la: la.pinv, (T,)),
    "matrix_power": (lambda la: lambda a: la.matrix_power(a, 5), (A,)),
    "matrix_power_negative": (lambda la: lambda a: la.matrix_power(a, -2), (A,)),
    "multi_dot": (lambda la: lambda a, b: la.multi_dot([a, a, b]), (A, B)),
    **{
        f"norm_{o}": (lambda la, o=o: lambda a: la.norm(a, o), (T,))  # type: ignore[misc]
        for o in (None, 1, -1, 2, np.inf, -np.inf, "fro", "nuc")
    },
    **{
        f"norm_vector_{o}": (lambda la, o=o: lambda a: la.norm(a, o, axis=1), (T,))  # type: ignore[misc]
        for o in (None, 1, 2, 3, np.inf, -np.inf)
    },
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_are_numpys(name: str, dtype: Any) -> None:
    make, arguments = CALLS[name]
    given = [x.astype(dtype) for x in arguments]
    expected = make(np.linalg)(*given)
    tolerance = 2e-4 if dtype is np.float32 else 1e-10
    for f in (tn.jit(make(np.linalg)), make(tn.linalg)):
        found = f(*given)
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    make, arguments = CALLS[name]
    places = tuple(range(len(arguments)))

    def loss(function: Any, library: Any) -> Any:
        return lambda *xs: library.sin(function(*xs)).sum()

    expected = jax.grad(loss(make(jnp.linalg), jnp), places)(*arguments)
    for f in (tn.grad(loss(make(np.linalg), np), places), tn.jit(tn.grad(loss(make(np.linalg), np), places))):
        for mine, other in zip(f(*arguments), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", CALLS)
def test_batches_are_loops(name: str) -> None:
    make, arguments = CALLS[name]
    stacked = [np.stack([x, 2 * x, x + 0.1 * np.eye(*x.shape) if x.ndim == 2 else x + 0.1]) for x in arguments]
    function = make(np.linalg)
    found = tn.jit(tn.vmap(function))(*stacked)
    for k in range(3):
        np.testing.assert_allclose(found[k], function(*(x[k] for x in stacked)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("kind", [np.float64, np.complex128])
def test_triangular_systems(lower: bool, trans: int, unit: bool, kind: Any) -> None:
    a, b = A.astype(kind), B.astype(kind)
    if kind is np.complex128:
        a = a + 1j * RNG.normal(size=a.shape)
    kept = np.tril(a) if lower else np.triu(a)
    if unit:
        np.fill_diagonal(kept, 1)
    applied = (kept, kept.T, kept.conj().T)[trans]
    found = tn.linalg.triangular_solve(a, b, lower=lower, trans=trans, unit_diagonal=unit)
    np.testing.assert_allclose(applied @ found, b, atol=1e-9)

    def loss(a: Any, b: Any) -> Any:
        x = tn.linalg.triangular_solve(a, b, lower=lower, trans=trans, unit_diagonal=unit)
        return (x * x.conj()).real.sum()

    if kind is np.float64:
        step = 1e-6
        gradient = tn.grad(loss, (0, 1))(a, b)
        for k, x in enumerate((a, b)):
            direction = RNG.normal(size=x.shape)
            pair = [loss(*(y + s * step * direction if j == k else y for j, y in enumerate((a, b)))) for s in (1, -1)]
            expected = (pair[0] - pair[1]) / (2 * step)
            assert (gradient[k] * direction).sum() == pytest.approx(float(expected), rel=1e-5)


def test_cholesky_solves() -> None:
    for f in (tn.linalg.cho_solve, tn.jit(tn.linalg.cho_solve)):
        np.testing.assert_allclose(f(np.linalg.cholesky(S), B), np.linalg.solve(S, B))
    np.testing.assert_allclose(tn.jit(lambda a: np.linalg.cholesky(a, upper=True))(S), np.linalg.cholesky(S).T)


def test_second_derivatives() -> None:
    gradient = tn.jit(tn.grad(lambda s: np.linalg.slogdet(s)[1]))
    found = tn.grad(lambda s: (gradient(s) * B.sum()).sum())(S)
    inverse = np.linalg.inv(S)
    np.testing.assert_allclose(found, -B.sum() * np.outer(inverse.sum(1), inverse.sum(0)).T, rtol=1e-9)


def test_the_slope_of_a_norm_at_zero_is_zero() -> None:
    np.testing.assert_array_equal(tn.grad(np.linalg.norm)(np.zeros(3)), np.zeros(3))


def test_what_numpy_refuses() -> None:
    with pytest.raises(LinAlgError, match="positive definite"):
        tn.jit(np.linalg.cholesky)(-S)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        tn.jit(np.linalg.inv)(np.zeros((3, 3)))
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        tn.jit(np.linalg.inv)(T)
    with pytest.raises(np.linalg.LinAlgError, match="rank 2"):
        tn.jit(np.linalg.cholesky)(T[0])
    with pytest.raises(DtypeError, match="float16"):
        tn.jit(np.linalg.inv)(A.astype(np.float16))
    with pytest.raises(ShapeError, match="right-hand sides"):
        tn.jit(np.linalg.solve)(A, T)
    with pytest.raises(TraceError, match="full_matrices"):
        tn.jit(np.linalg.svd)(T)


def test_tn_arrays_stay() -> None:
    x = tn.asarray(S)
    found = np.linalg.cholesky(x)
    assert isinstance(found, tn.Array)
    np.testing.assert_allclose(np.asarray(found), np.linalg.cholesky(S))


def test_forms_of_scipy():
    a = np.array([[4.0, 1.0], [1.0, 3.0]])
    b, factor = np.array([1.0, 2.0]), np.linalg.cholesky(a)
    for f in (tn.linalg.cho_solve, tn.jit(tn.linalg.cho_solve)):
        np.testing.assert_allclose(f((factor, True), b), np.linalg.solve(a, b))
        np.testing.assert_allclose(f((factor.T, False), b), np.linalg.solve(a, b))
    unit = np.tril(factor, -1) + np.eye(2)
    for trans, turned in ((0, unit), (1, unit.T), ("T", unit.T)):
        solve = lambda a, b, trans=trans: tn.linalg.solve_triangular(a, b, lower=True, trans=trans, unit_diagonal=True)  # noqa: E731
        for f in (solve, tn.jit(solve)):
            np.testing.assert_allclose(f(factor, b), np.linalg.solve(turned, b))


@pytest.mark.parametrize("name", ["eig", "eigvals"])
def test_eigenvalues_of_any_matrix_have_a_hint(name):
    with pytest.raises(AttributeError, match=rf"has no '{name}'; tenferro.linalg.{name}h of a symmetric"):
        getattr(tn.linalg, name)
    with pytest.raises(AttributeError, match="has no 'choleski'; cholesky is the nearest name"):
        tn.linalg.choleski  # noqa: B018
