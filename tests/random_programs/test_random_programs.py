"""Random programs: NumPy, jitted (one program at three sizes), fresh, eager, threaded and the reference engine agree.

``python tools/fuzz.py`` runs the same generator for as long as one likes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tenferro as tn
from tests.random_programs.compare import disagreements
from tests.random_programs.generator import RandomProgram, generate
from tests.random_programs.kept import KEPT
from tests.random_programs.statements import propose


@st.composite
def programs(draw: st.DrawFn) -> RandomProgram:
    return generate(lambda n: draw(st.integers(0, n - 1)), propose)


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_every_way_of_running_agrees(program: RandomProgram) -> None:
    found = disagreements(program)
    assert not found, "\n".join([*found, program.runnable(), repr(program)])


@pytest.mark.parametrize("program", KEPT, ids=lambda p: p.body[-1])
def test_programs_that_once_failed(program: RandomProgram) -> None:
    assert not disagreements(program), program.runnable()


def test_views_of_scalars() -> None:
    """NumPy makes a new array of a scalar, and a view of an array of rank 0. (Outside jit tn.Array has no scalars.)"""

    def f(x):
        total = x.sum()
        column = total[..., None]
        column -= 3
        array = np.asarray(total)
        row = array[None]
        row *= 2
        return total, column, array, row

    x = np.arange(4.0)
    for actual, expected in zip(tn.jit(f)(x), f(x), strict=True):
        np.testing.assert_array_equal(actual, expected)
