"""Every row on every engine: a program of one op, lowered, compiled and run, against the row's NumPy reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tenferro.engines.engine import Executable
from tenferro.tracer.dims import leaf
from tenferro.tracer.op import Library, Reduction
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType, Params
from tests.running import ENGINES, executable, one_op, outputs_of
from tests.samples import SAMPLES, Sample
from tests.table.agreement import bits, by_agreement
from tests.table.test_infer import reference
from tests.values import factors, laid_out, uniform

Array = np.ndarray[Any, Any]
SIZELESS = {"axes", "keepdims", "axis", "dtype", "mode", "extent"}


def _symbolic(op_name: str, sample: Sample) -> tuple[ArrayType, ...]:
    """Operand types whose sizes are symbols where the params hold no sizes, so that one program serves many samples.

    A pointwise op's operands of the same rank share their symbols. An axis along which the op repeats or joins keeps
    its own."""
    shared = OPS[op_name].form.__class__.__name__ == "Pointwise"
    return tuple(
        ArrayType(
            x.dtype, tuple(leaf("extent", _first_of_rank(sample, x.ndim) if shared else k, a) for a in range(x.ndim))
        )
        for k, x in enumerate(sample.operands)
    )


def _first_of_rank(sample: Sample, rank: int) -> int:
    return next(k for k, x in enumerate(sample.operands) if x.ndim == rank)


@cache
def _made(engine_id: str, op_name: str, types: tuple[ArrayType, ...], params: Params) -> Executable:
    return executable(one_op(OPS[op_name], types, dict(params)), engine_id)


def made_for(engine_id: str, op_name: str, sample: Sample) -> Executable:
    """Polymorphic in its sizes where the params hold none and the rule reads none."""
    form = OPS[op_name].form
    free = set(sample.params) <= SIZELESS and not isinstance(form, Library) and op_name not in ("matmul", "concatenate")
    types = _symbolic(op_name, sample) if free else tuple(ArrayType(x.dtype, x.shape) for x in sample.operands)
    return _made(engine_id, op_name, types, Params(**sample.params))


@pytest.mark.parametrize("engine_id", ENGINES)
@pytest.mark.parametrize("name", SAMPLES)
def test_row_agrees_with_its_reference(name: str, engine_id: str) -> None:
    wrong = []
    for sample in SAMPLES[name].samples:
        actual = outputs_of(made_for(engine_id, name, sample), sample.operands)
        for a, e in zip(actual, reference(name, sample), strict=True):
            problem = by_agreement(SAMPLES[name].agreement, np.asarray(a), e, sample.operands)
            if problem:
                wrong.append(f"{sample}: {problem}")
    assert not wrong, f"{len(wrong)} of {len(SAMPLES[name].samples)}\n" + "\n".join(wrong[:12])


@pytest.mark.parametrize("name", SAMPLES)
def test_outputs_are_fresh_and_operands_untouched(name: str) -> None:
    for sample in SAMPLES[name].samples[:12]:
        before = [x.copy() for x in sample.operands]
        for out in outputs_of(made_for("cpu:0", name, sample), sample.operands):
            assert out.flags.writeable and out.flags.c_contiguous
            assert not any(np.may_share_memory(out, x) for x in sample.operands)
            out[...] = 1
        for x, y in zip(sample.operands, before, strict=True):
            assert bits(x, y) is None


def _transposed(x: Array) -> Array:
    return np.array(x.T, order="C").T


def _repeated(x: Array) -> Array:
    """Stride 0 along the first axis: every element is the first along it."""
    return np.broadcast_to(x[:1], x.shape)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "transposed": _transposed,
    "every second": lambda x: laid_out(x, "strided"),
    "backwards": lambda x: laid_out(x, "reversed"),
    "stride 0": _repeated,
    "odd offset": lambda x: laid_out(x, "offset"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SAMPLES)
def test_layout_does_not_change_bits(name: str, layout: str) -> None:
    """The same values in another memory layout give the same bits as in C order."""
    if (name, layout) == ("mask_update", "stride 0"):
        layout = "transposed"  # a mask that repeats selects another number of elements than there are values
    wide = [s for s in SAMPLES[name].samples if any(x.ndim and x.size > 1 for x in s.operands)]
    for sample in wide[:: max(1, len(wide) // 14)]:
        operands = [LAYOUTS[layout](x) if x.ndim and x.size else x for x in sample.operands]
        made = made_for("cpu:0", name, sample)
        plain = outputs_of(made, [np.array(x, order="C") for x in operands])
        for a, e in zip(outputs_of(made, operands), plain, strict=True):
            assert bits(a, e) is None, f"{sample}: {bits(a, e)}"


REDUCTIONS = [name for name in OPS if isinstance(OPS[name].form, Reduction)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16"])
@pytest.mark.parametrize("name", ["sum", "prod", "squared_deviations"])
def test_reductions_follow_the_tree(name: str, dtype: str) -> None:
    """Equal bits with the reference engine, which writes the tree in NumPy: lengths round the lanes and the chunks."""
    for shape, axes in (
        ((1,), (0,)), ((31,), (0,)), ((64,), (0,)), ((2047,), (0,)), ((2049,), (0,)), ((4096,), (0,)), ((4097,), (0,)),
        ((9001,), (0,)), ((3, 4100), (1,)), ((4100, 3), (0,)), ((70, 3, 61), (0, 2)), ((5, 6, 7), (1,)),
        ((40, 200), (0, 1)),
        ((140_000,), (0,)),
    ):  # fmt: skip
        x = (factors if name == "prod" else uniform)(shape, dtype, 1)
        sample = Sample((x,), {"axes": axes, "keepdims": False})
        (expected,) = outputs_of(made_for("reference:0", name, sample), sample.operands)
        (actual,) = outputs_of(made_for("cpu:0", name, sample), sample.operands)
        assert bits(actual, expected) is None, f"{sample}: {bits(actual, expected)}"


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_infinite_factors_on_every_schedule(dtype: str) -> None:
    """What lanes start from and are filled up with makes no NaN: 1 + 0i changes nothing, beside infinities too."""
    for n in (1, 2, 33, 700, 5000):
        x = np.ones(n, dtype)
        x[n // 2], x[-1] = complex(np.inf, 0), complex(0, -1) if n > 1 else complex(0, np.inf)
        for rows, axes in ((x, (0,)), (np.repeat(x[:, None], 40, 1), (0,)), (np.repeat(x[None], 3, 0), (1,))):
            sample = Sample((rows,), {"axes": axes, "keepdims": False})
            (expected,) = outputs_of(made_for("reference:0", "prod", sample), sample.operands)
            (actual,) = outputs_of(made_for("cpu:0", "prod", sample), sample.operands)
            assert bits(actual, expected) is None, f"{n}, {axes}: {bits(actual, expected)}"


def test_maximum_orders_zeros() -> None:
    """−0 < +0 whichever comes first; NaN from either side."""
    for dtype in ("float16", "float32", "float64"):
        x = np.array([0.0, -0.0, 0.0, -0.0, np.nan, 1.0], dtype)
        y = np.array([-0.0, 0.0, 0.0, -0.0, 1.0, np.nan], dtype)
        sample = Sample((x, y))
        (largest,) = outputs_of(made_for("cpu:0", "maximum", sample), sample.operands)
        (least,) = outputs_of(made_for("cpu:0", "minimum", sample), sample.operands)
        assert bits(largest, np.array([0.0, 0.0, 0.0, -0.0, np.nan, np.nan], dtype)) is None
        assert bits(least, np.array([-0.0, -0.0, 0.0, -0.0, np.nan, np.nan], dtype)) is None
