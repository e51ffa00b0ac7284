"""Kernels run on the CPU through the shim: their outputs have the CPU engine's bits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda import launch, prelude
from tenferro.engines.cuda.launch import Device
from tenferro.engines.cuda.params import Schedule
from tests.cuda import cases, running
from tests.cuda.running import SMALL, Run, run_on_shim
from tests.cuda.shim.compile import missing
from tests.running import executable, outputs_of
from tests.samples import Sample, Values
from tests.table.agreement import bits
from tests.values import factors, uniform

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


@pytest.fixture(scope="module")
def table() -> list[cases.Case]:
    return list(cases.prepared(cases.table()))


@pytest.mark.parametrize("name", cases.NATIVE_ROWS)
def test_row_has_the_bits_of_the_cpu_engine(name: str, table: list[cases.Case]) -> None:
    mine = [case for case in table if case.name == name]
    assert mine
    assert cases.problems(mine) == []


@pytest.mark.parametrize("group", [g for g in cases.GROUPS if g != "table"])
def test_group_has_the_bits_of_the_cpu_engine(group: str) -> None:
    assert cases.problems(cases.prepared(cases.GROUPS[group]())) == []


def test_every_schedule_is_met() -> None:
    """The groups force schedules; left alone, sizes and layouts lead to each of them as well."""
    met = set()
    for shape, axes in (
        ((50, 9), (1,)), ((50, 33), (1,)), ((2, 30_000), (1,)), ((40, 20_000), (1,)), ((33, 50), (0,)),
        ((30_000, 40), (0,)),
    ):  # fmt: skip
        case = cases.op_case("sum", Sample((uniform(shape, "float32", 1),), {"axes": axes, "keepdims": False}))
        run = Run(case.plan, case.operands, Device(processors=8, threads=64), None, dry=True)
        run.go()
        met |= {bound.key.variant.schedule for bound in run.bounds}
    assert met == set(cases.SCHEDULES)


@pytest.mark.parametrize("schedule", cases.SCHEDULES)
def test_infinite_factors(schedule: Schedule) -> None:
    """Lanes that no element reaches change nothing, beside infinities too."""
    for n in (1, 5, 33, 1000) if schedule == "thread" else (3, 33, 5000):
        x = np.ones((3, n), np.complex64)
        x[:, n // 2], x[1, -1] = complex(np.inf, 0), complex(0, -1)
        case = cases.op_case("prod", Sample((x,), {"axes": (1,), "keepdims": False}), schedule)
        assert case.problem() is None, n


@pytest.mark.parametrize(("name", "values"), [("sum", uniform), ("prod", factors)])
def test_a_tree_of_three_levels(name: str, values: Values) -> None:
    """2048 * 2048 elements of 8 bytes fill two levels of chunks; a few more need a third."""
    x = values((2048 * 2048 + 5,), "float64", 1)
    case = cases.op_case(name, Sample((x,), {"axes": (0,), "keepdims": False}))
    run = Run(case.plan, case.operands, SMALL, None, dry=True)
    run.go()
    assert [b.key.variant.schedule for b in run.bounds] == ["split"]
    assert case.problem() is None


def test_indices_of_64_bits() -> None:
    """The text for 2**31 elements and more, on arrays that fit into memory: all but one of an axis repeat."""
    x = np.broadcast_to(uniform((3, 1), "float32", 1), (3, 1 << 30))
    plan_case = cases.traced("head", lambda a: a[:, -5:] + a[:, :5], (x,), None)
    assert plan_case.problem() is None
    long = np.broadcast_to(uniform((3, 1), "float32", 1), (3, 1 << 30))
    run = Run(cases.traced("sum", lambda a: np.sum(a, axis=1), (long,), None).plan, (long,), SMALL, None, dry=True)
    run.go()
    assert run.bounds[0].key.variant.wide
    small = cases.traced("softmax", cases.softmax, (uniform((3, 70), "float32", 2),), "warp")
    narrow = Run(small.plan, small.operands, SMALL, "warp", dry=True)
    narrow.go()
    assert not narrow.bounds[0].key.variant.wide


@pytest.mark.parametrize("schedule", [None, "warp", "split", "split column"])
def test_wide_texts_compute_the_same(schedule: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "NARROW", 0)
    x = uniform((37, 90), "float32", 3)
    function = cases._mirrored if schedule is None else cases.softmax
    case = cases.traced("wide", function, (x[:, :37] if schedule is None else x,), schedule)  # type: ignore[arg-type]
    assert case.problem() is None
    run = Run(case.plan, case.operands, SMALL, case.schedule, dry=True)
    run.go()
    assert all(b.key.variant.wide for b in run.bounds)


@pytest.mark.parametrize("schedule", [None, "warp", "split"])
def test_parameters_through_memory(schedule: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 4 kB of parameters a kernel takes a pointer to them."""
    monkeypatch.setattr(prelude, "MAX_VALUE_WORDS", 4)
    function = cases._mirrored if schedule is None else cases.layer_norm
    case = cases.traced("by pointer", function, (uniform((21, 21), "float32", 5),), schedule)  # type: ignore[arg-type]
    monkeypatch.setattr(running, "_TEXTS", {})
    assert all("__restrict__ P" in kernel.body and not kernel.by_value for kernel in case.kernels())
    assert case.problem() is None


