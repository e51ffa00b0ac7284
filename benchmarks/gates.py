"""In: results. Out: each gate, what was found, and whether it is met. A gate without a measurement is not met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from benchmarks.case import Case
from benchmarks.measure import Result
from benchmarks.report import Report, best_peer, floor, groups, of

Measure = Literal["best peer", "jax", "numpy", "numba", "floor", "compiles"]
BOTH = ("float32", "float64")


@dataclass(frozen=True)
class Gate:
    """``best peer``, ``jax``, ``numpy`` and ``numba``: their time over tenferro's, at least ``bound``. ``floor``:
    tenferro's time over that of the copy, at most ``bound``. ``compiles``: tenferro's, at most ``bound``."""

    case: str
    dtypes: tuple[str, ...]
    measure: Measure
    bound: float


GATES = (
    Gate("axpy", BOTH, "best peer", 1.8),
    Gate("axpy", BOTH, "floor", 1.2),
    Gate("where_chain", BOTH, "best peer", 1.8),
    Gate("where_chain", BOTH, "floor", 1.2),
    Gate("heat", BOTH, "best peer", 1.0),
    Gate("gelu", BOTH, "best peer", 2.5),
    Gate("expsum", ("float32",), "best peer", 1.0),
    Gate("expsum", ("float64",), "best peer", 2.0),
    Gate("log_return", ("float32",), "best peer", 1.5),
    Gate("log_return", ("float64",), "best peer", 2.5),
    Gate("softmax", BOTH, "best peer", 2.0),
    Gate("layer_norm", BOTH, "best peer", 2.0),
    Gate("var_all", BOTH, "best peer", 2.0),
    Gate("softmax_axis0", BOTH, "best peer", 2.0),
    Gate("softmax_long", BOTH, "best peer", 2.0),
    Gate("x_plus_xT", BOTH, "best peer", 3.0),
    Gate("sum_axis0", BOTH, "best peer", 1.2),
    Gate("mlp_1", ("float32",), "best peer", 1.0),
    Gate("mlp_256", ("float32",), "best peer", 1.0),
    Gate("batched_3x3", BOTH, "numpy", 5.0),
    Gate("batched_4x4", BOTH, "numpy", 5.0),
    Gate("max_all", ("float32",), "best peer", 1.0),
    Gate("argmax_all", ("float32",), "best peer", 1.0),
    Gate("embedding", BOTH, "best peer", 1.0),
    Gate("gelu_grad", BOTH, "best peer", 1.5),
    Gate("lse_grad", BOTH, "best peer", 1.5),
    Gate("norm_grad", BOTH, "best peer", 1.5),
    Gate("mlp_grad", ("float32",), "jax", 1.0),
    Gate("mlp_grad", ("float64",), "jax", 1.5),
    Gate("rnn", BOTH, "jax", 1.0),
    Gate("rnn_grad", BOTH, "jax", 1.0),
    Gate("lorenz", BOTH, "jax", 1.0),
    Gate("count_10m", BOTH, "numba", 0.83),
    Gate("leaves_grad", BOTH, "jax", 10.0),
    Gate("mandelbrot", BOTH, "jax", 2.0),
    Gate("random_uniform", ("float32",), "jax", 2.0),
    Gate("random_uniform", ("float32",), "numpy", 2.0),
    Gate("random_normal", ("float32",), "jax", 2.0),
    Gate("random_normal", ("float32",), "numpy", 2.0),
    Gate("compile_30", BOTH, "jax", 5.0),
    Gate("compile_3000", BOTH, "jax", 4.0),
    Gate("compile_mlp_grad", BOTH, "jax", 5.0),
    Gate("many_sizes", BOTH, "jax", 100.0),
    Gate("many_sizes", BOTH, "compiles", 1.0),
    Gate("restart_100", BOTH, "jax", 5.0),
    Gate("call", BOTH, "jax", 1.0),
    Gate("import", ("",), "best peer", 1.0),
)


def found(gate: Gate, results: Sequence[Result], case: Case | None) -> float | None:
    """The gate's measure, None where there is no time to take it from."""
    mine = of(results, "tenferro")
    if mine is None or mine.status != "ok" or not mine.seconds:
        return None
    match gate.measure:
        case "floor":
            text = floor(results)
            return float(text) if text else None
        case "compiles":
            return None if mine.compiles is None else float(mine.compiles)
        case "best peer" | "jax" | "numpy" | "numba":
            peer = best_peer(results, case) if gate.measure == "best peer" else of(results, gate.measure)
            if peer is None or peer.status != "ok" or peer.seconds is None:
                return None
            return peer.seconds / mine.seconds
        case _:
            assert_never(gate.measure)


def gate_rows(report: Report, cases: Mapping[str, Case]) -> list[list[str]]:
    """A table of the gates whose cases were run."""
    table = [["case", "dtype", "against", "gate", "found", "met"]]
    grouped = groups(report.results)
    for gate in GATES:
        for dtype in gate.dtypes:
            results = grouped.get((gate.case, dtype))
            if results is None:
                continue
            value = found(gate, results, cases.get(gate.case))
            at_least = gate.measure not in ("floor", "compiles")
            met = value is not None and (value >= gate.bound if at_least else value <= gate.bound)
            shown = "not measured" if value is None else f"{value:.2f}"
            table.append(
                [
                    gate.case,
                    dtype,
                    gate.measure,
                    f"{'≥' if at_least else '≤'} {gate.bound:g}",
                    shown,
                    "yes" if met else "no",
                ]
            )
    return table
