"""Least squares, ranks, conditions, norms and matrices of a form: NumPy's values and errors, derivatives, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

Function = Callable[..., Any]
RNG = np.random.default_rng(7)
la = np.linalg
SHAPES = [(5, 3), (3, 5), (4, 4), (1, 1), (1, 3), (0, 2), (2, 0)]


def matrix(shape: tuple[int, ...], dtype: str) -> Any:
    x = RNG.normal(size=shape) * 3
    return (x + 1j * RNG.normal(size=shape) if dtype[0] == "c" else x).astype(dtype)


def _outcome(function: Function, *args: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except (ValueError, IndexError, TypeError) as error:
        return error


def agrees(function: Function, *args: Any) -> None:
    wanted = _outcome(function, *args)
    for found in (_outcome(tn.jit(function), *args), _outcome(function, *map(tn.asarray, args))):
        if isinstance(wanted, Exception):
            assert isinstance(found, type(wanted)) and isinstance(found, tn.TenferroError), (found, wanted)
            continue
        pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),)
        for f, w in pairs:
            f, w = np.asarray(f), np.asarray(w)
            assert (f.dtype, f.shape) == (w.dtype, w.shape), (f, w)
            close = 2e-4 if w.dtype.char in "fF" else 1e-9
            np.testing.assert_allclose(f, w, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "complex128", "complex64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_least_squares(shape: tuple[int, int], dtype: str) -> None:
    a = matrix(shape, dtype)
    for b in (matrix(shape[:1], dtype), matrix((shape[0], 2), dtype)):
        agrees(la.lstsq, a, b)
        agrees(lambda a, b: la.lstsq(a[:, ::-1], b, rcond=0.3), a, b)
        if shape[0] and shape[1] > 1:
            deficient = a.copy()
            deficient[:, 0] = deficient[:, 1]
            agrees(la.lstsq, deficient, b)
    agrees(la.lstsq, a, matrix((shape[0] + 1,), dtype))
    agrees(la.lstsq, a[0] if shape[0] else a[:, 0], a)


RANKS: dict[str, Function] = {
    "matrix_rank": la.matrix_rank,
    "matrix_rank, tol": lambda a: la.matrix_rank(a, 1.0),
    "matrix_rank, rtol": lambda a: la.matrix_rank(a, rtol=0.5),
    "matrix_rank of a batch": lambda a: la.matrix_rank(np.stack([a, a * 0])),
    "matrix_rank of a vector": lambda a: la.matrix_rank(a[0] if a.shape[0] else a[:, 0]),
    "cond": la.cond,
    "cond, -2": lambda a: la.cond(a, -2),
    "cond, 1": lambda a: la.cond(a, 1),
    "cond, fro": lambda a: la.cond(np.stack([a, 2 * a]), "fro"),
    "pinv": lambda a: la.pinv(np.stack([a, a * 2])),
    "pinv, rcond": lambda a: la.pinv(a.T, rcond=0.1),
    "pinv, rtol": lambda a: la.pinv(a, rtol=0.1),
    "matrix_norm": la.matrix_norm,
    "matrix_norm, 1": lambda a: la.matrix_norm(a, ord=1, keepdims=True),
    "vector_norm": la.vector_norm,
    "vector_norm, axis": lambda a: la.vector_norm(a, axis=0, ord=1),
    "vector_norm, axes": lambda a: la.vector_norm(a[None], axis=(0, 2), keepdims=True, ord=1),
    "vector_norm, kept": lambda a: la.vector_norm(a, keepdims=True),
    "trace of a batch": lambda a: la.trace(np.stack([a, a * 2]), offset=1),
    "diagonal of a batch": lambda a: la.diagonal(np.stack([a, a * 2])),
    "outer": lambda a: la.outer(a[0], a[0]) if a.shape[0] else 0,
    "outer of matrices": lambda a: la.outer(a, a),
    "cross": lambda a: la.cross(a, a[:, ::-1]),
    "cross, axis": lambda a: la.cross(a, a[::-1], axis=0),
    "matrix_transpose": lambda a: la.matrix_transpose(a),
    "inv": lambda a: la.inv(a) if a.shape != (4, 4) else 0,
    **{f"norm, {o}": lambda a, o=o: la.norm(a, o) for o in (1, -1, 2, -2, np.inf, -np.inf, "nuc")},
    **{f"norm of vectors, {o}": lambda a, o=o: la.norm(a, o, axis=0) for o in (1, 0, np.inf, -np.inf)},
}


@pytest.mark.parametrize("name", RANKS)
def test_ranks_and_norms(name: str) -> None:
    for shape in SHAPES:
        for dtype in ("float64", "float32", "complex64"):
            agrees(RANKS[name], matrix(shape, dtype))


def test_tensors() -> None:
    a = RNG.normal(size=(4, 6, 8, 3))
    agrees(lambda a: la.tensorinv(a), a)
    agrees(lambda a: la.tensorinv(a, 1), a)
    agrees(lambda a: la.tensorinv(a, 0), a)
    agrees(lambda a: la.tensorsolve(a, np.ones((4, 6))), a)
    agrees(lambda a: la.tensorsolve(a.transpose(0, 2, 1, 3), np.ones((4, 6)), axes=(1,)), a)
    agrees(lambda a: la.tensorsolve(a, np.ones((4, 5))), a)


def _difference(function: Function, x: Any) -> Any:
    found = np.zeros(x.shape)
    for k in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[k] = 1e-6
        found[k] = (function(x + step) - function(x - step)) / 2e-6
    return found


@pytest.mark.parametrize("a", [RNG.normal(size=(5, 3)), RNG.normal(size=(3, 5)), 2 * np.eye(3)[:, :2]], ids=str)
def test_derivatives(a: Any) -> None:
    """Of equal singular values too, and twice."""
    b = RNG.normal(size=a.shape[0])
    weights = np.arange(1.0, a.shape[1] + 1)
    for function in (
        lambda a: (la.pinv(a) @ b * weights).sum(),
        lambda a: (la.lstsq(a, b)[0] * weights).sum(),
        lambda a: la.lstsq(a, b)[3].sum(),
    ):  # fmt: skip
        np.testing.assert_allclose(tn.grad(function)(a), _difference(function, a), rtol=1e-6, atol=1e-7)
    solution = lambda a: (la.lstsq(a, b)[0] ** 2).sum()  # noqa: E731
    second, slope = tn.hessian(solution)(a), tn.jit(tn.grad(solution))
    for k in np.ndindex(a.shape):
        step = np.zeros(a.shape)
        step[k] = 1e-6
        wanted = (slope(a + step) - slope(a - step)) / 2e-6
        np.testing.assert_allclose(second[(..., *k)], wanted, rtol=1e-5, atol=1e-6)
    right = tn.grad(lambda b: (la.lstsq(a, b)[0] * weights).sum())(b)
    np.testing.assert_allclose(right, weights @ la.pinv(a), rtol=1e-10)


def test_lanes() -> None:
    a, b = RNG.normal(size=(3, 5, 2)), RNG.normal(size=(3, 5))
    np.testing.assert_allclose(tn.vmap(la.pinv)(a), la.pinv(a))
    np.testing.assert_allclose(tn.vmap(la.matrix_rank)(a), la.matrix_rank(a))
    solved = tn.jit(tn.vmap(la.lstsq))(a, b)
    for k, parts in enumerate(zip(a, b, strict=True)):
        for found, wanted in zip(solved, la.lstsq(*parts), strict=True):
            np.testing.assert_allclose(found[k], wanted)
    found = tn.vmap(lambda b: la.lstsq(a[0], b)[0])(b)
    np.testing.assert_allclose(found, [la.lstsq(a[0], row)[0] for row in b])


def test_one_program_serves_every_size() -> None:
    jitted = tn.jit(lambda a, b: (*la.lstsq(a, b), la.matrix_rank(a), la.cond(a)))
    for n in (4, 7, 12):
        a, b = RNG.normal(size=(n, 3)), RNG.normal(size=n)
        for found, wanted in zip(jitted(a, b), (*la.lstsq(a, b), la.matrix_rank(a), la.cond(a)), strict=True):
            np.testing.assert_allclose(found, wanted)
    assert jitted.cache_info().compiles == 1


# -- of SciPy --------------------------------------------------------------------------------------------------------


def test_exponentials() -> None:
    for size in (1e-3, 1.0, 30.0):
        x = RNG.normal(size=(4, 4)) * size
        symmetric = x + x.T
        values, vectors = la.eigh(symmetric)
        wanted = (vectors * np.exp(values)) @ vectors.T
        for function in (tn.linalg.expm, tn.jit(tn.linalg.expm)):
            np.testing.assert_allclose(function(symmetric), wanted, rtol=1e-12, atol=1e-12 * abs(wanted).max())
        both = tn.linalg.expm(np.stack([symmetric, symmetric / 16]))
        np.testing.assert_allclose(both[0], wanted, rtol=1e-12, atol=1e-12 * abs(wanted).max())
        np.testing.assert_allclose(la.matrix_power(both[1], 16), wanted, rtol=1e-10, atol=1e-10 * abs(wanted).max())
    turn = np.array([[0.0, -2.0], [2.0, 0.0]])
    np.testing.assert_allclose(
        tn.linalg.expm(turn), [[np.cos(2), -np.sin(2)], [np.sin(2), np.cos(2)]], rtol=1e-14, atol=1e-15
    )
    assert tn.linalg.expm(np.zeros((0, 0))).shape == (0, 0)
    assert tn.linalg.expm(np.eye(2, dtype=np.float32)).dtype == np.float32
    x = RNG.normal(size=(3, 3)) * 3
    function = lambda x: tn.linalg.expm(x).sum()  # noqa: E731
    slope = tn.grad(function)(x)
    np.testing.assert_allclose(slope, _difference(function, x), rtol=1e-5, atol=1e-6 * abs(slope).max())
    with pytest.raises(ValueError, match=r"^expm: .*square matrices are needed.*test_least_squares"):
        tn.linalg.expm(np.ones((2, 3)))


def test_matrices_of_a_form() -> None:
    for run in (lambda f: f, tn.jit):
        found = run(tn.linalg.block_diag)(np.ones((2, 2)), np.array([[3, 4]]), np.array(5))
        np.testing.assert_array_equal(found, [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 3, 4, 0], [0, 0, 0, 0, 5]])
        assert found.dtype == np.float64
        np.testing.assert_array_equal(
            run(tn.linalg.toeplitz)(np.array([1, 2, 3]), np.array([9, 8, 7, 6])),
            [[1, 8, 7, 6], [2, 1, 8, 7], [3, 2, 1, 8]],
        )
        np.testing.assert_array_equal(run(tn.linalg.toeplitz)(np.array([1j, 2])), [[1j, 2], [2, 1j]])


def test_factors() -> None:
    x, b = RNG.normal(size=(4, 4)), RNG.normal(size=4)
    a = x @ x.T + np.eye(4)
    for lower in (False, True):
        solved = tn.jit(lambda a, b, lower=lower: tn.linalg.cho_solve(tn.linalg.cho_factor(a, lower), b))
        np.testing.assert_allclose(solved(a, b), la.solve(a, b))
        np.testing.assert_allclose(tn.linalg.cho_solve(tn.linalg.cho_factor(a, lower), b), la.solve(a, b))
        triangle = np.tril(a) if lower else np.triu(a)
        np.testing.assert_allclose(tn.linalg.solve_triangular(a, b, lower=lower), la.solve(triangle, b))
        np.testing.assert_allclose(tn.linalg.solve_triangular(a, b, "T", lower), la.solve(triangle.T, b))
