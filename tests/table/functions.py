"""Functions in which those rows stand that have no samples: linear algebra, control, lanes, and marks of
transformations. A row's name in, calls of every dtype that it takes out.

Factors of a matrix are unique up to signs or phases: results are made of them in which these cancel. Matrices that a
row takes for symmetric are made so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import tenferro as tn
from tests.table.ordinary import Array, Call, precision_of, spaced

Make = Callable[[np.dtype[Any]], Iterator[tuple[str, Callable[..., Any], tuple[Array, ...]]]]

EVERY = ("float16", "float32", "float64", "complex64", "complex128")
OF_LAPACK = EVERY[1:]


def matrix(dtype: np.dtype[Any], *shape: int, turn: int = 0) -> Array:
    """Well-conditioned matrices with values and singular values apart."""
    n = min(shape[-2:])
    eye = np.zeros(shape)
    eye[..., np.arange(n), np.arange(n)] = 1.5 + np.arange(n)
    return np.asarray(eye + 0.15 * spaced(shape, dtype, turn)).astype(dtype)


def small(dtype: np.dtype[Any], *shape: int) -> Array:
    """Numbers whose powers stay small."""
    return np.asarray(spaced(shape, dtype) * dtype.type(0.4))


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def definite(x: Any) -> Any:
    """A Hermitian matrix with eigenvalues above 1."""
    return x @ adjoint(x) + np.eye(x.shape[-1], dtype=x.dtype)


# -- linear algebra ---------------------------------------------------------------------------------------------------


def _cholesky(dtype: np.dtype[Any]) -> Any:
    yield "", lambda a: np.linalg.cholesky(definite(a)), (matrix(dtype, 2, 3, 3),)


def _eigh(dtype: np.dtype[Any]) -> Any:
    def function(a: Any) -> Any:
        values, vectors = np.linalg.eigh(definite(a))
        return values, (vectors * np.sin(values)[..., None, :]) @ adjoint(vectors)

    yield "", function, (matrix(dtype, 2, 3, 3),)


def _svd(dtype: np.dtype[Any]) -> Any:
    def function(a: Any) -> Any:
        u, s, v = np.linalg.svd(a, full_matrices=False)
        return s, (u * np.sin(s)[..., None, :]) @ v, u * np.conj(u), v * np.conj(v)

    yield "tall", function, (matrix(dtype, 2, 3, 2),)
    yield "wide", function, (matrix(dtype, 2, 3),)


def _qr(dtype: np.dtype[Any]) -> Any:
    yield "tall", lambda a: tuple(np.linalg.qr(a)), (matrix(dtype, 2, 3, 2),)
    yield "square", lambda a: tuple(np.linalg.qr(a)), (matrix(dtype, 2, 2),)


def _inv(dtype: np.dtype[Any]) -> Any:
    yield "", np.linalg.inv, (matrix(dtype, 2, 3, 3),)


def _slogdet(dtype: np.dtype[Any]) -> Any:
    yield "", lambda a: tuple(np.linalg.slogdet(a)), (matrix(dtype, 2, 3, 3),)


def _solve(dtype: np.dtype[Any]) -> Any:
    yield "a matrix", np.linalg.solve, (matrix(dtype, 3, 3), spaced((3, 2), dtype, 1))
    yield "a vector", np.linalg.solve, (matrix(dtype, 3, 3), spaced((3,), dtype, 1))


def _triangular_solve(dtype: np.dtype[Any]) -> Any:
    a, b = matrix(dtype, 3, 3), spaced((3, 2), dtype, 1)
    kinds = list(product((True, False), (2, 1, 0), (False, True)))
    for lower, trans, unit in kinds if dtype.kind == "f" else (kinds[0], kinds[-1]):

        def function(a: Any, b: Any, lower: bool = lower, trans: int = trans, unit: bool = unit) -> Any:
            return tn.linalg.triangular_solve(a, b, lower=lower, trans=trans, unit_diagonal=unit)

        yield f"lower={lower}, trans={trans}, unit={unit}", function, (a, b)


# -- control ----------------------------------------------------------------------------------------------------------


def _scan(dtype: np.dtype[Any]) -> Any:
    def turn(carry: Any, x: Any) -> Any:
        return carry * x + np.sin(carry), carry * carry

    xs, start = small(dtype, 4), spaced((2,), dtype, 1)[:1]
    yield "", lambda c, x: tn.lax.scan(turn, c, x), (start, xs)
    yield "backwards", lambda c, x: tn.lax.scan(turn, c, x, reverse=True), (start, xs)

    def matrices(w: Any, c: Any) -> Any:  # a body that is no single kernel
        return tn.lax.scan(lambda c, _: (np.sin(w @ c), c.sum()), c, None, length=3)

    yield "of products", matrices, (spaced((2, 2), dtype), spaced((2,), dtype, 1))


def _while(dtype: np.dtype[Any]) -> Any:
    def function(x: Any, y: Any) -> Any:
        def more(state: Any) -> Any:
            return (abs(state[0]) < 40).any() & (state[1] < 3)

        return tn.lax.while_loop(more, lambda state: (state[0] * y + np.sin(state[0]), state[1] + 1), (x, 0))[0]

    yield "", function, (small(dtype, 2), spaced((2,), dtype, 1))


def _cond(dtype: np.dtype[Any]) -> Any:
    def one(x: Any, y: Any) -> Any:
        return tn.lax.cond(x.real.sum() < 100, lambda a, b: np.sin(a) * b, lambda a, b: a - b, x, y)

    def of_many(x: Any, y: Any) -> Any:
        branches = [lambda a, b, k=k: np.sin(a) * b**k for k in range(3)]
        return [tn.lax.switch(k + (x.real > 1e4).sum(), branches, x, y) for k in range(3)]

    arguments = spaced((2,), dtype), spaced((2,), dtype, 1)
    yield "", one, arguments
    yield "switch", of_many, arguments


# -- lanes ------------------------------------------------------------------------------------------------------------


def _over_lanes(function: Callable[[Any], Any]) -> Make:
    def make(dtype: np.dtype[Any]) -> Any:
        yield "", tn.vmap(function, axis_name="i"), (small(dtype, 3, 2),)
        nested = tn.vmap(tn.vmap(function), axis_name="i")
        yield "in lanes", nested, (small(dtype, 3, 2, 2),)

    return make


# -- marks ------------------------------------------------------------------------------------------------------------


def _checkpoint(dtype: np.dtype[Any]) -> Any:
    inner = tn.checkpoint(lambda x: np.sin(x) * x, policy=tn.checkpoint_policies.save_only_these_names("kept"))
    yield "", lambda x: inner(tn.checkpoint_name(np.cos(x), "kept")) * x, (spaced((3,), dtype),)
    whole = tn.checkpoint(lambda x: tn.checkpoint_name(np.sin(x), "kept") * x)
    yield "with a name inside", whole, (spaced((3,), dtype),)


def _around(cube: Any, dtype: np.dtype[Any]) -> Any:
    yield "", lambda x: cube(np.sin(x)) * x, (spaced((3,), dtype),)
    yield "in lanes", tn.vmap(lambda x: cube(np.sin(x)) * x), (spaced((3, 2), dtype),)


def _in_a_loop(cube: Any, dtype: np.dtype[Any]) -> Any:
    around = lambda x: tn.lax.scan(lambda c, v: (cube(c) + v, c), x[0], x)[0]  # noqa: E731
    return "in a loop", around, (spaced((3,), dtype) * dtype.type(0.3),)


def _custom_jvp(dtype: np.dtype[Any]) -> Any:
    cube = tn.custom_jvp(lambda x: x * x * x)
    cube.defjvp(lambda primals, tangents: (cube(*primals), 3 * primals[0] ** 2 * tangents[0]))
    yield from _around(cube, dtype)
    yield _in_a_loop(cube, dtype)


def _custom_vjp(dtype: np.dtype[Any]) -> Any:
    cube = tn.custom_vjp(lambda x: x * x * x)
    cube.defvjp(lambda x: (cube(x), x), lambda x, ct: (3 * x * x * ct,))
    yield from _around(cube, dtype)
    yield _in_a_loop(cube, dtype)


def _custom_vmap(dtype: np.dtype[Any]) -> Any:
    cube = tn.custom_vmap(lambda x: x * x * x)
    cube.def_vmap(lambda size, batched, x: (x**3, True))
    yield from _around(cube, dtype)


FUNCTIONS: dict[str, tuple[tuple[str, ...], Make]] = {
    "cholesky": (OF_LAPACK, _cholesky),
    "triangular_solve": (OF_LAPACK, _triangular_solve),
    "solve": (OF_LAPACK, _solve),
    "inv": (OF_LAPACK, _inv),
    "slogdet": (OF_LAPACK, _slogdet),
    "eigh": (OF_LAPACK, _eigh),
    "qr": (OF_LAPACK, _qr),
    "svd": (OF_LAPACK, _svd),
    "scan": (EVERY, _scan),
    "while": (EVERY, _while),
    "cond": (EVERY, _cond),
    "lane_sum": (EVERY, _over_lanes(lambda x: np.sin(tn.psum(x * x, "i")) * x)),
    "lane_gather": (EVERY, _over_lanes(lambda x: (np.sin(tn.all_gather(x, "i")) * tn.all_gather(x, "i")[::-1]).sum(0))),
    "checkpoint": (EVERY, _checkpoint),
    "custom_jvp": (EVERY, _custom_jvp),
    "custom_vjp": (EVERY, _custom_vjp),
    "custom_vmap": (EVERY, _custom_vmap),
}
"""By row: the dtypes that it takes, and calls."""
WITH = {"checkpoint": ("checkpoint_name",), "custom_vjp": ("custom_vjp_linear",)}
"""Rows that the functions of another one have as well."""
ONLY_REVERSE = ("custom_vjp",)
"""Its rule says nothing about forward mode."""


def function_calls(name: str, dtype: str) -> list[Call]:
    """All in float64, of linear algebra in complex128 too; otherwise the first."""
    dtypes, make = FUNCTIONS[name]
    all_of_them = dtype == "float64" or (dtype == "complex128" and dtypes is OF_LAPACK)
    calls = [
        Call(f"{name} {what}".strip(), function, xs, precision_of(xs)) for what, function, xs in make(np.dtype(dtype))
    ]
    return calls if all_of_them else calls[:1]
