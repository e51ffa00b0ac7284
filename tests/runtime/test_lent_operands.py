"""What executors of extension families are lent: they may read it, and what they may not do is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.runtime import Configuration, ExtensionModule, Family
from tests.oracle import both_engines

seen: list[tuple[bool, ...]] = []


def _same(types: Any, params: Any) -> Any:
    return (types[0],)


def _writing(lent: Any, x: Any) -> Any:
    x += 1
    return x.copy()


def _looking(lent: Any, *arrays: Any) -> Any:
    seen.append(tuple(a.flags.writeable for a in arrays))
    return arrays[0] * 2


def _returning(lent: Any, x: Any) -> Any:
    return x


write = Family("test.write.v1", _same, lambda x: x + 1)
look = Family("test.look.v1", _same, lambda *xs: xs[0] * 2)
give = Family("test.give.v1", _same, lambda x: x)
careless = Family("test.careless.v1", _same, lambda x: np.negative(x, out=x))
MODULE = ExtensionModule(
    "test.lent",
    (write, look, give, careless),
    {(write.name, "cpu"): _writing, (look.name, "cpu"): _looking, (give.name, "cpu"): _returning},
)
X = np.arange(5.0)


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    def install(configuration: Configuration) -> None:
        configuration.install_extension(MODULE)

    def remove(configuration: Configuration) -> None:
        configuration.modules.remove(MODULE)

    runtime = tn.default_runtime()
    runtime.reconfigure(install)
    yield
    runtime.reconfigure(remove)
    seen.clear()


def test_an_operand_is_not_written() -> None:
    for call in (lambda x: write(x), lambda x: write(x * 2) - x, lambda x: careless(x)):
        x = X.copy()
        with pytest.raises(ValueError, match="read-only") as raised:
            tn.jit(call)(x)
        (note,) = raised.value.__notes__
        assert "operands are lent read-only, a copy of one can be written" in note and "test_lent_operands.py:" in note
        np.testing.assert_array_equal(x, X)
    a = tn.asarray(X.copy())
    with pytest.raises(ValueError, match="read-only"):
        write(a)
    np.testing.assert_array_equal(np.asarray(a), X)


def test_every_operand_is_lent_read_only() -> None:
    found = tn.jit(lambda x, y: look(x, y + 1, x[::-1]))(X, X)
    assert seen == [(False, False, False)] and found.tolist() == (X * 2).tolist() and found.flags.writeable
    assert X.flags.writeable


def test_results_are_writeable_though_operands_are_not() -> None:
    x = X.copy()
    found = tn.jit(lambda x: give(x))(x)
    assert found.flags.writeable and not np.shares_memory(found, x)
    inside = tn.jit(lambda x: give(x * 1.5) * 2)
    np.testing.assert_array_equal(inside(x), X * 3)


def test_the_reference_is_lent_the_same_on_the_reference_engine() -> None:
    with both_engines(), pytest.raises(ValueError, match="read-only"):
        tn.jit(lambda x: careless(x), engine="reference:0")(X.copy())
