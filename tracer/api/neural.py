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


def real_array(x: Any, name: str) -> Any:
    """The argument as a traced array of floats."""
    array = as_traced(running_trace(name), x, name)
    if array.dtype.kind == "c":
        raise DtypeError(f"{name}: dtype {array.dtype.name}; real numbers are needed{at(user_line())}")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _row(name: str, x: Any) -> Any:
    array = real_array(x, name)
    trace = running_trace(name)
    return fresh(trace, trace.emit1(OPS[name], array.read()))


# -- activations -----------------------------------------------------------------------------------------------------


def relu(x: Any) -> Any:
    """max(x, 0), with slope 0 at 0."""
    x = real_array(x, "relu")
    return np.where(x <= 0, 0.0, x)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)."""
    x = real_array(x, "relu6")
    return np.where(x <= 0, 0.0, np.where(x >= 6, 6.0, x))


def expit(x: Any) -> Any:
    """1 / (1 + exp(−x)), exact for large |x| too."""
    x = real_array(x, "expit")
    e = np.exp(np.where(x >= 0, -x, x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def log_sigmoid(x: Any) -> Any:
    """log(expit(x))."""
    return -softplus(-real_array(x, "log_sigmoid"))


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    x = real_array(x, "softplus")
    return np.logaddexp(x, 0.0)


def silu(x: Any) -> Any:
    """x expit(x)."""
    x = real_array(x, "silu")
    return x * expit(x)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x Φ(x), with the normal distribution's Φ; by way of tanh where ``approximate`` (Hendrycks and Gimpel 2016)."""
    x = real_array(x, "gelu")
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x for positive x, alpha (exp(x) − 1) for others."""
    x = real_array(x, "elu")
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0.0, x)))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x for positive x, alpha (exp(x / alpha) − 1) for others."""
    x = real_array(x, "celu")
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0.0, x) / alpha))


def selu(x: Any) -> Any:
    """The self-normalising unit (Klambauer et al. 2017)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x for positive x, a small part of it for others."""
    x = real_array(x, "leaky_relu")
    return np.where(x >= 0, x, negative_slope * x)


def hard_tanh(x: Any) -> Any:
    """x within −1 and 1."""
    x = real_array(x, "hard_tanh")
    return np.where(x > 1, 1.0, np.where(x < -1, -1.0, x))


