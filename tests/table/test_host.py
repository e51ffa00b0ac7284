"""Rows that call Python functions of the user's: typed as their references compute, the same on both engines, lanes as
a Python loop, and without a derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.op import Absent, Constant, Op
from tenferro.tracer.ops import OPS, host
from tenferro.tracer.program import ArrayType
from tests.running import ENGINES, executable, one_op, outputs_of
from tests.table.agreement import bits

ROWS: dict[str, Op] = {op.name: op for op in vars(host).values() if isinstance(op, Op)}
DTYPES = ("bool", "int8", "uint64", "float16", "float32", "float64", "complex64", "complex128")
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3, 2))


def test_they_stand_beside_the_table() -> None:
    """Programs on disk name rows of the table; a function has no name there."""
    assert ROWS and not set(ROWS) & set(OPS)


def call_of(name: str, dtype: str, shape: tuple[int, ...], lanes: int | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands and parameters: x + x of the first operand; of ``check`` a condition first, which holds."""
    rng = np.random.default_rng(len(shape))
    full = shape if lanes is None else (lanes, *shape)
    x = np.asarray(rng.integers(0, 2, full)).astype(dtype)
    seen = [] if name in ("check", "debug_callback") else [np.dtype(dtype)]
    run = (lambda *arrays: [np.add(arrays[0], arrays[0])]) if seen else (lambda *arrays: [])
    operands = (np.ones(full[: 0 if lanes is None else 1], bool), x) if name == "check" else (x,)
    params = {
        "call": host.HostCall("f", run), "dtypes": tuple(seen), "shapes": tuple(full for _ in seen),
        "lanes": () if lanes is None else ((True,) * len(operands),), "extents": () if lanes is None else (lanes,),
        "method": "sequential",
    }  # fmt: skip
    return operands, params


@pytest.mark.parametrize("lanes", [None, 0, 1, 4])
@pytest.mark.parametrize("name", ROWS)
def test_engines_and_types(name: str, lanes: int | None) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            operands, params = call_of(name, dtype, shape, lanes)
            types = [ArrayType(x.dtype, x.shape) for x in operands]
            expected = ROWS[name].reference(*operands, **params)
            for engine in ENGINES:
                found = outputs_of(executable(one_op(ROWS[name], types, params), engine), operands)
                assert [bits(np.asarray(a), e) for a, e in zip(found, expected, strict=True)] == [None] * len(expected)


@pytest.mark.parametrize("name", ROWS)
def test_lanes_are_calls_in_turn(name: str) -> None:
    operands, params = call_of(name, "float64", (2,), 3)
    seen: list[Any] = []
    run = params["call"].run
    params["call"] = host.HostCall("f", lambda *arrays: (seen.append(arrays), run(*arrays))[1])
    found = ROWS[name].reference(*operands, **params)
    for lane, given in enumerate(seen):
        np.testing.assert_array_equal(given[-1], operands[-1][lane])
        for whole in found[: len(params["dtypes"])]:
            np.testing.assert_array_equal(whole[lane], 2 * operands[0][lane])
    assert len(seen) == (0 if name == "check" else 3)  # what holds is not asked lane by lane


def test_results_of_another_type_are_refused() -> None:
    operands, params = call_of("pure_callback", "float64", (2,), None)
    for result, text in ((np.ones(3), r"shape \(3,\); float64 of shape \(2,\)"), (np.ones(2, int), "is int64 of")):
        call = host.HostCall("f", lambda x, result=result: [result])
        with pytest.raises(tn.CallbackError, match=f"^f: the result .*{text}"):
            host.pure_callback.reference(*operands, **{**params, "call": call})


@pytest.mark.parametrize("name", ROWS)
def test_derivatives_say_what_gives_one(name: str) -> None:
    jvp = ROWS[name].jvp
    assert isinstance(jvp, Absent | Constant)
    if isinstance(jvp, Constant):
        return
    function: Any = tn.pure_callback if name == "pure_callback" else tn.io_callback
    like = tn.ShapeDtypeStruct((), np.float64)
    for transformed in (tn.grad, lambda f: tn.jit(tn.grad(f))):
        with pytest.raises(tn.TenferroError, match=r"custom_jvp or tn\.custom_vjp around .*\(at .*test_host\.py"):
            transformed(lambda x: function(np.sin, like, x) * x)(0.5)
