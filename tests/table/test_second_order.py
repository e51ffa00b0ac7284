"""Derivatives to second order by ``check_grads``, forward over forward, reverse over forward and so on: of every row
that has some, for every dtype that it takes. A row without is named here with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.op import Absent, Constant, Op
from tenferro.tracer.ops import OPS, host
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform import marks
from tests.running import engines_as_they_were
from tests.table.functions import FUNCTIONS, ONLY_REVERSE, WITH, function_calls
from tests.table.ordinary import Call, row_calls, spaced, varies
from tests.table.test_jvp import ALONG_REFERENCES, OF_SHARES, differentiable

BESIDE_THE_TABLE = {op.name: op for family in (host, marks) for op in vars(family).values() if isinstance(op, Op)}
"""Rows that programs on disk do not name: Python functions of the user's, and what transformations alone read."""
ROWS: dict[str, Op] = {**OPS, **BESIDE_THE_TABLE}

TOLERANCES = {"float64": (1e-5, 1e-5), "float32": (2e-2, 2e-2), "float16": (0.3, 0.125)}
"""Of differences, and their step, by the narrowest dtype: they lose half of its digits."""


@pytest.fixture(scope="module", autouse=True)
def _places() -> Iterator[None]:
    """Engines that collectives meet on."""
    with engines_as_they_were():
        tn.cpu_engines(3)
        yield


def reason(op: Op) -> str | None:
    """Why a row has no derivative."""
    return op.jvp.reason if isinstance(op.jvp, Absent | Constant) else None


def check(calls: Sequence[Call], only_reverse: bool = False) -> None:
    """Those of one precision in one program; where it fails, one by one. Forward and mixed modes in double precision:
    rules are the same for all dtypes, and reverse mode asks each of them."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.precision, []).append(call)
    for precision, group in groups.items():
        modes = ("fwd", "rev") if precision == "float64" and not only_reverse else ("rev",)
        try:
            _check(group, precision, modes)
        except AssertionError:
            for call in group:
                _check([call], precision, modes)
            raise


def _check(calls: Sequence[Call], precision: str, modes: tuple[str, ...]) -> None:
    tolerance, step = TOLERANCES[precision]
    counts = [len(call.arguments) for call in calls]

    @tn.jit
    def together(*arrays):
        given = iter(arrays)
        return [call.function(*islice(given, count)) for call, count in zip(calls, counts, strict=True)]

    arguments = [x for call in calls for x in call.arguments]
    try:
        with np.errstate(all="ignore"):
            tn.test_util.check_grads(together, arguments, 2, modes, tolerance, tolerance, step)
    except AssertionError as error:
        raise AssertionError(f"{'; '.join(map(str, calls))}: {error}") from None


@pytest.mark.parametrize("name", ALONG_REFERENCES)
def test_rows_with_samples(name: str) -> None:
    calls = list(row_calls(name))
    assert calls, f"{name}: no sample at an ordinary point"
    check(calls)


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


def test_every_row_is_differentiated_or_says_why_not() -> None:
    """A new row fails here until it has samples or a function, or a reason."""
    covered = {*ALONG_REFERENCES, *OF_SHARES, *FUNCTIONS, *chain.from_iterable(WITH.values())}
    without = {name: reason(op) for name, op in ROWS.items() if name not in covered}
    assert [name for name, why in without.items() if not why or len(why) < 10] == []
    assert covered <= set(ROWS)
    assert [name for name in covered if reason(ROWS[name])] == []
    print("\n".join(f"{name}: {why}" for name, why in without.items()))


def test_every_dtype_is_met() -> None:
    """Of the samples of a row, where one is at an ordinary point."""
    for name in ALONG_REFERENCES:
        declared = {x.dtype.name for s in differentiable(name) for x in s.operands if varies(x)}
        met = {x.dtype.name for call in row_calls(name) for x in call.arguments}
        assert met == declared, name