def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6."""
    return relu6(real_array(x, "hard_sigmoid") + 3) / 6


def hard_silu(x: Any) -> Any:
    """x hard_sigmoid(x)."""
    x = real_array(x, "hard_silu")
    return x * hard_sigmoid(x)


def soft_sign(x: Any) -> Any:
    """x / (1 + |x|)."""
    x = real_array(x, "soft_sign")
    return x / (1 + abs(x))


def mish(x: Any) -> Any:
    """x tanh(softplus(x))."""
    x = real_array(x, "mish")
    return x * np.tanh(softplus(x))


def glu(x: Any, axis: int = -1) -> Any:
    """The first half along an axis times expit of the second."""
    x = real_array(x, "glu")
    if x.shape[axis] % 2:
        raise ShapeError(f"glu: axis {axis} of size {x.shape[axis]}; an even size is needed{at(user_line())}")
    a, b = np.split(x, 2, axis)
    return a * expit(b)


def squareplus(x: Any, b: Any = 4.0) -> Any:
    """(x + √(x² + b)) / 2."""
    x = real_array(x, "squareplus")
    return 0.5 * (x + np.sqrt(x * x + b))


def sparse_plus(x: Any) -> Any:
    """0 up to −1, x from 1 on, (x + 1)² / 4 between."""
    x = real_array(x, "sparse_plus")
    return np.where(x <= -1, 0.0, np.where(x >= 1, x, 0.25 * (x + 1) * (x + 1)))


def sparse_sigmoid(x: Any) -> Any:
    """(x + 1) / 2 within 0 and 1."""
    x = real_array(x, "sparse_sigmoid")
    return np.where(x <= -1, 0.0, np.where(x >= 1, 1.0, 0.5 * (x + 1)))


def tanh(x: Any) -> Any:
    """``numpy.tanh`` of real numbers."""
    return np.tanh(real_array(x, "tanh"))


def identity(x: Any) -> Any:
    """The same numbers."""
    return as_traced(running_trace("identity"), x, "identity").copy()


def log1mexp(x: Any) -> Any:
    """log(1 − exp(−x)) for positive x (Mächler 2012, "Accurately computing log(1 − exp(−|a|))")."""
    x = real_array(x, "log1mexp")
    is_small = x < math.log(2)
    near, far = np.where(is_small, x, 1.0), np.where(is_small, 1.0, x)
    return np.where(is_small, np.log(-np.expm1(-near)), np.log1p(-np.exp(-far)))


# -- rows that add up to something -----------------------------------------------------------------------------------


def _largest(x: Any, axis: Any, where: Any) -> Any:
    """The largest element, kept as an axis, as a constant; 0 where that is not finite."""
    given = x if where is None else np.where(where, x, -np.inf)
    most = given.max(axis=axis, keepdims=True)
    return _held(np.where(np.isfinite(most), most, 0.0))


def _held(x: Any) -> Any:
    """The same values, constant to derivatives."""
    from tenferro.tracer.transform import marks  # made of the table of ops

    trace = running_trace("stop_gradient")
    return fresh(trace, trace.emit1(marks.stop_gradient, x.read()))


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """exp(x) over its sum along axes; elements outside of ``where`` take no part and give 0."""
    x = real_array(x, "softmax")
    e = np.exp(x - _largest(x, axis, where))
    if where is not None:
        e = np.where(where, e, 0.0)
    return e / e.sum(axis=axis, keepdims=True)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """The logarithm of ``softmax``; −inf outside of ``where``."""
    x = real_array(x, "log_softmax")
    moved = x - _largest(x, axis, where)
    e = np.exp(moved) if where is None else np.where(where, np.exp(moved), 0.0)
    found = moved - np.log(e.sum(axis=axis, keepdims=True))
    return found if where is None else np.where(where, found, -np.inf)


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, where: Any = None) -> Any:
    """log Σ b exp(a), without overflow."""
    x = real_array(a, "logsumexp")
    axes = tuple(range(x.ndim)) if axis is None else axis
    if x.ndim == 0:
        return x if b is None else x + np.log(b)
    most = _largest(x, axes, where)
    e = np.exp(x - most)
    if b is not None:
        e = e * b
    if where is not None:
        e = np.where(where, e, 0.0)
    found = np.log(e.sum(axis=axes, keepdims=True)) + most
    return found if keepdims else np.squeeze(found, axes)


def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """The logarithm of the mean of exp(x), without overflow."""
    x = real_array(x, "logmeanexp")
    counted = np.ones_like(x) if where is None else np.where(where, np.ones_like(x), 0.0)
    total = logsumexp(x, axis, None, keepdims, where)
    return total - np.log(counted.sum(axis=axis, keepdims=keepdims))


def dot_product_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *, scale: Any = None, is_causal: bool = False
) -> Any:  # fmt: skip
    """softmax(scale q kᵀ + bias) v for each head: q of shape (batch, t, heads, size), k and v of (batch, s, heads,
    size), or all without batch; fewer heads of k and v serve several each. mask: what of (batch, heads, t, s) takes
    part; is_causal: nothing that comes later does. scale: 1 / √size by default."""
    q, k, v = (real_array(x, "dot_product_attention") for x in (query, key, value))
    if q.ndim == 3:
        q, k, v = (x[None] for x in (q, k, v))
        return dot_product_attention(q, k, v, bias, mask, scale=scale, is_causal=is_causal)[0]
    shared, odd = divmod(q.shape[2], k.shape[2])
    if odd:
        raise ShapeError(
            f"dot_product_attention: {q.shape[2]} heads of queries for {k.shape[2]} of keys; a multiple is "
            f"needed{at(user_line())}"
        )
    k, v = (np.repeat(x, shared, axis=2) for x in (k, v))
    scores = np.einsum("btnh,bsnh->bnts", q, k) * (1 / np.sqrt(q.shape[3]) if scale is None else scale)
    scores = (scores if bias is None else scores + bias).astype(q.dtype)
    least = 0.7 * float(np.finfo(q.dtype).min)
    if mask is not None:
        scores = np.where(mask, scores, least)
    if is_causal:
        t, s = API["arange"].function(q.shape[1]), API["arange"].function(k.shape[1])
        scores = np.where(t[:, None] >= s, scores, least)
    return np.einsum("bnts,bsnh->btnh", softmax(scores), v)


def standardize(x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: float = 1e-5) -> Any:
    """(x − mean) / √(variance + epsilon) along axes."""
    x = real_array(x, "standardize")
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
    x = real_array(x, "logit")
    return np.log(x / (1 - x))


def erf(x: Any) -> Any:
    """The error function."""
    return _row("erf", x)


def erfinv(x: Any) -> Any:
    """The inverse of ``erf`` on (−1, 1)."""
    return _row("erfinv", x)


def xlogy(x: Any, y: Any) -> Any:
    """x log(y), which is 0 where x is 0."""
    x, y = real_array(x, "xlogy"), real_array(y, "xlogy")
    return np.where(x == 0, 0.0, x * np.log(np.where(x == 0, 1.0, y)))


def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), which is 0 where x is 0."""
    x, y = real_array(x, "xlog1py"), real_array(y, "xlog1py")
    return np.where(x == 0, 0.0, x * np.log1p(np.where(x == 0, 0.0, y)))


