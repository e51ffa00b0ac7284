"""First weights of networks by JAX's names: ``glorot_normal()(key, shape, dtype)`` and its like.

In: what the weights should be. Out: a function of a key, a shape and a dtype (float64 unless it is given, as in
``tn.random``) that draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro import linalg, numpy as tnp, random
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line

Initializer = Callable[..., Any]
_CUT = 0.87962566103423978
"""The standard deviation of normal numbers between -2 and 2."""


def zeros(key: Any, shape: Sequence[Any], dtype: Any = float) -> Any:
    """Zeros."""
    return tnp.zeros(shape, dtype)


def ones(key: Any, shape: Sequence[Any], dtype: Any = float) -> Any:
    """Ones."""
    return tnp.ones(shape, dtype)


def constant(value: Any, dtype: Any = float) -> Initializer:
    """One value everywhere, or an array that broadcasts to the shape."""

    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype) -> Any:
        return tnp.full(shape, value, dtype)

    return init


def uniform(scale: Any = 1e-2, dtype: Any = float) -> Initializer:
    """Uniform numbers in [0, scale)."""

    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype) -> Any:
        return random.uniform(key, shape, dtype) * _as(scale, dtype)

    return init


def normal(stddev: Any = 1e-2, dtype: Any = float) -> Initializer:
    """Normal numbers of this standard deviation."""

    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype) -> Any:
        return random.normal(key, shape, dtype) * _as(stddev, dtype)

    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = float, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """Normal numbers of this standard deviation, drawn within ``lower`` and ``upper`` of it."""

    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype) -> Any:
        return random.truncated_normal(key, lower, upper, shape, dtype) * _as(stddev, dtype)

    return init


def variance_scaling(
    scale: Any, mode: str, distribution: str, in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (),
    dtype: Any = float,
) -> Initializer:  # fmt: skip
    """Numbers of variance ``scale`` / n, where n is the number of inputs of a unit ("fan_in"), of outputs ("fan_out")
    or their mean ("fan_avg"); drawn "truncated_normal", "normal" or "uniform"."""

    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype) -> Any:
        inputs, outputs = _fans(tuple(shape), in_axis, out_axis, batch_axis)
        units = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}
        variance = scale / _one_of("mode", mode, units)
        draws = {"truncated_normal": _drawn_cut, "normal": _drawn, "uniform": _drawn_evenly}
        return _one_of("distribution", distribution, draws)(key, shape, dtype, variance)

    return init


def _drawn(key: Any, shape: Sequence[Any], dtype: Any, variance: Any) -> Any:
    return random.normal(key, shape, dtype) * _as(np.sqrt(variance), dtype)


def _drawn_cut(key: Any, shape: Sequence[Any], dtype: Any, variance: Any) -> Any:
    return random.truncated_normal(key, -2, 2, shape, dtype) * _as(np.sqrt(variance) / _CUT, dtype)


def _drawn_evenly(key: Any, shape: Sequence[Any], dtype: Any, variance: Any) -> Any:
    return random.uniform(key, shape, dtype, -1) * _as(np.sqrt(3 * variance), dtype)


def _as(x: Any, dtype: Any) -> Any:
    return tnp.asarray(x).astype(dtype) if isinstance(x, np.generic | np.ndarray) else x


def _one_of(name: str, given: str, known: dict[str, Any]) -> Any:
    if given not in known:
        raise TraceError(
            f"variance_scaling: {name} {given!r}; {', '.join(map(repr, known))} is needed{at(user_line())}"
        )
    return known[given]


def _fans(shape: tuple[Any, ...], in_axis: Any, out_axis: Any, batch_axis: Any) -> tuple[Any, Any]:
    """How many inputs and outputs a unit of weights of this shape has."""
    if len(shape) < 2:
        raise ShapeError(
            f"variance_scaling: weights of shape {shape}; at least two axes are needed, inputs and outputs"
            f"{at(user_line())}"
        )
    inputs, outputs, batch = (_size(shape, axes) for axes in (in_axis, out_axis, batch_axis))
    receptive = math.prod(shape) / inputs / outputs / batch
    return inputs * receptive, outputs * receptive


def _size(shape: tuple[Any, ...], axes: Any) -> Any:
    return math.prod(shape[a] for a in (axes if isinstance(axes, Sequence) else (axes,)))


def _scaled(scale: float, mode: str, distribution: str, summary: str) -> Callable[..., Initializer]:
    def make(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = float) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__doc__ = summary
    return make


glorot_uniform = xavier_uniform = _scaled(1.0, "fan_avg", "uniform", "Glorot's uniform weights.")
glorot_normal = xavier_normal = _scaled(1.0, "fan_avg", "truncated_normal", "Glorot's normal weights.")
lecun_uniform = _scaled(1.0, "fan_in", "uniform", "LeCun's uniform weights.")
lecun_normal = _scaled(1.0, "fan_in", "truncated_normal", "LeCun's normal weights.")
he_uniform = kaiming_uniform = _scaled(2.0, "fan_in", "uniform", "He's uniform weights.")
he_normal = kaiming_normal = _scaled(2.0, "fan_in", "truncated_normal", "He's normal weights.")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = float) -> Initializer:
    """Orthogonal columns, or rows where there are fewer of them; ``column_axis`` is that of the columns."""

    def init(key: Any, shape: Sequence[Any], dtype: Any = dtype) -> Any:
        if len(shape) < 2:
            raise ShapeError(f"orthogonal: weights of shape {shape}; at least two axes are needed{at(user_line())}")
        sizes = list(shape)
        columns = sizes.pop(column_axis)
        rows = math.prod(sizes)
        tall = (rows, columns) if rows > columns else (columns, rows)
        q, r = linalg.qr(random.normal(key, tall, dtype))
        q = q * np.sign(linalg.diagonal(r))
        q = q.T if rows < columns else q
        return scale * tnp.moveaxis(q.reshape(*sizes, columns), -1, column_axis)

    return init
