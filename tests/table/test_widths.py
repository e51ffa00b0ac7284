"""Every row at vector widths 4, 8 and 16 (of float32), code generation levels 0 and 2: equal bits on its samples."""

from __future__ import annotations

import pytest

from tenferro.tracer.op import Library
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType
from tests.running import Way, one_op, outputs_of
from tests.samples import SAMPLES, Sample
from tests.table.agreement import bits, values
from tests.table.test_engines import made_for
from tests.turns import is_due

WAYS = ("512 bits, level 2", "256 bits, level 0", "128 bits, level 2")
COUNT = 5


def _largest(name: str, which: str) -> list[Sample]:
    """The sample with most elements for each choice of dtypes, some of them, in turns with the other ways. x86 converts
    float16 only where it has registers of 256 bits."""
    found: dict[tuple[str, ...], Sample] = {}
    for sample in SAMPLES[name].samples:
        key = (*(x.dtype.name for x in sample.operands), str(sample.params.get("dtype", "")))
        if "float16" in key and which.startswith("128"):
            continue
        if key not in found or sum(x.size for x in sample.operands) > sum(x.size for x in found[key].operands):
            found[key] = sample
    some = list(found.values())[:: max(1, len(found) // COUNT)]
    return [s for k, s in enumerate(some) if len(some) == 1 or is_due(WAYS.index(which), k)]


@pytest.mark.parametrize("which", WAYS)
@pytest.mark.parametrize("name", [n for n in SAMPLES if not isinstance(OPS[n].form, Library)])
def test_width_and_level_do_not_change_bits(name: str, which: str) -> None:
    """A maximum may hand on either of two complex NaNs, so that it is compared by value."""
    compare = values if name in ("max", "min", "maximum", "minimum") else bits
    for sample in _largest(name, which):
        types = [ArrayType(x.dtype, x.shape) for x in sample.operands]
        expected = outputs_of(made_for("cpu:0", name, sample), sample.operands)
        actual = outputs_of(Way(one_op(OPS[name], types, sample.params), which), sample.operands)
        for a, e in zip(actual, expected, strict=True):
            assert compare(a, e) is None, f"{sample}: {compare(a, e)}"
