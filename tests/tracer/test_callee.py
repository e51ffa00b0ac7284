"""Which function a frame is calling, told by the text of the call."""

from __future__ import annotations

import functools
import queue
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.callee import calls


def probe(*args: Any) -> bool:
    return calls(sys._getframe(1), "probe", probe)


module = SimpleNamespace(probe=probe, other=lambda: None)


def through_variable() -> bool:
    alias = probe
    return alias(1, *[2])


def over_lines() -> bool:
    return (
        module
        .probe(
            1,
            2,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        lambda: probe(1),
        lambda: module.probe(1),
        lambda: module.probe(1 if module else 2, *[3]),
        lambda: module.probe(module.probe(1)),
        lambda: [module.probe(i) for i in range(2)][1],
        lambda: list(map(probe, [1]))[0],
        lambda: functools.partial(probe, 1)(),
        lambda: getattr(module, "probe")(1),  # noqa: B009
        through_variable,
        over_lines,
    ],
)
def test_own_calls(call: Any) -> None:
    assert call() is True


def test_calls_by_compiled_code_of_another_method() -> None:
    class Compiled:
        draw = staticmethod(functools.partial(probe, 1))

    compiled = Compiled()
    found = compiled.draw()
    assert found is False


def test_cython_gets_ndarrays() -> None:
    import tenferro as tn

    kept: queue.SimpleQueue[type] = queue.SimpleQueue()

    @tn.jit
    def f(x: Any) -> Any:
        state = made()
        kept.put(type(state.uniform(size=3)))
        return x + np.zeros(3)

    original = np.random.RandomState

    def made() -> Any:
        return original(0)

    f(np.ones(3))
    assert kept.get() is np.ndarray
