"""The column ``transpose`` of every row: ⟨t(x), c⟩ = ⟨x, t'(c)⟩ for the operands in which the row is linear.

The pairing is the real part of Σ a·b, without a conjugate: what is pulled back is not conjugated, as in JAX. So that
real and imaginary directions both count, x takes turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.dims import Leaf, evaluate_shape
from tenferro.tracer.op import Absent
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import Params
from tests.running import outputs_of
from tests.samples import SAMPLES, Sample
from tests.table.derived import Array, Flags, made, transpose_program, types_of
from tests.table.test_infer import reference
from tests.table.test_jvp import moderate
from tests.values import uniform

FIRST, SECOND = (True, False), (False, True)
ONE = ((True,),)
EITHER = ((True, True), FIRST, SECOND)
LINEAR: dict[str, tuple[Flags, ...]] = {
    "add": EITHER,
    "subtract": EITHER,
    "multiply": (FIRST, SECOND),
    "divide": (FIRST,),
    "tangent_product": (FIRST, SECOND),
    "tangent_quotient": (FIRST,),
    "tangent_pair": (FIRST, SECOND),
    "required": (FIRST,),
    "where": ((False, True, True), (False, True, False), (False, False, True)),
    **dict.fromkeys(("negative", "copy", "conjugate", "real", "imag", "astype"), ONE),
    **dict.fromkeys(("sum", "reshape", "transpose", "broadcast_to", "slice", "cumsum"), ONE),
    "pad": EITHER,
    "concatenate": (),
    "take": (FIRST,),
    "slice_update": EITHER,
    "matmul": (FIRST, SECOND),
    "mask_select": (FIRST,),
    "bincount": (SECOND,),
    "scatter": ((True, False, True), (True, False, False), (False, False, True)),
    "mask_update": ((True, False, True), (True, False, False), (False, False, True)),
    "recurrence": (SECOND,),
    "numpy_call": (FIRST, SECOND),
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "broadcast", "permute"), ()),
}
"""For each row with a transpose the operands in which it is linear together; of rows of many operands alike (), for any
of them."""
MODES = ("set", "add", "subtract")
"""Scatters that are linear. Of functions called by name it is the convolution."""


def linear_in(name: str, sample: Sample) -> list[Flags]:
    """The choices of operands that a sample has."""
    count = len(sample.operands)
    chosen = LINEAR[name] or (
        (True,) * count, *(tuple(k == j for k in range(count)) for j in range(count)),
        *(tuple(k != j for k in range(count)) for j in range(count)),
    )  # fmt: skip
    return [f for f in dict.fromkeys(chosen) if len(f) == count and _varies(sample, f) and any(f)]


def _varies(sample: Sample, flags: Flags) -> bool:
    return all(x.dtype.kind in "fc" for x, mine in zip(sample.operands, flags, strict=True) if mine)


def linear_samples(name: str) -> list[Sample]:
    """The samples whose results vary with their operands."""
    return [
        s
        for s in SAMPLES[name].samples
        if any(x.dtype.kind in "fc" for x in reference(name, s))
        and s.params.get("mode") in (None, *MODES)
        and s.params.get("function") in (None, "convolve")
        and s.params.get("reduction") in (None, "sum")
    ]


ROWS = [name for name in SAMPLES if not isinstance(OPS[name].transpose, Absent)]


def test_every_row_says_in_what_it_is_linear() -> None:
    assert set(LINEAR) == set(ROWS)


def paired(xs: list[Array], ys: list[Array]) -> float:
    """Re Σ a·b in double precision."""
    return float(sum((_wide(x) * _wide(y)).sum().real for x, y in zip(xs, ys, strict=True)))


def sizes(xs: list[Array], ys: list[Array]) -> float:
    return float(sum((np.abs(_wide(x)) * np.abs(_wide(y))).sum() for x, y in zip(xs, ys, strict=True)))


def _wide(x: Array) -> Array:
    return np.asarray(x).astype(np.complex128)


def known(name: str, sample: Sample) -> Mapping[str, Any]:
    """Parameters with run-time extents as numbers: the sample's own mask decides them."""
    (form, *_) = reference(name, sample)
    env = {Leaf("runtime", 0, 0): form.shape[0]} if form.ndim else {}
    return {k: evaluate_shape((v,), env)[0] if k == "extent" else v for k, v in sample.params.items()}


