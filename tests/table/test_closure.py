"""Rules lead back into the table: what they emit about tangents can be transposed, differentiated and mapped in turn.

Rules are run in traces, on the types of samples, and what they emit is collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tenferro.tracer.op import Absent
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import Params
from tests.samples import SAMPLES, Sample
from tests.table.derived import Emitted, batch_program, emitted_by_jvp, emitted_by_transpose, types_of
from tests.table.test_batch import ROWS as BATCHED, choices, is_refused
from tests.table.test_jvp import RULES, differentiable
from tests.table.test_transpose import LINEAR, ROWS as TRANSPOSED, known, linear_in, linear_samples

WITHOUT_OPERANDS = {"iota"}
"""Rows that are the same in every lane."""


def kinds(samples: list[Sample]) -> Iterator[Sample]:
    """One of each choice of dtypes, ranks and parameters that are no numbers."""
    seen = set()
    for sample in samples:
        key = tuple((x.dtype.kind, x.ndim) for x in sample.operands), *map(str, sample.params.values())
        if key not in seen and all(x.size for x in sample.operands):
            seen.add(key)
            yield sample


@cache
def of_jvp(name: str) -> Emitted:
    found = Emitted()
    for sample in kinds(differentiable(name)):
        emitted_by_jvp(OPS[name], types_of(sample.operands), dict(sample.params), found)
    return found


@cache
def of_transpose(name: str) -> Emitted:
    found = Emitted()
    for sample in kinds(linear_samples(name)):
        for flags in linear_in(name, sample):
            emitted_by_transpose(OPS[name], types_of(sample.operands), dict(known(name, sample)), flags, found)
    return found


def of_batch(name: str) -> set[str]:
    found = set()
    for sample in kinds(list(SAMPLES[name].samples)):
        for flags in choices(len(sample.operands)):
            if not is_refused(name, flags):
                program = batch_program(OPS[name], types_of(sample.operands), Params(**sample.params), flags, 2)
                found |= {o.op.name for o in program.operations}
    return found


def is_linear_in(name: str, flags: tuple[bool, ...]) -> bool:
    return name in LINEAR and (not LINEAR[name] or flags in LINEAR[name])


@pytest.mark.parametrize("name", RULES)
def test_what_a_jvp_emits_about_tangents_has_a_transpose(name: str) -> None:
    emitted = of_jvp(name)
    assert [pair for pair in emitted.linear if not is_linear_in(*pair)] == []


@pytest.mark.parametrize("name", TRANSPOSED)
def test_what_a_transpose_emits_about_cotangents_has_one(name: str) -> None:
    """So that it can be pulled back again, as the derivative of a gradient is."""
    emitted = of_transpose(name)
    assert [pair for pair in emitted.linear if not is_linear_in(*pair)] == []


@pytest.mark.parametrize("name", sorted({*RULES, *TRANSPOSED}))
def test_what_rules_emit_has_derivatives(name: str) -> None:
    emitted = Emitted()
    for part in ([of_jvp(name)] if name in RULES else []) + ([of_transpose(name)] if name in TRANSPOSED else []):
        emitted.linear |= part.linear
        emitted.values |= part.values
    names = emitted.values | {op for op, _ in emitted.linear}
    without = {op for op in names if isinstance(OPS[op].jvp, Absent) and OPS[op].jvp.reason != INTEGRAL.reason}
    assert without == set()


INTEGRAL = OPS["equal"].jvp
assert isinstance(INTEGRAL, Absent)


@pytest.mark.parametrize("name", BATCHED)
def test_what_a_batch_emits_can_be_mapped_again(name: str) -> None:
    without = {op for op in of_batch(name) if isinstance(OPS[op].batch, Absent)}
    assert without <= WITHOUT_OPERANDS


def test_all_rows_are_mapped_or_say_why_not() -> None:
    reasons = {name: op.batch.reason for name, op in OPS.items() if isinstance(op.batch, Absent)}
    assert all(len(reason) > 10 for reason in reasons.values())
    assert set(reasons) <= {"iota", "lane_index", "bincount"}
