"""Element values that find mistakes: a dtype in, a small array of corner cases or of ordinary values out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

DTYPES: tuple[str, ...] = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def of_kinds(kinds: str) -> tuple[str, ...]:
    """The dtypes whose ``kind`` is one of the letters, narrowest first within each kind."""
    return tuple(name for name in DTYPES if np.dtype(name).kind in kinds)


def _float_corners(dtype: np.dtype[Any]) -> list[Any]:
    info = np.finfo(dtype)
    finite = [
        0.0,
        1.0,
        0.5,
        1.5,
        2.5,
        3.0,
        info.smallest_subnormal,
        info.tiny,
        info.max,
        info.eps,
        1 + info.eps,
        100.25,
    ]
    return [np.nan, np.inf, -np.inf] + [s * v for v in finite for s in (1, -1)]


def corners(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The values at which functions go wrong: zeros of both signs, nan, infinities, subnormals, extremes."""
    match dtype.kind:
        case "b":
            return np.array([False, True])
        case "i" | "u":
            info = np.iinfo(dtype)
            near = [info.min, info.min + 1, info.max - 1, info.max, info.max // 2, 0, 1, 2, 3, 7, 10, 100]
            return np.array(sorted({*near, *([-1, -2, -3, -7] if dtype.kind == "i" else [])}), dtype)
        case "f":
            return np.array(_float_corners(dtype), dtype)
        case _:
            part = np.dtype(f"f{dtype.itemsize // 2}")
            least, most = float(np.finfo(part).smallest_subnormal), float(np.finfo(part).max)
            parts = [0.0, -0.0, 1.0, -2.5, np.nan, np.inf, -np.inf, least, most]
            return np.array([complex(re, im) for re, im in itertools.product(parts, parts)], dtype)


def tame(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Finite values of moderate size, signed where the dtype is; exact in float16 too."""
    match dtype.kind:
        case "b":
            return np.array([False, True, True])
        case "u":
            return np.array([0, 1, 2, 3, 5, 9, 17], dtype)
        case "i":
            return np.array([0, 1, -1, 2, -3, 5, -9, 17], dtype)
        case "f":
            return np.array([0.25, -1.5, 2.0, -0.75, 3.5, 0.0, 1.125, -4.0, 0.625], dtype)
        case _:
            return np.array([0.25 - 1j, -1.5, 2j, -0.75 + 0.5j, 3.5 - 2.25j, 0.0, 1.125 + 1j], dtype)


def filled(shape: tuple[int, ...], dtype: str | np.dtype[Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """A C-ordered array of tame values in an order that depends on the seed."""
    pool = tame(np.dtype(dtype))
    return np.random.default_rng(seed).choice(pool, shape) if shape else np.array(pool[seed % len(pool)])


def uniform(shape: tuple[int, ...], dtype: str | np.dtype[Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """Values with full mantissas (normal distribution), or the dtype's whole range for integers."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    match dtype.kind:
        case "b":
            return np.asarray(rng.random(shape) < 0.5)
        case "i" | "u":
            info = np.iinfo(dtype)
            return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
        case "f":
            return np.asarray(rng.standard_normal(shape)).astype(dtype)
        case _:
            return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def factors(shape: tuple[int, ...], dtype: str | np.dtype[Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """Values whose products stay what they show: of either sign and near 1 in size, odd integers."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "biu":
        return uniform(shape, dtype, seed) | np.array(1, dtype)
    sizes = np.exp2(rng.standard_normal(shape) / 16)
    turns = rng.random(shape)
    return np.asarray(sizes * (np.exp(2j * np.pi * turns) if dtype.kind == "c" else np.sign(turns - 0.5))).astype(dtype)


def pairs(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Every value against every other: two arrays of the same length."""
    n = len(values)
    return np.repeat(values, n), np.tile(values, n)


def laid_out(values: np.ndarray[Any, Any], order: str) -> np.ndarray[Any, Any]:
    """The same values in memory ordered as C, F, every second element, backwards, or one element past an alignment."""
    shape, dtype = values.shape, values.dtype
    match order if values.ndim else "C":
        case "C":
            return np.array(values, order="C")
        case "F":
            return np.array(values, order="F")
        case "strided":
            out = np.zeros(tuple(2 * n for n in shape), dtype)[tuple(slice(None, None, 2) for _ in shape)]
        case "reversed":
            out = np.zeros(shape, dtype)[tuple(slice(None, None, -1) for _ in shape)]
        case "offset":
            out = np.zeros(values.size + 1, dtype)[1:].reshape(shape)
        case _:
            raise ValueError(f"no memory order {order!r}")
    out[...] = values
    return out