def pulled(name: str, sample: Sample, flags: Flags, cotangents: list[Array]) -> list[Array]:
    """The cotangents of the operands in which the row is linear."""
    types = types_of(sample.operands)
    held = [x for x, mine in zip(sample.operands, flags, strict=True) if not mine]
    executable = made(transpose_program, name, types, Params(**known(name, sample)), flags)
    return outputs_of(executable, [*held, *cotangents])


def cotangents_of(name: str, sample: Sample, seed: int) -> list[Array]:
    return [uniform(x.shape, x.dtype, seed + k) for k, x in enumerate(reference(name, sample)) if x.dtype.kind in "fc"]


@pytest.mark.parametrize("name", ROWS)
def test_inner_products_agree(name: str) -> None:
    compared = 0
    for number, sample in enumerate(linear_samples(name)):
        sample = replace(sample, operands=tuple(moderate(x) for x in sample.operands))
        for flags in linear_in(name, sample):
            operands = tuple(
                uniform(x.shape, x.dtype, number + k) if mine else x
                for k, (x, mine) in enumerate(zip(sample.operands, flags, strict=True))
            )
            zeros = tuple(
                np.zeros_like(x) if not mine and _is_shift(name, k) else x
                for k, (x, mine) in enumerate(zip(operands, flags, strict=True))
            )
            results = [y for y in reference(name, replace(sample, operands=zeros)) if y.dtype.kind in "fc"]
            cotangents = cotangents_of(name, sample, number)
            given = [x for x, mine in zip(operands, flags, strict=True) if mine]
            found = pulled(name, replace(sample, operands=zeros), flags, cotangents)
            with np.errstate(all="ignore"):
                left, right = paired(results, cotangents), paired(given, found)
                size = 1 + sizes(results, cotangents) + sizes(given, found)
            if not np.isfinite([left, right]).all():
                continue
            compared += 1
            digits = min(int(np.finfo(x.dtype).precision) for x in (*found, *results))
            assert abs(left - right) <= 8 * 10.0**-digits * size, f"{sample}, {flags}: {left}, not {right}"
    assert compared >= 4, f"{name}: only {compared} compared"


def _is_shift(name: str, place: int) -> bool:
    """Whether the row is linear in the others only where this operand is 0."""
    return name in (
        "add", "subtract", "where", "pad", "slice_update", "scatter", "mask_update", "concatenate", "all_reduce",
        "all_gather", "reduce_scatter", "broadcast", "permute",
    ) and (name, place) not in (("where", 0), ("scatter", 1), ("mask_update", 1))  # fmt: skip


@pytest.mark.parametrize("name", [n for n in ROWS if n not in ("matmul", "recurrence")])
def test_zero_cotangents_stay_zero(name: str) -> None:
    """Beside infinities and NaN too. Products of matrices add factors up unseen."""
    for sample in linear_samples(name):
        for flags in linear_in(name, sample):
            if name in ("multiply", "divide"):
                sample = replace(sample, operands=tuple(_usable(x) for x in sample.operands))
            zeros = [np.zeros_like(c) for c in cotangents_of(name, sample, 1)]
            for found in pulled(name, sample, flags, zeros):
                assert not np.asarray(found != 0).any(), f"{sample}, {flags}: {found[found != 0]}"


def _usable(x: Array) -> Array:
    """What these rows meet on a tape: rules put other factors through ``tangent_product`` and ``tangent_quotient``."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(x) & (x != 0) & (np.abs(x) < 1e4) & (np.abs(x) > 1e-4), x, np.ones((), x.dtype))
