"""Peak memory as a formula and as a number."""

from __future__ import annotations

from tenferro.lowering import lower
from tenferro.lowering.memory import memory
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
    assert str(found.peak) == "16*d0_0*d0_0" and str(found.total) == "80*d0_0*d0_0"
    assert found.bytes(ENV) == 1600


def test_a_stolen_base_is_counted_once() -> None:
    b = Builder()
    x = b.input("x", 1)
    y = b.slice_update(b.exp(x), number(1.0), starts=(0,), steps=(1,), sizes=(1,))
    assert str(memory(lower(b.finish(y))).peak) == "8*d0_0"


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
