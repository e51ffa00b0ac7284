"""``check_grads``: derivatives compared with differences of the function itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenferro.linearization import jvp, vjp
from tenferro.tracer.lines import at, user_line
from tenferro.tree import flatten, map as map_tree, paths

Tolerance = float | None
_TOLERANCES = {"float16": 3e-2, "float32": 2e-2, "float64": 1e-5}
"""Of comparisons, by the dtype of the real parts; differences are computed in the function's own."""
_STEPS = {"float16": 6e-2, "float32": 5e-3, "float64": 1e-5}


def check_grads(
    f: Callable[..., Any], args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None, rtol: Tolerance = None, eps: Tolerance = None,
) -> None:  # fmt: skip
    """Compare derivatives of ``f`` at ``args`` with central differences, in random directions.

    args: a tuple of pytrees of floats or complex numbers. order: up to which derivative (1 or more). modes: ``"fwd"``,
    ``"rev"`` or both. atol, rtol: tolerances (1e-5 in float64, 2e-2 in float32). eps: the step of the differences.

    AssertionError where they differ, with the largest difference and where it is."""
    if order < 1:
        raise ValueError(f"check_grads: order is {order}; 1 or more is needed{at(user_line())}")
    kinds = [modes] if isinstance(modes, str) else list(modes)
    if not kinds or set(kinds) - {"fwd", "rev"}:
        raise ValueError(f"check_grads: modes {modes!r}; 'fwd', 'rev' or both are needed{at(user_line())}")
    _check(f, tuple(args), order, kinds, _Tolerances(atol, rtol, eps), "")


class _Tolerances:
    def __init__(self, atol: Tolerance, rtol: Tolerance, eps: Tolerance) -> None:
        self._atol, self._rtol, self._eps = atol, rtol, eps

    def of(self, *dtypes: np.dtype[Any]) -> tuple[float, float]:
        """The absolute and the relative one for values of these dtypes."""
        found = max(_TOLERANCES.get(_real(d), 1e-5) for d in dtypes)
        return found if self._atol is None else self._atol, found if self._rtol is None else self._rtol

    def step(self, args: Any) -> float:
        """The step of the differences."""
        names = [_real(np.asarray(x).dtype) for x in flatten(args)[0]]
        return max((_STEPS.get(n, 1e-5) for n in names), default=1e-5) if self._eps is None else self._eps


def _real(dtype: np.dtype[Any]) -> str:
    return np.empty(0, dtype).real.dtype.name


def _check(
    f: Callable[..., Any], args: tuple[Any, ...], order: int, modes: Sequence[str], tolerances: _Tolerances, of: str
) -> None:  # fmt: skip
    if "fwd" in modes:
        _check_jvp(f, args, tolerances, f"JVP{of}")
        if order > 1:
            _check(partial(_jvp_of, f), (args, args), order - 1, modes, tolerances, f" of JVP{of}")
    if "rev" in modes:
        _check_vjp(f, args, tolerances, f"VJP{of}")
        if order > 1:
            _check(partial(_vjp_of, f), args, order - 1, modes, tolerances, f" of VJP{of}")


def _jvp_of(f: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    return jvp(f, primals, tangents)


def _vjp_of(f: Callable[..., Any], *args: Any) -> Any:
    value, pull = vjp(f, *args)
    return pull(value)


def _check_jvp(f: Callable[..., Any], args: tuple[Any, ...], tolerances: _Tolerances, what: str) -> None:
    rng = np.random.default_rng(0)
    tangents = _random_like(rng, args)
    value, slope = jvp(f, args, tangents)
    expected, wanted = f(*args), _differences(f, args, tangents, tolerances.step(args))
    _compare(value, expected, tolerances, f"value of {what}")
    _compare(slope, wanted, tolerances, what)


def _check_vjp(f: Callable[..., Any], args: tuple[Any, ...], tolerances: _Tolerances, what: str) -> None:
    rng = np.random.default_rng(1)
    tangents = _random_like(rng, args)
    value, pull = vjp(f, *args)
    _compare(value, f(*args), tolerances, f"value of {what}")
    cotangents = _random_like(rng, value)
    slopes = _differences(f, args, tangents, tolerances.step(args))
    mine, theirs = _product(tangents, pull(cotangents)), _product(slopes, cotangents)
    dtypes = [np.asarray(x).dtype for x in flatten((args, value))[0]]
    _compare(mine, theirs, tolerances, f"product with a tangent of {what}", dtypes)


def _random_like(rng: np.random.Generator, tree: Any) -> Any:
    def one(x: Any) -> Any:
        array = np.asarray(x)
        found = rng.standard_normal(array.shape)
        if array.dtype.kind == "c":
            found = found + 1j * rng.standard_normal(array.shape)
        return np.asarray(found).astype(array.dtype)[()]

    return map_tree(one, tree)


def _differences(f: Callable[..., Any], args: tuple[Any, ...], tangents: Any, step: float) -> Any:
    """``(f(x + h t / 2) - f(x - h t / 2)) / h``."""

    def moved(by: float) -> Any:
        def one(x: Any, t: Any) -> Any:
            array = np.asarray(x)
            return (array + array.dtype.type(by) * t).astype(array.dtype)[()]

        return f(*map_tree(one, args, tangents))

    return map_tree(lambda a, b: (np.asarray(a) - np.asarray(b)) / step, moved(step / 2), moved(-step / 2))


def _product(a: Any, b: Any) -> Any:
    """The real inner product of two pytrees, which pairs cotangents with tangents without conjugation."""
    pairs = zip(flatten(a)[0], flatten(b)[0], strict=True)
    return sum((np.sum(np.asarray(x) * np.asarray(y)).real for x, y in pairs), start=np.float64(0))


def _compare(
    found: Any, wanted: Any, tolerances: _Tolerances, what: str, dtypes: Sequence[np.dtype[Any]] = ()
) -> None:  # fmt: skip
    mine, definition = flatten(found)
    for x, y, path in zip(mine, flatten(wanted)[0], paths(definition), strict=True):
        a, b = np.asarray(x), np.asarray(y)
        atol, rtol = tolerances.of(*dtypes or (a.dtype, b.dtype))
        if a.shape == b.shape and np.allclose(a, b, atol=atol, rtol=rtol, equal_nan=True):
            continue
        largest = "shapes differ" if a.shape != b.shape else f"the largest difference is {np.max(np.abs(a - b)):.3g}"
        raise AssertionError(
            f"check_grads: {what}{path} is {a}, by differences {b}; {largest}, tolerances are atol={atol:g}, "
            f"rtol={rtol:g}{at(user_line())}"
        )
