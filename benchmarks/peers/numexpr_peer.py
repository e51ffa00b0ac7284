"""numexpr: strings. It reduces only at the outermost level, so row reductions are NumPy's between two expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numexpr as ne
import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer

# Constants are passed as arrays of the operands' dtype: written in the string, they would make float32 float64.
STRINGS: dict[str, tuple[str, str, dict[str, float]]] = {
    "axpy": ("xyz", "a * x + y * z - b", {"a": 2.5, "b": 0.5}),
    "gelu": (
        "x", "h * x * (one + tanh(c * (x + d * x * x * x)))",
        {"h": 0.5, "one": 1, "c": 0.7978845608028654, "d": 0.044715},
    ),
    "log_return": ("abrt", "log(a / b) * sqrt(t) + exp(-r * t)", {}),
    "where_chain": (
        "xy", "where(x > y, x - y, where(x < -y, x + y, where(x > o, p * x, q * x)))", {"o": 0, "p": 0.25, "q": 0.5},
    ),
    "complex_mul": ("xy", "x * y", {}),
    "call": ("xy", "x * y + x", {}),
    "expsum": ("xy", "sum(exp(-x * x) * cos(y))", {}),
    "sum_axis0": ("x", "sum(x, axis=0)", {}),
    "mask_sum": ("x", "sum(where(x > o, x, o))", {"o": 0}),
    "x_plus_xT": ("xt", "x + t", {}),
}  # fmt: skip


def softmax(x: Array, axis: int) -> Any:
    m = x.max(axis=axis, keepdims=True)
    e = ne.evaluate("exp(x - m)", {"x": x, "m": m})
    s = e.sum(axis=axis, keepdims=True)
    return ne.evaluate("e / s", {"e": e, "s": s}, out=e)


def layer_norm(x: Array, gain: Array, bias: Array) -> Any:
    names = {"x": x, "m": x.mean(axis=-1, keepdims=True), "gain": gain, "bias": bias}
    names["v"] = np.mean(ne.evaluate("(x - m) * (x - m)", names), axis=-1, keepdims=True) + x.dtype.type(1e-5)
    return ne.evaluate("(x - m) / sqrt(v) * gain + bias", names)


def var_all(x: Array) -> Any:
    return ne.evaluate("sum((x - m) * (x - m))", {"x": x, "m": x.mean()}) / x.size


def heat(u: Array) -> Any:
    out = u.copy()
    names = {"c": u[1:-1, 1:-1], "a": u[2:, 1:-1], "b": u[:-2, 1:-1], "d": u[1:-1, 2:], "e": u[1:-1, :-2]}
    names |= {"k": u.dtype.type(0.1), "four": u.dtype.type(4)}
    ne.evaluate("c + k * (a + b + d + e - four * c)", names, out=out[1:-1, 1:-1])
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: softmax(x, -1),
    "softmax_long": lambda x: softmax(x, -1),
    "softmax_axis0": lambda x: softmax(x, 0),
    "layer_norm": layer_norm,
    "var_all": var_all,
    "heat": heat,
}


class NumexprPeer(Peer):
    name = "numexpr"

    def __init__(self, threads: int) -> None:
        ne.set_num_threads(threads)

    def version(self) -> str:
        return str(ne.__version__)

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        if case.name in FUNCTIONS:
            function = FUNCTIONS[case.name]
            return {"evaluate and NumPy": lambda: function(*inputs)}
        if case.name not in STRINGS:
            return {}
        letters, text, constants = STRINGS[case.name]
        arrays = (*inputs, inputs[0].T) if case.name == "x_plus_xT" else inputs
        names: dict[str, Any] = dict(zip(letters, arrays, strict=True))
        names |= {k: inputs[0].dtype.type(v) for k, v in constants.items()}
        return {"evaluate": lambda: ne.evaluate(text, names)}

    def array(self, result: Any, dtype: np.dtype[Any]) -> Array:
        # It has no complex64: such operands give complex128.
        return np.asarray(result, dtype) if dtype == np.complex64 else np.asarray(result)