def entr(x: Any) -> Any:
    """−x log(x); 0 at 0, −inf below."""
    x = real_array(x, "entr")
    return np.where(x < 0, -np.inf, -xlogy(x, x))


def rel_entr(x: Any, y: Any) -> Any:
    """x log(x / y); 0 where x is 0, inf outside of what distributions hold."""
    x, y = real_array(x, "rel_entr"), real_array(y, "rel_entr")
    inside = (x > 0) & (y > 0)
    p, q = np.where(inside, x, 1.0), np.where(inside, y, 1.0)
    ratio = p / q
    is_far = (ratio < np.finfo(ratio.dtype).tiny) | (ratio == np.inf)
    found = p * np.where(is_far, np.log(p) - np.log(q), np.log(np.where(is_far, 1.0, ratio)))
    return np.where(inside, found, np.where((x == 0) & (y >= 0), 0.0, np.inf))


def records(*functions: tuple[Callable[..., Any], tuple[str, ...]]) -> dict[str, TracedFunction]:
    """Functions and their parameters that hold arrays, by name."""
    return {f.__name__: TracedFunction(f.__name__, f, arrays) for f, arrays in functions}


NN = records(
    *((f, ("x",)) for f in (
        relu, relu6, log_sigmoid, softplus, silu, gelu, selu, hard_tanh, hard_sigmoid, hard_silu, soft_sign, mish, glu,
        one_hot, sparse_plus, sparse_sigmoid, tanh, identity, log1mexp,
    )),
    (squareplus, ("x", "b")), (logmeanexp, ("x", "where")),
    (dot_product_attention, ("query", "key", "value", "bias", "mask", "scale")),
    (elu, ("x", "alpha")), (celu, ("x", "alpha")), (leaky_relu, ("x", "negative_slope")), (softmax, ("x", "where")),
    (log_softmax, ("x", "where")), (logsumexp, ("a", "b", "where")), (standardize, ("x", "mean", "variance")),
)  # fmt: skip
NN |= {"sigmoid": TracedFunction("sigmoid", expit, ("x",))}
NN |= {alias: TracedFunction(alias, NN[name].function, NN[name].arrays) for alias, name in (
    ("swish", "silu"), ("hard_swish", "hard_silu"),
)}  # fmt: skip
OF_NETWORKS = records(
    *((f, ("x",)) for f in (expit, logit, erf, erfinv, entr)),
    (logsumexp, ("a", "b", "where")), (xlogy, ("x", "y")), (xlog1py, ("x", "y")), (rel_entr, ("x", "y")),
    (softmax, ("x", "where")), (log_softmax, ("x", "where")),
)  # fmt: skip
"""Functions of ``tenferro.special`` that stand here."""
