"""PyTorch: eager, and ``torch.compile`` where its C++ toolchain works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.case import Array, ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer


def heat(u: Any) -> Any:
    out = u.clone()
    c = u[1:-1, 1:-1]
    out[1:-1, 1:-1] = c + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * c)
    return out


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return torch.addmm(b2, torch.relu(torch.addmm(b1, x, w1)), w2)


def softmax(x: Any) -> Any:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def softmax_axis0(x: Any) -> Any:
    e = torch.exp(x - x.amax(0, keepdim=True))
    return e / e.sum(0, keepdim=True)


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * gain + bias


def where_chain(x: Any, y: Any) -> Any:
    return torch.where(x > y, x - y, torch.where(x < -y, x + y, torch.where(x > 0.0, 0.25 * x, 0.5 * x)))


# Written out: what torch.compile gets. Where the library has the whole function, eager uses that one.
FORMS: dict[str, Callable[..., Any]] = {
    "axpy": lambda x, y, z: 2.5 * x + y * z - 0.5,
    "gelu": lambda x: 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
    "log_return": lambda a, b, r, t: torch.log(a / b) * torch.sqrt(t) + torch.exp(-r * t),
    "where_chain": where_chain,
    "complex_mul": lambda x, y: x * y,
    "call": lambda x, y: x * y + x,
    "expsum": lambda x, y: torch.sum(torch.exp(-x * x) * torch.cos(y)),
    "softmax": softmax,
    "softmax_long": softmax,
    "softmax_axis0": softmax_axis0,
    "layer_norm": layer_norm,
    "var_all": lambda x: torch.var(x, correction=0),
    "sum_axis0": lambda x: x.sum(0),
    "mask_sum": lambda x: torch.where(x > 0, x, 0.0).sum(),
    "heat": heat,
    "x_plus_xT": lambda x: x + x.T,
    "mlp_1": mlp,
    "mlp_256": mlp,
    "batched_3x3": torch.matmul,
    "batched_4x4": torch.matmul,
    "max_all": torch.max,
    "argmax_all": torch.argmax,
    "embedding": lambda table, tokens: table[tokens],
}


def _gradient(loss: Callable[..., Any]) -> Callable[..., Any]:
    """By its first argument."""

    def gradient(x: Any, *rest: Any) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(loss(x, *rest), x)[0]

    return gradient


def mlp_grad(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, y: Any) -> Any:
    given = [p.detach().requires_grad_() for p in (w1, b1, w2, b2)]
    z = mlp(x, *given)
    loss = -(torch.log_softmax(z, 1) * y).sum() / x.shape[0]
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, given)])


FORMS |= {
    "gelu_grad": _gradient(lambda x: FORMS["gelu"](x).sum()),
    "lse_grad": _gradient(lambda x: torch.logsumexp(x, -1).sum()),
    "norm_grad": _gradient(lambda x, w: (layer_norm(x, 1.0, 0.0) * w).sum()),
    "mlp_grad": mlp_grad,
    "hand_ten": lambda x, y: torch.sqrt(x * x + y * y) * torch.exp(-x) + torch.tanh(x - y) / (1 + y * y),
}
LIBRARY: dict[str, Callable[..., Any]] = {
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax_long": lambda x: torch.softmax(x, -1),
    "softmax_axis0": lambda x: torch.softmax(x, 0),
    "layer_norm": lambda x, gain, bias: torch.nn.functional.layer_norm(x, x.shape[-1:], gain, bias, 1e-5),
    "mask_sum": lambda x: x[x > 0].sum(),
    "embedding": lambda table, tokens: torch.nn.functional.embedding(tokens, table),
}


def compiler_works() -> bool:
    """Whether torch.compile can build and load a kernel here (it needs a C++ compiler)."""
    try:
        torch.compile(lambda x: torch.exp(x) + 1.0)(torch.ones(64))
    except Exception:  # its failures have no common class: missing compiler, headers, loader
        return False
    return True


class TorchPeer(Peer):
    name = "torch"

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self.compiles = compiler_works()

    def version(self) -> str:
        return str(torch.__version__)

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        tensors = [torch.from_numpy(x) for x in inputs]
        if case.name not in FORMS:
            return {}
        plain = FORMS[case.name]
        found: dict[str, Call] = {"eager": lambda: plain(*tensors)}
        if case.name in LIBRARY:
            whole = LIBRARY[case.name]
            found["eager, library function"] = lambda: whole(*tensors)
        if self.compiles:
            torch.compiler.reset()
            compiled = torch.compile(plain)
            found["torch.compile"] = lambda: compiled(*tensors)
        return found

    def array(self, result: Any, dtype: np.dtype[Any]) -> Array:
        array: Array = result.detach().numpy()
        return array
