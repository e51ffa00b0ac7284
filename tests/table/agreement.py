"""How two arrays are compared: actual and expected in, an explanation out where they disagree (else None)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Agreement

Array = np.ndarray[Any, Any]
FLOAT_OF_COMPLEX = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


def _real_parts(x: Array) -> Array:
    """The array itself, or its real and imaginary parts along a new last axis."""
    part = FLOAT_OF_COMPLEX.get(x.dtype)
    return np.array(x, order="C").reshape((*x.shape, 1)).view(part) if part is not None else x


def canonical_bytes(x: Array) -> Array:
    """Bits as unsigned integers, every NaN as one value."""
    parts = np.array(_real_parts(np.asarray(x)), order="C")
    if parts.dtype.kind == "f":
        parts = np.where(np.isnan(parts), np.array(np.nan, parts.dtype), parts)
        return parts.view(f"u{parts.dtype.itemsize}")
    return parts


def same_type(actual: Array, expected: Array) -> str | None:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{actual.shape}; expected {expected.dtype}{expected.shape}"
    return None


def _first(differs: Array, actual: Array, expected: Array) -> str | None:
    if not differs.any():
        return None
    where = tuple(int(i) for i in np.argwhere(differs)[0])
    found = f"{actual[where]!r}; expected {expected[where]!r}"
    return f"{int(differs.sum())} of {differs.size} differ, first at {where}: {found}"


def bits(actual: Array, expected: Array) -> str | None:
    """Equal dtype, shape and bits; all NaNs count as one value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    wrong = same_type(actual, expected)
    if wrong or not actual.size:
        return wrong
    return _first(canonical_bytes(actual) != canonical_bytes(expected), _real_parts(actual), _real_parts(expected))


def values(actual: Array, expected: Array) -> str | None:
    """Equal dtype, shape and values; zeros of either sign are equal, and so are complex numbers with a NaN in either
    part (which of several a maximum hands on depends on the order in which it meets them)."""
    wrong = same_type(actual, expected)
    if wrong:
        return wrong
    with np.errstate(invalid="ignore"):
        same = (actual == expected) | ((actual != actual) & (expected != expected))
    return _first(~same, actual, expected)


def close(actual: Array, expected: Array, *, epsilons: float, scale: Array | float | None = None) -> str | None:
    """Within ``epsilons`` machine epsilons of ``scale`` (by default the expected magnitude), where both are finite;
    equal elsewhere."""
    wrong = same_type(actual, expected)
    if wrong or actual.dtype.kind not in "fc":
        return wrong or bits(actual, expected)
    info = np.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        magnitude = np.abs(expected) if scale is None else np.maximum(np.abs(expected), scale)
        bound = epsilons * (float(info.eps) * magnitude.astype(np.float64) + float(info.smallest_subnormal))
        wide = np.dtype(np.complex128 if actual.dtype.kind == "c" else np.float64)
        error = np.abs(actual.astype(wide) - expected.astype(wide))
        finite = np.isfinite(actual) & np.isfinite(expected)
        same = np.where(finite, error <= bound, (actual == expected) | (np.isnan(actual) & np.isnan(expected)))
    return _first(~same, actual, expected)


def ulps(actual: Array, exact: Any, dtype: np.dtype[Any]) -> Array:
    """The error of real values in units of the last place of the exact value; ``exact`` has more digits than dtype.

    One ulp at y in [2^e, 2^(e+1)) is the spacing of dtype there: 2^(max(e, e_min) − p + 1)."""
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):  # a NaN that signals warns when it is widened
        wide = np.asarray(exact, np.longdouble)
        _, exponent = np.frexp(np.abs(wide))
        least = int(info.minexp) - int(info.nmant)
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - 1 - int(info.nmant), least).astype(np.int32))
        rounded = wide.astype(dtype)
        error = np.abs(np.asarray(actual, np.longdouble) - wide) / unit
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        return np.where(same, np.where(np.isfinite(rounded), error, 0), np.where(np.isfinite(error), error, np.inf))


def by_agreement(kind: Agreement, actual: Array, expected: Array, operands: tuple[Array, ...]) -> str | None:
    """The comparison that a row's ``agreement`` names. Elementary functions of real operands have their own test
    (``test_accuracy``); here a wide bound against NumPy, whose own error counts too."""
    match kind:
        case "bits":
            return bits(actual, expected)
        case "values":
            return values(actual, expected)
        case "elementary":
            return _complex_or(actual, expected, epsilons=4)
        case "larger":
            with np.errstate(all="ignore"):
                return close(actual, expected, epsilons=4, scale=np.maximum(*(np.abs(x) for x in operands)))
        case "complex":
            is_complex = any(x.dtype.kind == "c" for x in operands)
            return _complex_or(actual, expected, epsilons=8) if is_complex else bits(actual, expected)
        case "drawn":
            with np.errstate(all="ignore"):
                return close(actual, expected, epsilons=64, scale=np.maximum(1.0, np.abs(operands[-1])))
        case "sum":
            total = float(sum(np.abs(x.astype(np.complex128)).sum() for x in operands))
            return close(actual, expected, epsilons=4, scale=total)
        case "factors":
            count = operands[0].size // max(1, expected.size)
            return _complex_or(actual, expected, epsilons=4 * count + 4)
        case "deviations":
            squares = float(sum((np.abs(x.astype(np.complex128)) ** 2).sum() for x in operands))
            return close(actual, expected, epsilons=8, scale=squares)
        case "product":
            a, b = (np.abs(x).astype(np.float64) for x in operands)
            return close(actual, expected, epsilons=2 * a.shape[-1] + 2, scale=np.matmul(a, b))


def _complex_or(actual: Array, expected: Array, *, epsilons: float) -> str | None:
    """Normwise for complex; only where operands' formulas do not overflow: elsewhere NumPy's own values depend on the
    instruction set it was built for."""
    wrong = same_type(actual, expected)
    if wrong or actual.dtype.kind != "c":
        return wrong or close(actual, expected, epsilons=epsilons)
    finite = np.isfinite(actual) & np.isfinite(expected)
    return close(actual[finite], expected[finite], epsilons=epsilons)