def test_sizes_share_a_kernel() -> None:
    """One polymorphic program at many sizes: as many texts as there are layout classes."""
    program = tn.jit(lambda x, y: np.exp(x) * y).trace(np.ones((3, 4), np.float32), np.ones(4, np.float32))
    texts = set()
    for n, m in ((2, 12), (7, 16), (100, 4), (31, 8)):
        case = cases.Case("f", program, (uniform((n, m), "float32", 1), uniform((m,), "float32", 2)))
        assert case.problem() is None
        texts |= {k.body for k in case.kernels()}
    assert len(texts) == 1


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "int64"])
def test_division_by_zero_is_left_in_the_latch(dtype: str) -> None:
    x, y = uniform((3, 70), dtype, 1), uniform((3, 70), dtype, 2)
    y[y == 0] = 1
    y[1, 33] = y[2, 1] = 0
    case = cases.traced("divide", lambda a, b: a // b, (x, y), None)
    _, latch = run_on_shim(case.plan, case.operands)
    assert latch & (1 << 62) and latch & ((1 << 40) - 1) == 70 + 33
    discarded = cases.traced("where", lambda a, b: np.where(b != 0, a // b, 0), (x, y), None)
    _, latch = run_on_shim(discarded.plan, discarded.operands)
    assert latch == (1 << 64) - 1


@pytest.mark.parametrize("bad", [5, -6, 1 << 40])
def test_an_index_out_of_range_is_left_in_the_latch(bad: int) -> None:
    x, index = uniform((5, 3), "float32", 1), np.array([0, -5, 4, bad, 1])
    case = cases.traced("take", lambda a, i: np.take(a, i, axis=0) + 1, (x, index), None)
    _, latch = run_on_shim(case.plan, case.operands)
    assert latch < 1 << 62 and latch & ((1 << 40) - 1) == 3 * 3
    good = dataclasses.replace(case, operands=(x, np.clip(index, -5, 4)))
    _, latch = run_on_shim(good.plan, good.operands)
    assert latch == (1 << 64) - 1


def test_checks_in_rows_see_only_rows_that_exist() -> None:
    """Threads past the last row take part in the exchange of values, and report nothing."""
    x = uniform((3, 40), "int32", 1)
    x[:, 0] = 1

    def divide(a):
        return np.sum(a // np.maximum(a, 1), axis=1) // np.max(a, axis=1)

    for schedule in cases.SCHEDULES:
        case = cases.traced("rows", divide, (x,), schedule)
        got, latch = run_on_shim(case.plan, case.operands, schedule=schedule)
        (expected,) = outputs_of(executable(case.program, "cpu:0"), case.operands)
        assert bits(got[0], expected) is None
        assert latch == (1 << 64) - 1, schedule


def test_no_elements() -> None:
    for shape in ((0, 3), (3, 0)):
        case = cases.traced("empty", lambda a: np.sum(a + 1, axis=1), (np.zeros(shape, np.float32),), None)
        assert case.problem() is None
