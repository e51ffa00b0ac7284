"""Peak memory as a formula and as a number."""

from __future__ import annotations

from tenferro.lowering import lower
from tenferro.lowering.memory import memory
from tenferro.lowering.plan import AdoptStep
from tenferro.tracer.dims import Leaf, leaf
from tenferro.tracer.program import SemanticProgram
from tests.lowering.programs import Builder, number, softmax

ENV = {Leaf("extent", 0, 0): 10, Leaf("extent", 0, 1): 20}


def test_a_fused_function_holds_its_result_alone() -> None:
    found = memory(lower(softmax()))
    assert str(found.peak) == "8*d0_0*d0_1" and found.bytes(ENV) == 1600 and found.step(ENV) == 0


def products(length: int) -> SemanticProgram:
    b = Builder()
    n = leaf("extent", 0, 0)
    x = b.input("x", 2, shape=(n, n))
    y = x
    for _ in range(length):
        y = b.matmul(b.exp(y), x)
    return b.finish(y)


def test_dead_temporaries_make_room() -> None:
    found = memory(lower(products(5)))
    assert str(found.peak) == "16*d0_0*d0_0" and str(found.naive) == "80*d0_0*d0_0"
    assert found.bytes(ENV) == 1600


def test_a_stolen_base_is_counted_once() -> None:
    b = Builder()
    x = b.input("x", 1)
    y = b.slice_update(b.exp(x), number(1.0), starts=(0,), steps=(1,), sizes=(1,))
    found = memory(lower(b.finish(y)))
    assert str(found.peak) == "8*d0_0" and str(found.naive) == "16*d0_0"
    (buffer,) = found.buffers
    assert buffer.first == 0 and buffer.last is None


def test_a_stolen_base_dies_with_its_update() -> None:
    b = Builder()
    x = b.input("x", 1)
    y = b.slice_update(b.cumsum(x, axis=0), number(1.0), starts=(0,), steps=(1,), sizes=(1,))
    z = b.cumsum(b.cumsum(y, axis=0), axis=0)
    plan = lower(b.finish(z))
    found = memory(plan)
    assert [s.steal for s in plan.steps if isinstance(s, AdoptStep)] == [True]
    assert str(found.peak) == "16*d0_0" and str(found.naive) == "32*d0_0"


def test_buffers_live_from_step_to_step() -> None:
    found = memory(lower(products(2)))
    spans = [(str(b.size), b.first, b.last) for b in found.buffers]
    assert spans == [("8*d0_0*d0_0", 0, 1), ("8*d0_0*d0_0", 1, 3), ("8*d0_0*d0_0", 3, None)]
    lines = [b.line.line for b in found.buffers if b.line is not None]
    assert lines == sorted(lines) and len(lines) == 3
    assert [n for n, _ in found.largest(ENV)] == [800] * 3


def test_the_peak_may_be_one_step_or_another() -> None:
    b = Builder()
    x, y = b.input("x", 1), b.input("y", 1)
    s = b.reduce("sum", b.cumsum(x, axis=0), 0)
    t = b.reduce("sum", b.cumsum(y, axis=0), 0)
    found = memory(lower(b.finish(b.add(s, t))))
    sizes = {Leaf("extent", 0, 0): 100, Leaf("extent", 1, 0): 3}
    assert "max" in str(found.peak)
    assert 800 <= found.bytes(sizes) <= 840


def test_a_run_time_extent_counts_with_its_bound() -> None:
    b = Builder()
    x = b.input("x", 1)
    picked = b.mask_select(x, b.less(x, number(0.0)), extent=leaf("runtime", 1, 0))
    found = memory(lower(b.finish(picked)))
    assert found.bytes({Leaf("extent", 0, 0): 100}) == 100 + 800
