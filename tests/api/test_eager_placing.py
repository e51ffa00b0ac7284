"""``tn.on`` outside traced functions: where eager operations run, and what stays where it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tenferro.engines.engine import Engine
from tests.runtime.engines import several

X = np.arange(12.0).reshape(3, 4) - 5


@pytest.fixture(autouse=True)
def engines() -> Iterator[list[Engine]]:
    with several(2) as found:
        yield found


MADE: dict[str, Callable[[Any], Any]] = {
    "operator": lambda a: a + a,
    "reflected": lambda a: 2 - a,
    "ufunc": lambda a: np.exp(a),
    "reduction": lambda a: a.sum(axis=0),
    "number": lambda a: a.mean(),
    "array of NumPy beside it": lambda a: a * X,
    "list": lambda a: np.concatenate([a, a * 2]),
    "keyword": lambda a: np.sum(a=a, axis=1),
    "static": lambda a: np.round(a / 3, decimals=1),
    "library": lambda a: np.sort(a, axis=0),
    "two results": lambda a: np.divmod(a, 2)[1],
    "lax": lambda a: tn.lax.rsqrt(a * a + 1),
    "created": lambda a: tnp.zeros(3) + 1,
    "of a list": lambda a: tnp.sin([1.0, 2.0]),
    "array": lambda a: tn.array([1.0, 2.0]),
    "asarray": lambda a: tn.asarray(X.copy()),
    "astype": lambda a: a.astype(np.float32),
    "copy": lambda a: np.where(a > 0, a, 0),
}


@pytest.mark.parametrize("name", MADE)
def test_results_lie_there(name: str, engines: list[Engine]) -> None:
    function = MADE[name]
    for engine in (engines[1], "cpu:1"):
        a = tn.asarray(X.copy())
        for _ in range(3):  # the third call is a native one elsewhere
            wanted = function(a)
        with tn.on(engine):
            found = function(a)
        assert wanted.engine is engines[0] and found.engine is engines[1]
        assert found.dtype == wanted.dtype and found.shape == wanted.shape and found._scalar == wanted._scalar
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
        assert function(a).engine is engines[0]


def test_arrays_of_several_engines_meet(engines: list[Engine]) -> None:
    a, b = tn.asarray(X.copy()), tn.asarray(X.copy(), engine="cpu:1")
    with pytest.raises(tn.LoweringError, match="one engine is needed"):
        a + b
    for engine in engines:
        with tn.on(engine):
            assert (a + b).engine is engine


def test_views_and_what_is_written_stay(engines: list[Engine]) -> None:
    a, b = tn.asarray(X.copy()), tn.asarray(X.copy(), engine="cpu:1")
    with tn.on("cpu:1"):
        assert a[1].engine is a.T.engine is a.reshape(-1).engine is engines[0]
        row = a[1]
        row[0] = np.float32(40)
        a += 1
        np.multiply(a, 2, out=a)
        np.add.at(a, (0, 0), 5)
        np.copyto(a[2], 3)
        np.nan_to_num(a, copy=False)
        assert a.engine is engines[0] and (a * b).engine is engines[1]
    expected = X.copy()
    expected[1, 0] = 40
    expected = (expected + 1) * 2
    expected[0, 0] += 5
    expected[2] = 3
    np.testing.assert_array_equal(np.asarray(a), expected)


def test_scopes_nest_and_end(engines: list[Engine]) -> None:
    a, place = tn.asarray(X.copy()), tn.on("cpu:1")
    with place:
        with tn.on("cpu:0"):
            assert (a + 1).engine is engines[0]
            with place:
                assert (a + 1).engine is engines[1]
        assert (a + 1).engine is engines[1]
    with pytest.raises(ZeroDivisionError), place:
        raise ZeroDivisionError
    assert (a + 1).engine is engines[0]


def test_it_holds_for_its_thread(engines: list[Engine]) -> None:
    a, found = tn.asarray(X.copy()), list[Engine]()
    with tn.on("cpu:1"):
        thread = threading.Thread(target=lambda: found.append((a + 1).engine))
        thread.start()
        thread.join()
    assert found == [engines[0]]


def test_one_scope_in_and_outside_a_trace(engines: list[Engine]) -> None:
    place, a = tn.on("cpu:1"), tn.asarray(X.copy())

    @tn.jit
    def f(x: Any) -> Any:
        with place:
            y = np.sin(x)
        return y + 1

    assert {n.engine for n in f.lower(a).schedule.nodes} == {0, 1}
    with place:
        found = f(a)  # a jitted function runs where its arguments are
    assert found.engine is engines[0]
    np.testing.assert_array_equal(np.asarray(found), np.asarray(f(a)))


def test_unknown_engines_and_no_engines() -> None:
    from tenferro.engines.errors import UnknownEngineError

    with pytest.raises(UnknownEngineError, match="'cpu:7' is not registered"):
        tn.on("cpu:7")
    with pytest.raises(TypeError, match="on: engine is 3 of class int"):
        tn.on(3)  # type: ignore[arg-type]


def test_the_reference_engine_computes_the_same() -> None:
    a = tn.asarray(np.linspace(-2, 2, 50))
    with tn.on("reference:0"):
        found: Any = np.tanh(a) * 2 + a
    assert found.engine.id == "reference:0"
    np.testing.assert_allclose(np.asarray(found), np.tanh(np.linspace(-2, 2, 50)) * 2 + np.linspace(-2, 2, 50))
