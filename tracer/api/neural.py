"""Functions of networks and of statistics, as compositions: ``tenferro.nn`` and ``tenferro.special``.

Results keep the dtype of floats; integers count as float64. Slopes at kinks are those of ``docs/gradients.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.api.record import API, TracedFunction
from tenferro.tracer.dim import Dim
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import OPS
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import as_traced, fresh


def _real(x: Any, name: str) -> Any:
    """The argument as a traced array of floats."""
    array = as_traced(running_trace(name), x, name)
    if array.dtype.kind == "c":
        raise DtypeError(f"{name}: dtype {array.dtype.name}; real numbers are needed{at(user_line())}")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _row(name: str, x: Any) -> Any:
    array = _real(x, name)
    trace = running_trace(name)
    return fresh(trace, trace.emit1(OPS[name], array.read()))


# -- activations -----------------------------------------------------------------------------------------------------


def relu(x: Any) -> Any:
    """max(x, 0), with slope 0 at 0."""
    x = _real(x, "relu")
    return np.where(x > 0, x, 0 * x)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)."""
    x = _real(x, "relu6")
    return np.where(x > 0, np.where(x < 6, x, 6 + 0 * x), 0 * x)


def expit(x: Any) -> Any:
    """1 / (1 + exp(−x)), exact for large |x| too."""
    x = _real(x, "expit")
    e = np.exp(np.where(x >= 0, -x, x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def log_sigmoid(x: Any) -> Any:
    """log(expit(x))."""
    return -softplus(-_real(x, "log_sigmoid"))


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    x = _real(x, "softplus")
    return np.logaddexp(x, 0 * x)


def silu(x: Any) -> Any:
    """x expit(x)."""
    x = _real(x, "silu")
    return x * expit(x)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x Φ(x), with the normal distribution's Φ; by way of tanh where ``approximate`` (Hendrycks and Gimpel 2016)."""
    x = _real(x, "gelu")
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x for positive x, alpha (exp(x) − 1) for others."""
    x = _real(x, "elu")
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0 * x, x)))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x for positive x, alpha (exp(x / alpha) − 1) for others."""
    x = _real(x, "celu")
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0 * x, x) / alpha))


def selu(x: Any) -> Any:
    """The self-normalising unit (Klambauer et al. 2017)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x for positive x, a small part of it for others."""
    x = _real(x, "leaky_relu")
    return np.where(x >= 0, x, negative_slope * x)


def hard_tanh(x: Any) -> Any:
    """x within −1 and 1."""
    x = _real(x, "hard_tanh")
    return np.where(x > 1, 1 + 0 * x, np.where(x < -1, -1 + 0 * x, x))


def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6."""
    return relu6(_real(x, "hard_sigmoid") + 3) / 6


def hard_silu(x: Any) -> Any:
    """x hard_sigmoid(x)."""
    x = _real(x, "hard_silu")
    return x * hard_sigmoid(x)


def soft_sign(x: Any) -> Any:
    """x / (1 + |x|)."""
    x = _real(x, "soft_sign")
    return x / (1 + abs(x))


def mish(x: Any) -> Any:
    """x tanh(softplus(x))."""
    x = _real(x, "mish")
    return x * np.tanh(softplus(x))


def glu(x: Any, axis: int = -1) -> Any:
    """The first half along an axis times expit of the second."""
    x = _real(x, "glu")
    if x.shape[axis] % 2:
        raise ShapeError(f"glu: axis {axis} of size {x.shape[axis]}; an even size is needed{at(user_line())}")
    a, b = np.split(x, 2, axis)
    return a * expit(b)


# -- rows that add up to something -----------------------------------------------------------------------------------


def _largest(x: Any, axis: Any, where: Any) -> Any:
    """The largest element, kept as an axis, as a constant; 0 where that is not finite."""
    given = x if where is None else np.where(where, x, -np.inf)
    most = given.max(axis=axis, keepdims=True)
    return _held(np.where(np.isfinite(most), most, 0 * most))


def _held(x: Any) -> Any:
    """The same values, constant to derivatives."""
    from tenferro.tracer.transform import marks  # made of the table of ops

    trace = running_trace("stop_gradient")
    return fresh(trace, trace.emit1(marks.stop_gradient, x.read()))


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """exp(x) over its sum along axes; elements outside of ``where`` take no part and give 0."""
    x = _real(x, "softmax")
    e = np.exp(x - _largest(x, axis, where))
    if where is not None:
        e = np.where(where, e, 0 * e)
    return e / e.sum(axis=axis, keepdims=True)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """The logarithm of ``softmax``; −inf outside of ``where``."""
    x = _real(x, "log_softmax")
    moved = x - _largest(x, axis, where)
    e = np.exp(moved) if where is None else np.where(where, np.exp(moved), 0 * x)
    found = moved - np.log(e.sum(axis=axis, keepdims=True))
    return found if where is None else np.where(where, found, -np.inf)


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, where: Any = None) -> Any:
    """log Σ b exp(a), without overflow."""
    x = _real(a, "logsumexp")
    axes = tuple(range(x.ndim)) if axis is None else axis
    if x.ndim == 0:
        return x if b is None else x + np.log(b)
    most = _largest(x, axes, where)
    e = np.exp(x - most)
    if b is not None:
        e = e * b
    if where is not None:
        e = np.where(where, e, 0 * e)
    found = np.log(e.sum(axis=axes, keepdims=True)) + most
    return found if keepdims else np.squeeze(found, axes)


def standardize(x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: float = 1e-5) -> Any:
    """(x − mean) / √(variance + epsilon) along axes."""
    x = _real(x, "standardize")
    mean = x.mean(axis=axis, keepdims=True) if mean is None else mean
    variance = x.var(axis=axis, keepdims=True) if variance is None else variance
    return (x - mean) / np.sqrt(variance + epsilon)


def one_hot(x: Any, num_classes: Any, dtype: Any = np.float64, axis: int = -1) -> Any:
    """1 at the place that each integer names along a new axis, 0 elsewhere; no place out of range is named."""
    x = as_traced(running_trace("one_hot"), x, "one_hot")
    if x.dtype.kind not in "iub":
        raise DtypeError(f"one_hot: dtype {x.dtype.name}; integers are needed{at(user_line())}")
    if not isinstance(num_classes, int | np.integer | Dim):
        raise ShapeError(f"one_hot: num_classes is {num_classes!r}; an int is needed{at(user_line())}")
    rank = x.ndim + 1
    where = axis % rank
    classes = API["arange"].function(num_classes).reshape((*(1,) * where, num_classes, *(1,) * (rank - 1 - where)))
    return (np.expand_dims(x.astype(np.int64), where) == classes).astype(dtype)


# -- special functions -----------------------------------------------------------------------------------------------


def logit(x: Any) -> Any:
    """log(x / (1 − x))."""
    x = _real(x, "logit")
    return np.log(x / (1 - x))


def erf(x: Any) -> Any:
    """The error function."""
    return _row("erf", x)


def erfc(x: Any) -> Any:
    """1 − erf(x); it loses digits where erf(x) is near 1."""
    return 1 - erf(x)


def erfinv(x: Any) -> Any:
    """The inverse of ``erf`` on (−1, 1)."""
    return _row("erfinv", x)


def ndtr(x: Any) -> Any:
    """The normal distribution's Φ."""
    return 0.5 * (1 + erf(_real(x, "ndtr") * math.sqrt(0.5)))


