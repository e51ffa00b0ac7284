"""Random programs under ``shard_map``: on data of its own every engine has the bits that a jitted call has there."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import tenferro as tn
from tests.random_programs.generator import RandomProgram, generate
from tests.random_programs.statements import propose
from tests.sharding.meshes import mesh
from tests.table.agreement import bits

Array = np.ndarray[Any, Any]


@st.composite
def programs(draw: st.DrawFn) -> RandomProgram:
    return generate(lambda n: draw(st.integers(0, n - 1)), propose)


def flat(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """What has a size of its own on every engine can be joined along one axis alone."""
    return tuple(np.asarray(r).reshape(-1) for r in results)


def sharded(program: RandomProgram) -> Any:
    """Arguments have the engines' data along a first axis."""
    f = program.function()

    def on_shard(*stacked: Any) -> Any:
        return flat(f(*(x.reshape(x.shape[1:]) for x in stacked)))

    return tn.shard_map(on_shard, mesh(2), tn.P("i"), tn.P("i"))


def on_each(program: RandomProgram, number: int) -> RandomProgram:
    return replace(program, arguments=tuple(replace(a, seed=a.seed + 1000 * number) for a in program.arguments))


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_each_engine_has_the_bits_of_a_jitted_call(program: RandomProgram) -> None:
    together = sharded(program)
    jitted = tn.jit(program.function())
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", tn.RecompileWarning)
        for sizes in program.sizes:
            data = [on_each(program, k).inputs(sizes) for k in range(2)]
            try:
                expected = [flat(jitted(*arguments)) for arguments in data]
            except (ValueError, IndexError):
                assume(False)  # the other data have other numbers of hits, which do not fit
            found = together(*(np.stack([np.asarray(x) for x in xs]) for xs in zip(*data, strict=True)))
            for actual, *parts in zip(found, *expected, strict=True):
                problem = bits(actual, np.concatenate(parts))
                assert problem is None, f"{problem}\n{program.runnable()}"
