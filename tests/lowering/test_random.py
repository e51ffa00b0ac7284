"""Random programs: the plan, run from its definitions, gives the bits of the program run operation by operation."""

from __future__ import annotations

import numpy as np
import pytest

from tenferro.engines.reference import ReferenceEngine
from tenferro.lowering import lower, simplify
from tenferro.lowering.checker import check
from tenferro.lowering.plan import Plan
from tenferro.lowering.stage import stage
from tests.lowering.interpreter import Run
from tests.lowering.random_program import Generator


class Checking:
    check = True


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shapes, dtypes and bits, all NaNs counting as one."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    both_nan = (a != a) & (b != b)
    return bool(np.all(both_nan | ((a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b)))


@pytest.mark.parametrize("seed", range(200))
def test_plan_has_the_program_s_bits(seed: int) -> None:
    program, arrays = Generator(seed).program()
    plain = ReferenceEngine().compile(Plan(stage(program), (), ())).run(arrays).outputs
    for lowered in (lower(program, Checking()), lower(simplify(program), Checking())):
        found = Run(lowered, arrays).outputs()
        for k, (a, b) in enumerate(zip(plain, found, strict=True)):
            assert same_bits(np.asarray(a), np.asarray(b)), f"output {k}\n{program}\n{lowered.program}"
        rerun = ReferenceEngine().compile(lowered).run(arrays).outputs
        for a, b in zip(plain, rerun, strict=True):
            assert same_bits(a, b)
    check(simplify(program))