def xlogy(x: Any, y: Any) -> Any:
    """x log(y), which is 0 where x is 0."""
    x, y = _real(x, "xlogy"), _real(y, "xlogy")
    return np.where(x == 0, 0 * x, x * np.log(np.where(x == 0, 1 + 0 * y, y)))


def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), which is 0 where x is 0."""
    x, y = _real(x, "xlog1py"), _real(y, "xlog1py")
    return np.where(x == 0, 0 * x, x * np.log1p(np.where(x == 0, 0 * y, y)))


def entr(x: Any) -> Any:
    """−x log(x); 0 at 0, −inf below."""
    x = _real(x, "entr")
    return np.where(x < 0, -np.inf, -xlogy(x, x))


def rel_entr(x: Any, y: Any) -> Any:
    """x log(x / y); 0 where x is 0, inf outside of what distributions hold."""
    x, y = _real(x, "rel_entr"), _real(y, "rel_entr")
    inside = (x > 0) & (y > 0)
    found = xlogy(np.where(inside, x, 0 * x), np.where(inside, x, 1 + 0 * x) / np.where(inside, y, 1 + 0 * y))
    return np.where(inside, found, np.where((x == 0) & (y >= 0), 0 * x, np.inf))


def _records(*functions: tuple[Callable[..., Any], tuple[str, ...]]) -> dict[str, TracedFunction]:
    return {f.__name__: TracedFunction(f.__name__, f, arrays) for f, arrays in functions}


NN = _records(
    *((f, ("x",)) for f in (
        relu, relu6, log_sigmoid, softplus, silu, gelu, selu, hard_tanh, hard_sigmoid, hard_silu, soft_sign, mish, glu,
        one_hot,
    )),
    (elu, ("x", "alpha")), (celu, ("x", "alpha")), (leaky_relu, ("x", "negative_slope")), (softmax, ("x", "where")),
    (log_softmax, ("x", "where")), (logsumexp, ("a", "b", "where")), (standardize, ("x", "mean", "variance")),
)  # fmt: skip
NN |= {"sigmoid": TracedFunction("sigmoid", expit, ("x",))}
NN |= {alias: TracedFunction(alias, NN[name].function, NN[name].arrays) for alias, name in (
    ("swish", "silu"), ("hard_swish", "hard_silu"),
)}  # fmt: skip
SPECIAL = _records(
    *((f, ("x",)) for f in (expit, logit, erf, erfc, erfinv, ndtr, entr)),
    (logsumexp, ("a", "b", "where")), (xlogy, ("x", "y")), (xlog1py, ("x", "y")), (rel_entr, ("x", "y")),
    (softmax, ("x", "where")), (log_softmax, ("x", "where")),
)  # fmt: skip
