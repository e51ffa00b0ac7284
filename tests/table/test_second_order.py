"""Derivatives to second order by ``check_grads``, forward over forward, reverse over forward and so on: of every row
that has some, for every dtype that it takes. A row without is named here with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

import tenferro as tn
from tenferro.tracer.op import Absent, Constant, Op
from tenferro.tracer.ops import OPS, host
from tenferro.tracer.transform import marks
from tests.running import engines_as_they_were
from tests.table.functions import FUNCTIONS, WITH
from tests.table.ordinary import row_calls, varies
from tests.table.second_order import check
from tests.table.test_jvp import ALONG_REFERENCES, OF_SHARES, differentiable

BESIDE_THE_TABLE = {op.name: op for family in (host, marks) for op in vars(family).values() if isinstance(op, Op)}
"""Rows that programs on disk do not name: Python functions of the user's, and what transformations alone read."""
ROWS: dict[str, Op] = {**OPS, **BESIDE_THE_TABLE}


@pytest.fixture(scope="module", autouse=True)
def _places() -> Iterator[None]:
    """Engines that collectives meet on."""
    with engines_as_they_were():
        tn.cpu_engines(3)
        yield


def reason(op: Op) -> str | None:
    """Why a row has no derivative."""
    return op.jvp.reason if isinstance(op.jvp, Absent | Constant) else None


@pytest.mark.parametrize("name", ALONG_REFERENCES)
def test_rows_with_samples(name: str) -> None:
    calls = list(row_calls(name))
    assert calls, f"{name}: no sample at an ordinary point"
    check(calls)


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
