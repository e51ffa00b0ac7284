"""The trace itself: lines of operations, long functions, bounds that guards imply, entry and exit."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.bounds import Bounds
from tenferro.tracer.dims import Extent, add, floordiv, leaf, maximum, minimum, mod, mul, sub
from tenferro.tracer.entry import LeafSpec, trace_program
from tenferro.tracer.errors import DtypeError, LeakError, TraceError, UnrolledLoopWarning
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import ArrayType
from tenferro.tracer.trace import Trace, current_trace, running_trace
from tenferro.tracer.tree import flatten
from tests.tracer.tracing import op_names, traced


def _long(count: int) -> Any:
    body = "".join(f"    x = x * 1.01 + {k}.5\n    x = np.tanh(x)\n" for k in range(count))
    names: dict[str, Any] = {"np": np, "__name__": "generated"}
    exec(compile(f"def long(x):\n{body}    return x\n", "generated.py", "exec"), names)
    return names["long"]


def test_every_operation_has_its_line() -> None:
    result = traced(_long(600), np.ones(3, np.float32))
    lines = [o.line for o in result.program.operations]
    assert len(lines) == 1800
    assert [line.line for line in lines if line is not None] == [
        n for k in range(600) for n in (2 + 2 * k,) * 2 + (3 + 2 * k,)
    ]
    assert {(line.file, line.function) for line in lines if line is not None} == {("generated.py", "long")}


def test_tracing_is_linear_in_the_number_of_operations() -> None:
    def seconds(count: int) -> float:
        function = _long(count)
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            traced(function, np.ones(3, np.float32))
            best = min(best, time.process_time() - start)
        return best

    assert seconds(2000) < 3.0 * 4 * seconds(500)


def test_a_python_loop_that_unrolls_warns_at_its_line() -> None:
    def f(x: Any) -> Any:
        for _ in range(1001):
            x = x + 1
        return x

    with pytest.warns(
        UnrolledLoopWarning, match=r"f: more than 1000 operations traced from one line; .*keep the loop outside"
    ) as found:
        traced(f, np.ones(2))
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced(lambda x: sum((x + k for k in range(400)), x), np.ones(2))


N, M = leaf("extent", 0, 0), leaf("extent", 1, 0)


@pytest.mark.parametrize(
    ("extent", "interval"),
    [
        (N, (0, None)), (add(N, 3), (3, None)), (mul(N, -2), (None, 0)), (sub(N, M), (None, None)),
        (mul(N, M), (0, None)),
        (minimum(N, 5), (0, 5)), (maximum(sub(N, 2), 0), (0, None)), (mod(N, 4), (0, 3)), (floordiv(N, 2), (0, None)),
        (leaf("int", 2), (None, None)), (7, (7, 7)),
    ],
)  # fmt: skip
def test_intervals_without_guards(extent: Extent, interval: tuple[int | None, int | None]) -> None:
    assert Bounds().of(extent) == interval


def test_guards_tighten_intervals() -> None:
    bounds = Bounds()
    bounds.learn_at_least(sub(N, 3), 0)
    bounds.learn_at_least(sub(10, mul(N, 2)), 0)
    bounds.learn_at_least(sub(mul(M, 3), 4), 0)
    assert bounds.of(N) == (3, 5)
    assert bounds.of(M) == (2, None)
    assert bounds.of(sub(mul(N, 2), 1)) == (5, 9)
    assert bounds.of(mul(N, M)) == (6, None)


def test_inputs_come_in_the_order_of_leaves_then_as_met() -> None:
    first, second = np.ones(3), np.arange(3)
    table = np.linspace(0, 1, 3)

    def f(x: Any, n: int, s: float) -> Any:
        known = np.arange(3) * 2
        return x * second + known, x + first * s + n, table * x

    result = traced(f, np.ones(3), 4, 0.5)
    assert [i.kind for i in result.program.inputs] == [
        "argument", "int", "argument", "captured", "constant", "captured", "captured",
    ]  # fmt: skip
    assert [i.value.id for i in result.program.inputs] == list(range(7))
    assert [k for k, _ in result.captured] == [3, 5, 6]
    assert [k for k, _ in result.constants] == [4]
    ids = [o.outputs[0].id for o in result.program.operations]
    assert ids == list(range(7, 7 + len(ids)))
    assert result.program.inputs[2].value.type == ArrayType(np.dtype(np.float64), (), True)


def test_an_operation_after_the_end_is_refused() -> None:
    trace = Trace("f")
    value = trace.add_input(np.dtype(np.float32), (3,), "x")
    trace.alive = False
    with pytest.raises(LeakError, match=r"exp: the trace of f has ended"):
        trace.emit(pointwise.exp, (value,))
    with pytest.raises(
        TraceError, match=r"exp: no trace is running; call it inside a jitted function \(at .*test_trace"
    ):
        running_trace("exp")
    assert current_trace() is None


def test_an_array_of_another_trace_is_refused() -> None:
    def outer(x: Any) -> Any:
        return traced(lambda y: y + x, np.ones(3))

    with pytest.raises(LeakError, match=r"traced value float64\(.*: used after the trace of outer has ended"):
        traced(outer, np.ones(3))


def test_unsupported_arguments() -> None:
    spec = LeafSpec("array", "x['w']", np.dtype("U3"), (2,))
    with pytest.raises(DtypeError, match=r"x\['w'\]: dtype <U3; one of bool, int8 to int64"):
        trace_program(lambda x: x, [spec], lambda values: values[0], flatten, "f")


def test_foreign_byte_order_is_the_native_dtype() -> None:
    result = traced(lambda x: x + 1, np.ones(3, ">f4"))
    assert result.program.inputs[0].value.type.dtype == np.dtype("f4")
    assert op_names(result) == ["add"]
