"""Rows of random numbers: bits of a key and a counter, and the distributions whose numbers are drawn until accepted.

Keys are two uint32 words, counters uint64. What a row gives for an element depends on its operands there alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer.errors import DtypeError
from tenferro.tracer.op import Op, Pointwise
from tenferro.tracer.ops import random_references as r
from tenferro.tracer.ops.columns import INTEGERS, NOT_LINEAR, batch_pointwise, terms
from tenferro.tracer.ops.gamma_rules import jvp_gamma
from tenferro.tracer.ops.rows import common_shape, row
from tenferro.tracer.program import ArrayType, Params
from tenferro.tracer.scalar import counts, draws, error_function, fused, threefry as t
from tenferro.tracer.scalar.arithmetic import widened

U32, U64, F32, F64 = (np.dtype(d) for d in (np.uint32, np.uint64, np.float32, np.float64))
SLOPE_OF_ERF = 1.1283791670955126
"""Of erf at 0, 2/√π."""


def _infer_threefry(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    if [x.dtype for x in types] != [U32, U32, U64] or params.get("dtype") not in (U32, U64):
        raise DtypeError(
            f"threefry: operands {[str(x) for x in types]} for {params.get('dtype')}; two of uint32 and one of uint64 "
            f"for uint32 or uint64 are needed here"
        )
    return (ArrayType(params["dtype"], common_shape("threefry", types).shape),)


def _infer_draw(name: str, *dtypes: np.dtype[Any]) -> Callable[..., tuple[ArrayType, ...]]:
    """Operands: key, counter, and parameters of one of the dtypes, which is the result's."""

    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        found = [x.dtype for x in types]
        if found[:3] != [U32, U32, U64] or found[3] not in dtypes or len(set(found[3:])) > 1:
            needed = " or ".join(d.name for d in dtypes)
            raise DtypeError(
                f"{name}: operands {[str(x) for x in types]}; two of uint32, one of uint64 and parameters of {needed} "
                f"are needed here"
            )
        return (ArrayType(found[3], common_shape(name, types).shape),)

    return infer


threefry = Op(
    "threefry",
    Pointwise(lambda b, first, second, counter, dtype: t.threefry(b, first, second, counter, dtype), 80, None),
    _infer_threefry,
    r.threefry,
    INTEGERS,
    NOT_LINEAR,
    batch_pointwise,
)
fma = row(
    "fma",
    r.fma,
    kinds="f",
    result="same",
    cost=1,
    scalar=lambda b, x, y, z: fused.fma(b, x, y, z),
    jvp=terms(
        lambda b, s, w, x, y, z: b.scaled(s, y), lambda b, s, w, x, y, z: b.scaled(s, x), lambda b, s, w, x, y, z: s
    ),
    transpose=NOT_LINEAR,
)
"""x y + z, rounded once."""
erf = row(
    "erf",
    r.erf,
    kinds="f",
    result="same",
    cost=60,
    scalar=lambda b, x: widened(error_function.erf)(b, x),
    jvp=terms(lambda b, s, y, x: b.scaled(s, b.multiply(b.like(SLOPE_OF_ERF, y), b.exp(b.negative(b.multiply(x, x)))))),
    transpose=NOT_LINEAR,
)
"""The error function: float32 and float64 within 1 ulp."""
erfinv = row(
    "erfinv",
    r.erfinv,
    kinds="f",
    result="same",
    cost=50,
    scalar=lambda b, x: widened(error_function.erfinv)(b, x),
    jvp=terms(lambda b, s, y, x: b.scaled(s, b.multiply(b.like(1 / SLOPE_OF_ERF, y), b.exp(b.multiply(y, y))))),
    transpose=NOT_LINEAR,
)
"""The number whose error function the operand is: float32 within 1.5 ulp, float64 within 2."""
random_gamma = Op(
    "random_gamma",
    Pointwise(
        lambda b, first, second, counter, a, is_log: draws.gamma(b, first, second, counter, a, is_log), 400, None
    ),
    _infer_draw("random_gamma", F32, F64),
    r.gamma,
    jvp_gamma,
    NOT_LINEAR,
    batch_pointwise,
)
"""Gamma numbers of a shape, or with ``is_log`` their logarithms."""
random_poisson = Op(
    "random_poisson",
    Pointwise(lambda b, first, second, counter, rate: counts.poisson(b, first, second, counter, rate), 600, None),
    _infer_draw("random_poisson", F64),
    r.poisson,
    INTEGERS,
    NOT_LINEAR,
    batch_pointwise,
)
random_binomial = Op(
    "random_binomial",
    Pointwise(lambda b, first, second, counter, n, p: counts.binomial(b, first, second, counter, n, p), 900, None),
    _infer_draw("random_binomial", F64),
    r.binomial,
    INTEGERS,
    NOT_LINEAR,
    batch_pointwise,
)
