"""The table against itself: every row has samples, and its typing rule says what its NumPy reference does."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.dims import Leaf, evaluate_shape
from tenferro.tracer.op import Library, Op
from tenferro.tracer.ops import OPS, control, decompositions, host, lanes
from tenferro.tracer.program import ArrayType, Params
from tenferro.tracer.transform import marks
from tests.samples import SAMPLES, Sample


def reference(name: str, sample: Sample) -> tuple[np.ndarray[Any, Any], ...]:
    """The row's NumPy result, as a tuple of arrays."""
    with np.errstate(all="ignore"):
        out = OPS[name].reference(*sample.operands, **sample.params)
    return tuple(np.asarray(x) for x in out) if isinstance(out, tuple) else (np.asarray(out),)


ELSEWHERE: dict[ModuleType, tuple[str, str]] = {
    control: ("tests/control", "their parameters are bodies, which are traced"),
    lanes: ("tests/control/test_lanes.py", "they look across lanes, and are gone where all lanes are replayed"),
    decompositions: ("tests/linalg", "factors are unique only up to signs, and compared as what they multiply to"),
    host: ("tests/table/test_host.py", "their parameters are Python functions"),
    marks: ("tests/transform", "they compute nothing, and are gone when a program is finished"),
}
"""Families without samples: where they are tested, and why there."""


def test_every_row_has_samples_and_every_sample_a_row(root: Path) -> None:
    """Of those beside the table too: of the user's functions, and of transformations."""
    rows = {**OPS, **{op.name: op for family in (host, marks) for op in vars(family).values() if isinstance(op, Op)}}
    others = {op: place for family, place in ELSEWHERE.items() for op in vars(family).values() if isinstance(op, Op)}
    assert set(SAMPLES) == {name for name, op in rows.items() if op not in others}
    assert all((root / folder).exists() for folder, _ in others.values())
    print("\n".join(f"{op.name}: {folder}: {reason}" for op, (folder, reason) in others.items()))


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_cover_empty_single_and_rank_0(name: str) -> None:
    sizes = {x.size for sample in SAMPLES[name].samples for x in (*sample.operands, *reference(name, sample))}
    assert {0, 1} <= sizes


@pytest.mark.parametrize("name", SAMPLES)
def test_infer_equals_reference(name: str) -> None:
    wrong = []
    for sample in SAMPLES[name].samples:
        types = [ArrayType(x.dtype, x.shape) for x in sample.operands]
        inferred = OPS[name].infer(types, Params(**sample.params))
        found = reference(name, sample)
        form = OPS[name].form
        runtime = form.runtime_extents if isinstance(form, Library) else ()
        env = {Leaf("runtime", 0, axis): found[output].shape[axis] for output, axis in runtime}
        stated = [(t.dtype, evaluate_shape(t.shape, env)) for t in inferred]
        if stated != [(x.dtype, x.shape) for x in found]:
            wrong.append(f"{sample}: inferred {stated}, NumPy gives {[(x.dtype, x.shape) for x in found]}")
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("name", SAMPLES)
def test_bad_call_raises_its_text(name: str) -> None:
    bad = SAMPLES[name].bad
    with pytest.raises(bad.error, match="^" + re.escape(bad.text)):
        OPS[name].infer(bad.types, Params(**bad.params))


@pytest.mark.parametrize("name", SAMPLES)
def test_sized_calls_exist_at_their_minimum(name: str) -> None:
    sized = SAMPLES[name].sized
    n = sized.minimum
    shapes = sized.shapes(n, n)
    assert all(len(shapes) == len(dtypes) for dtypes in sized.variants)
    assert all(isinstance(extent, int) and extent >= 0 for shape in shapes for extent in shape)
