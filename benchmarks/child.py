"""One measurement in a fresh process: ``python -m benchmarks.child KIND --peer P …`` prints one line of JSON.

``compile``: the first call of a function of N operations minus a warm call; ``compile_case``: that of an array case;
``sizes``: softmax at N sizes, in all; ``memory``: the peak of resident memory in three calls above what was resident.
Before the first three a trivial function of the same elementary functions is compiled (and, for ``compile_case``,
products of matrices), so that loading the compiler and starting the library count as ``startup``, for every peer alike.
tenferro compiles its elementary functions and its products there, which peers bring compiled or expand anew in every
function.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

TRANSCENDENTAL = ("tanh", "sin", "exp", "cos")
ELEMENTS = 4096


def chain_lines(operations: int) -> list[str]:
    """Assignments to ``v``, a third of them transcendental, of values that stay below 3 in magnitude. One a line: a
    loop that traces them all from one line would be warned about."""
    lines = []
    for k in range(operations):
        step = (f"{{xp}}.{TRANSCENDENTAL[k // 3 % 4]}(v)", "v * half", "v + x")[k % 3]
        lines.append(f"v = {step}")
    return lines


def chain_source(operations: int) -> str:
    body = "".join(f"    {line.format(xp='xp')}\n" for line in chain_lines(operations))
    return f"def chain(x):\n    half = 0.5\n    v = x\n{body}    return v\n"


def chain_loop_source(operations: int) -> str:
    """The same for numba: in one loop."""
    body = "".join(f"        {line.format(xp='xp').replace('+ x', '+ x[i]')}\n" for line in chain_lines(operations))
    return (
        "def chain(x):\n    half = x.dtype.type(0.5)\n    out = xp.empty_like(x)\n"
        f"    for i in range(x.size):\n        v = x[i]\n{body}        out[i] = v\n    return out\n"
    )


RESTARTED = {
    "tenferro": (
        "import numpy as xp\nimport tenferro as tn\ntn.threads({threads}).__enter__()\n", "@tn.jit\n", "x", "r",
    ),
    "jax": ("import jax\nimport jax.numpy as xp\n", "@jax.jit\n", "jax.device_put(x)", "numpy.asarray(r)"),
    "numba": ("import numba\nimport numpy as xp\n", "@numba.njit(cache=True)\n", "x", "r"),
    "torch": (
        "import torch\nimport torch as xp\ntorch.set_num_threads({threads})\n", "@torch.compile\n",
        "torch.from_numpy(x)", "r.numpy()",
    ),
}  # fmt: skip
"""How a module of each library begins, its decorator, how it takes an array and how it gives one."""
COMPILES = {"tenferro": "chain.cache_info().compiles", "jax": "chain._cache_size()"}
RESTART_REST = """

def first(x):
    r = chain({given})
    return {made}


def relative_error(found, x):
    scope = {{"xp": numpy}}
    exec({reference!r}, scope)
    expected = scope["chain"](x.astype(numpy.float64))
    return float(numpy.max(numpy.abs(found - expected)) / numpy.max(numpy.abs(expected)) / numpy.finfo(x.dtype).eps)


def compiles():
    return {compiles}
"""


def restart_source(peer: str, count: int, threads: int) -> str:
    """A module with the chain of so many operations under the library's decorator, and its first call."""
    head, decorator, given, made = RESTARTED[peer]
    chain = (chain_loop_source if peer == "numba" else chain_source)(count)
    rest = RESTART_REST.format(
        given=given, made=made, reference=chain_source(count), compiles=COMPILES.get(peer, '"null"')
    )
    return f"import numpy\n{head.format(threads=threads)}\n\n{decorator}{chain}{rest}"


SOFTMAX = """
def softmax(x):
    e = xp.exp(x - {max})
    return e / {sum}
"""
SOFTMAX_LOOP = """
def softmax(x):
    out = xp.empty_like(x)
    for i in range(x.shape[0]):
        m = x[i].max()
        total = x.dtype.type(0)
        for j in range(x.shape[1]):
            e = xp.exp(x[i, j] - m)
            out[i, j] = e
            total += e
        for j in range(x.shape[1]):
            out[i, j] /= total
    return out
"""


