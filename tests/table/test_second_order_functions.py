"""Derivatives to second order by ``check_grads`` of rows that stand in functions, for every dtype that they take, and
of functions over lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.trace import Trace
from tests.running import engines_as_they_were
from tests.table.functions import FUNCTIONS, ONLY_REVERSE, WITH, function_calls
from tests.table.ordinary import spaced
from tests.table.second_order import check


@pytest.fixture(scope="module", autouse=True)
def _places() -> Iterator[None]:
    """Engines that collectives meet on."""
    with engines_as_they_were():
        tn.cpu_engines(3)
        yield


@pytest.mark.parametrize(("name", "dtype"), [(name, d) for name, (dtypes, _) in FUNCTIONS.items() for d in dtypes])
def test_rows_in_functions(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[str] = set()
    record = Trace._record

    def noted(self, op, inputs, params):
        met.add(op.name)
        return record(self, op, inputs, params)

    monkeypatch.setattr(Trace, "_record", noted)
    check(function_calls(name, dtype), name in ONLY_REVERSE)
    assert {name, *WITH.get(name, ())} <= met, f"the functions of {name} record {sorted(met)}"


LANED: dict[str, Callable[[Any], Any]] = {
    "lane_sum": lambda x: np.sin(tn.psum(x * x, "i")) * x,
    "lane_gather": lambda x: (np.sin(tn.all_gather(x, "i")) * tn.all_gather(x, "i")[::-1]).sum(0),
}


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
@pytest.mark.parametrize("name", LANED)
def test_derivatives_inside_of_lanes_are_those_from_outside(name: str, dtype: str) -> None:
    """From outside all lanes are one program, in which the rows are gone: their own rules are asked inside."""
    one = LANED[name]
    x, ct, turn = (spaced((3, 2), np.dtype(dtype), k) * np.array(0.4, dtype) for k in range(3))

    def pulled(f: Callable[[Any], Any], x: Any, ct: Any) -> Any:
        return tn.vjp(f, x)[1](ct)[0]

    def twice(f: Callable[[Any], Any], x: Any, ct: Any, turn: Any) -> Any:
        return pulled(lambda x: pulled(f, x, ct), x, turn)

    def pushed(f: Callable[[Any], Any], x: Any, t: Any, turn: Any) -> Any:
        return tn.jvp(lambda x: tn.jvp(f, (x,), (t,)), (x,), (turn,))

    whole = tn.vmap(one, axis_name="i")
    for derivative, given in ((pulled, (x, ct)), (twice, (x, ct, turn)), (pushed, (x, ct, turn))):
        inside = tn.vmap(lambda *xs, d=derivative: d(one, *xs), axis_name="i")(*given)
        tolerance = 1e-4 if dtype == "float32" else 1e-12
        tree = zip(tn.tree.flatten(inside)[0], tn.tree.flatten(derivative(whole, *given))[0], strict=True)
        for found, expected in tree:
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