def define(source: str, name: str, namespace: Any, file: str = "<benchmark>") -> Callable[..., Any]:
    scope: dict[str, Any] = {"xp": namespace}
    exec(compile(source, file, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function


def softmax_source(peer: str) -> str:
    if peer == "numba":
        return SOFTMAX_LOOP
    if peer == "torch":
        return SOFTMAX.format(max="x.amax(-1, keepdim=True)", sum="e.sum(-1, keepdim=True)")
    return SOFTMAX.format(max="x.max(axis=-1, keepdims=True)", sum="e.sum(axis=-1, keepdims=True)")


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Compiler:
    """One library's jit: functions from source, arrays in its form, compile counts."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer = peer
        self.compiled: Any = None
        self.namespace: Any
        self.jit: Any
        match peer:
            case "tenferro":
                import tenferro as tn

                tn.threads(threads).__enter__()
                self.namespace, self.jit = np, tn.jit
            case "jax":
                import jax

                jax.config.update("jax_enable_x64", True)
                jax.config.update("jax_platforms", "cpu")
                self.namespace, self.jit = jax.numpy, jax.jit
            case "numba":
                import numba

                self.namespace, self.jit = np, numba.njit
            case "torch":
                import torch

                torch.set_num_threads(threads)
                self.namespace, self.jit = torch, torch.compile
            case "numpy":
                self.namespace, self.jit = np, _itself
            case _:
                raise ValueError(f"benchmarks.child: peer {peer!r} compiles no functions")

    def function(self, source: str, name: str) -> Callable[..., Any]:
        self.compiled = self.jit(define(source, name, self.namespace))
        return self.compiled  # type: ignore[no-any-return]

    def array(self, x: np.ndarray[Any, Any]) -> Any:
        if self.peer == "jax":
            return importlib.import_module("jax").device_put(x)
        if self.peer == "torch":
            return importlib.import_module("torch").from_numpy(x)
        return x

    def finish(self, result: Any) -> np.ndarray[Any, Any]:
        return np.asarray(result.block_until_ready() if self.peer == "jax" else result)

    def compiles(self) -> int | None:
        match self.peer:
            case "tenferro":
                return int(self.compiled.cache_info().compiles)
            case "jax":
                return int(self.compiled._cache_size())
            case "numba":
                return len(self.compiled.signatures)
            case _:
                return None


def start(peer: str, threads: int, dtype: Any) -> tuple[Compiler, float]:
    begin = time.perf_counter()
    compiler = Compiler(peer, threads)
    calls = " + ".join(f"{{xp}}.{name}(x)".format(xp="xp") for name in TRANSCENDENTAL)
    trivial = compiler.function(f"def trivial(x):\n    return {calls}\n", "trivial")
    compiler.finish(trivial(compiler.array(np.ones(8, dtype))))
    return compiler, time.perf_counter() - begin


def relative_error(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)) / np.finfo(found.dtype).eps)


def measure_compile(peer: str, count: int, dtype: Any, threads: int) -> dict[str, Any]:
    compiler, startup = start(peer, threads, dtype)
    function = compiler.function((chain_loop_source if peer == "numba" else chain_source)(count), "chain")
    data = np.linspace(-1.0, 1.0, ELEMENTS, dtype=dtype)
    x = compiler.array(data)
    seconds, result = first_less_warm(lambda: compiler.finish(function(x)))
    expected = define(chain_source(count), "chain", np)(data.astype(np.float64))
    error = relative_error(result, expected)
    return {"seconds": seconds, "startup": startup, "compiles": compiler.compiles(), "error": error}


def first_less_warm(call: Callable[[], Any]) -> tuple[float, Any]:
    """What the first call takes longer than the median of five more, and its result."""
    begin = time.perf_counter()
    result = call()
    first = time.perf_counter() - begin
    warm = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        warm.append(time.perf_counter() - begin)
    return first - sorted(warm)[2], result


def measure_case(peer: str, case_name: str, dtype: Any, threads: int) -> dict[str, Any]:
    from benchmarks.case import ArrayCase
    from benchmarks.cases import CASES
    from benchmarks.measure import widen
    from benchmarks.peers import load

    case = CASES[case_name]
    assert isinstance(case, ArrayCase)
    compiler, startup = start(peer, threads, dtype)
    begin = time.perf_counter()
    products = compiler.function("def products(x):\n    return (x @ x) @ x[:, :10]\n", "products")
    compiler.finish(products(compiler.array(np.ones((256, 256), dtype))))
    startup += time.perf_counter() - begin
    library, inputs = load(peer, threads), case.inputs(dtype, 1.0)
    (call,) = library.forms(case, inputs).values()
    seconds, result = first_less_warm(call)
    expected = np.asarray(case.function(*(widen(x) for x in inputs)))
    return {"seconds": seconds, "startup": startup, "error": relative_error(library.array(result, dtype), expected)}


def measure_sizes(peer: str, count: int, dtype: Any, threads: int) -> dict[str, Any]:
    compiler, startup = start(peer, threads, dtype)
    function = compiler.function(softmax_source(peer), "softmax")
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((16 + k, 32 + 3 * k), dtype) for k in range(count)]
    arrays = [compiler.array(x) for x in data]
    begin = time.perf_counter()
    results = [compiler.finish(function(x)) for x in arrays]
    seconds = time.perf_counter() - begin
    reference = define(softmax_source("numpy"), "softmax", np)
    error = max(relative_error(r, reference(x.astype(np.float64))) for r, x in zip(results, data, strict=True))
    return {"seconds": seconds, "startup": startup, "compiles": compiler.compiles(), "error": error}


def measure_memory(peer: str, case_name: str, dtype: Any, threads: int, scale: float) -> dict[str, Any]:
    from benchmarks.case import ArrayCase
    from benchmarks.cases import CASES
    from benchmarks.measure import peak_rss, status_bytes
    from benchmarks.peers import load

    case = CASES[case_name]
    assert isinstance(case, ArrayCase)
    library = load(peer, threads)
    # Small arrays first, so that libraries, compilers and thread pools are resident before the measurement.
    for call in library.forms(case, case.inputs(dtype, 1e-3)).values():
        call()
    inputs = case.inputs(dtype, scale)
    before = status_bytes("VmRSS")
    peak = peak_rss()
    call = next(iter(library.forms(case, inputs).values()))
    for _ in range(3):
        call()
    return {"seconds": 0.0, "extra": max(0, peak() - before)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.child")
    parser.add_argument("kind", choices=("compile", "compile_case", "sizes", "memory"))
    parser.add_argument("--peer", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--case", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size-scale", type=float, default=1.0)
    args = parser.parse_args()
    dtype = np.dtype(args.dtype)
    match args.kind:
        case "compile":
            found = measure_compile(args.peer, args.count, dtype, args.threads)
        case "compile_case":
            found = measure_case(args.peer, args.case, dtype, args.threads)
        case "sizes":
            found = measure_sizes(args.peer, args.count, dtype, args.threads)
        case _:
            found = measure_memory(args.peer, args.case, dtype, args.threads, args.size_scale)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
