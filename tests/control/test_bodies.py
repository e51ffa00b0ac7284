"""What bodies of loops, choices and lanes may read and write: the same jitted and not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError

Array = np.ndarray[Any, Any]
lax = tn.lax
TABLE = np.array([3.0, 1.0, 4.0, 1.0, 5.0])
PLACES = np.array([4, 0, 2])


def both(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [f, tn.jit(f)]


# -- outside arrays, indexed by what the body counts -------------------------------------------------------------------


@dataclass
class Tables:
    table: Array
    shared = TABLE * 2

    def at(self, k: Any) -> Any:
        return self.table[k]

    @property
    def doubled(self) -> Array:
        return self.table * 2

    @classmethod
    def of_class(cls, k: Any) -> Any:
        return cls.shared[k]

    @staticmethod
    def of_global(k: Any) -> Any:
        return TABLE[k]


TABLES = Tables(TABLE)
NESTED = {"tables": [TABLES, {"table": TABLE}]}


@functools.lru_cache
def remembered(n: int) -> Array:
    return np.arange(float(n))


def at_global(k: Any) -> Any:
    return TABLE[k]


def at_default(k: Any, table: Any = TABLE) -> Any:
    return table[k]


def in_a_closure() -> Callable[[Any], Any]:
    table = TABLE
    return lambda k: table[k]


READS: dict[str, tuple[Callable[[Any], Any], Array]] = {
    "a global": (lambda k: TABLE[k], TABLE),
    "a function's global": (lambda k: at_global(k), TABLE),
    "a closure": (in_a_closure(), TABLE),
    "a default": (lambda k: at_default(k), TABLE),
    "an attribute": (lambda k: TABLES.table[k], TABLE),
    "a method": (TABLES.at, TABLE),
    "a property": (lambda k: TABLES.doubled[k], TABLE * 2),
    "a class": (lambda k: Tables.shared[k], TABLE * 2),
    "a class method": (lambda k: Tables.of_class(k), TABLE * 2),
    "a static method": (lambda k: Tables.of_global(k), TABLE),
    "containers": (lambda k: NESTED["tables"][0].table[k] + NESTED["tables"][1]["table"][k], TABLE * 2),  # type: ignore
    "a partial": (functools.partial(lambda table, k: table[k], TABLE), TABLE),
    "what is remembered": (lambda k: remembered(5)[k], np.arange(5.0)),
}

RUNS: dict[str, Callable[[Callable[[Any], Any], Array], Any]] = {
    "vmap": lambda read, places: tn.vmap(read)(places),
    "map": lambda read, places: lax.map(read, places),
    "scan": lambda read, places: lax.scan(lambda c, k: (c, read(k)), 0, places)[1],
    "fori_loop": lambda read, places: lax.fori_loop(
        0, len(places), lambda i, ys: ys.at[i].set(read(places[i])), np.zeros(len(places))
    ),
    "while_loop": lambda read, places: lax.while_loop(
        lambda s: s[0] < len(places), lambda s: (s[0] + 1, s[1].at[s[0]].set(read(places[s[0]]))),
        (0, np.zeros(len(places))),
    )[1],
    "checkpoint": lambda read, places: np.stack([tn.checkpoint(read)(k) for k in places]),
    "vmap of vmap": lambda read, places: tn.vmap(lambda _: tn.vmap(read)(places))(np.zeros(1))[0],
    "grad of vmap": lambda read, places: tn.grad(lambda x: (x * tn.vmap(read)(places)).sum())(np.ones(len(places))),
    "vmap of jit": lambda read, places: tn.vmap(tn.jit(read))(places),
}  # fmt: skip


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("run", ["vmap", "scan"])
def test_outside_arrays_are_read_wherever_they_stand(read: str, run: str) -> None:
    function, table = READS[read]
    for f in both(lambda places: RUNS[run](function, places)):
        np.testing.assert_array_equal(f(PLACES), table[PLACES])


@pytest.mark.parametrize("run", RUNS)
def test_outside_arrays_are_read_whatever_runs_the_body(run: str) -> None:
    for f in both(lambda places: RUNS[run](at_global, places)):
        np.testing.assert_array_equal(f(PLACES), TABLE[PLACES])


def test_a_place_on_the_side_that_is_not_taken_is_not_read() -> None:
    for f in both(lambda k: lax.cond(k < 5, lambda k: TABLE[k], lambda k: -1.0, k)):
        assert (f(np.int64(4)), f(np.int64(12))) == (5.0, -1.0)
    for f in both(lambda k: lax.switch(k, [lambda k: TABLE[k + 100], lambda k: TABLE[k]], k)):
        assert f(np.int64(1)) == 1.0


def test_shapes_of_what_is_read_by_a_traced_place() -> None:
    assert tn.eval_shape(lambda k: TABLE[k], PLACES).shape == (3,)


@tn.custom_vjp
def scaled(x: Any, k: Any) -> Any:
    return x * TABLE[k]


scaled.defvjp(lambda x, k: (x * TABLE[k], k), lambda k, ct: (ct * TABLE[k], None))


@tn.custom_jvp
def scaled_forward(x: Any, k: Any) -> Any:
    return x * TABLE[k]


@scaled_forward.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, k), t = primals, tangents[0]
    return x * TABLE[k], t * TABLE[k]


@pytest.mark.parametrize("function", [scaled, scaled_forward])
def test_rules_read_outside_arrays_in_bodies(function: Any) -> None:
    def loss(x: Any) -> Any:
        return lax.scan(lambda c, k: (function(c, k), None), x, PLACES)[0]

    for f in both(tn.grad(loss)):
        assert f(2.0) == pytest.approx(np.prod(TABLE[PLACES]))
    for f in both(tn.vmap(tn.grad(function), (0, 0))):
        np.testing.assert_array_equal(f(np.ones(3), PLACES), TABLE[PLACES])


def test_an_index_out_of_range_raises() -> None:
    for f in both(tn.vmap(at_global)):
        with pytest.raises(IndexError, match="indices contain 5"):
            f(np.array([0, 5]))


def test_a_body_does_not_write_outside() -> None:
    counts = np.zeros(3)

    def counting(v: Any) -> Any:
        counts[0] += 1
        return v

    for f in both(tn.vmap(counting)):
        with pytest.raises(MutationError, match="from around the function under vmap"):
            f(PLACES)
    np.testing.assert_array_equal(counts, np.zeros(3))


def test_outside_is_as_before_when_a_body_has_run() -> None:
    """The functions run as copies: nothing of those is left in classes, modules and cells."""
    before = dict(vars(Tables)), globals()["TABLE"]
    tn.vmap(lambda k: Tables.of_class(k) + TABLES.at(k))(PLACES)
    with pytest.raises(ZeroDivisionError):
        tn.vmap(lambda k: TABLES.at(k) + 1 // 0)(PLACES)
    assert dict(vars(Tables)) == before[0] and TABLE is before[1]
    assert type(TABLES.table) is np.ndarray


# -- carries ---------------------------------------------------------------------------------------------------------


def added(i: Any, c: Any) -> Any:
    c += i
    c[0] = 10.0
    return c


def test_a_carry_is_the_loops_own() -> None:
    x = np.arange(3.0)
    expected = np.array([10.0, 4.0, 5.0])
    for f in both(lambda x: lax.fori_loop(0, 3, added, x)):
        np.testing.assert_array_equal(f(x), expected)
    for f in both(lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, added(*s)), (0, x))[1]):
        np.testing.assert_array_equal(f(x), expected)

    def turn(c: Any, v: Any) -> Any:
        c = added(v, c)
        return c, c

    for f in both(lambda x: lax.scan(turn, x, np.arange(3.0))):
        last, stacked = f(x)
        np.testing.assert_array_equal(last, expected)
        np.testing.assert_array_equal(stacked, [[10, 1, 2], [10, 2, 3], [10, 4, 5]])
    np.testing.assert_array_equal(x, np.arange(3.0))


def test_a_carry_that_is_written_has_derivatives_and_lanes() -> None:
    def f(x: Any) -> Any:
        return (lax.fori_loop(1, 3, lambda i, c: np.multiply(c, i, out=c), x) ** 2).sum()

    x = np.arange(3.0)
    for g in both(tn.grad(f)):
        np.testing.assert_array_equal(g(x), 8 * x)
    for g in both(tn.vmap(lambda v: lax.fori_loop(0, 3, added, v))):
        np.testing.assert_array_equal(g(np.stack([x, x + 1])), [[10, 4, 5], [10, 5, 6]])


def test_one_array_carried_twice_is_two() -> None:
    def turn(i: Any, c: Any) -> Any:
        c[0][0] = 7.0
        return c

    for f in both(lambda x: lax.fori_loop(0, 1, turn, (x, x))):
        first, second = f(np.zeros(2))
        np.testing.assert_array_equal(first, [7, 0])
        np.testing.assert_array_equal(second, [0, 0])


def test_what_else_a_body_is_given_is_not_its_own() -> None:
    def write(x: Any) -> Any:
        x[0] = 1.0
        return x

    rows = np.zeros((2, 3))
    refused: dict[str, Callable[[Any], Any]] = {
        "a slice of the xs of scan": lambda x: lax.scan(lambda c, v: (c, write(v)), 0.0, x),
        "argument of vmap": tn.vmap(write),
        "operand of cond": lambda x: lax.cond(True, write, write, x[0]),
        "the value that the condition": lambda x: lax.while_loop(lambda c: write(c).sum() > 9, lambda c: c, x[0]),
    }
    for what, function in refused.items():
        for f in both(function):
            with pytest.raises(MutationError, match=f"write: {what}.* x.copy\\(\\) makes one"):
                f(rows)
    np.testing.assert_array_equal(rows, 0.0)


# -- loops of no turns -----------------------------------------------------------------------------------------------

NO_TURNS: dict[str, Callable[[Any], Any]] = {
    "fori_loop": lambda x: lax.fori_loop(0, 0, lambda i, c: c * 2, x),
    "scan": lambda x: lax.scan(lambda c, v: (c * v, None), x, np.zeros(0))[0],
    "while_loop": lambda x: lax.while_loop(lambda c: c.sum() > 99, lambda c: c[::-1], x),
    "a seam in the body": lambda x: lax.fori_loop(0, 0, lambda i, c: np.cumsum(c), x),
    "associative_scan": lambda x: lax.associative_scan(np.add, x[:1])[0],
    "associative_scan of all": lambda x: lax.associative_scan(np.add, x.reshape(1, 3)),
}


@pytest.mark.parametrize("loop", NO_TURNS)
def test_the_result_of_no_turns_is_an_array_of_its_own(loop: str) -> None:
    x = np.arange(3.0)
    for f in both(NO_TURNS[loop]):
        found = f(x)
        assert not np.shares_memory(found, x)
        np.testing.assert_array_equal(np.ravel(found), x[: np.size(found)])


def test_results_of_no_turns_do_not_share_memory() -> None:
    for f in both(lambda x: lax.fori_loop(0, 0, lambda i, c: (c[1], c[0]), (x, x))):
        a, b = f(np.arange(3.0))
        assert not np.shares_memory(a, b)


@pytest.mark.parametrize("n", [0, 2])
def test_no_turns_give_the_type_of_many(n: int) -> None:
    for f in both(lambda c: lax.fori_loop(0, n, lambda i, c: c * np.float32(1), c)):
        assert type(f(1.5)) is np.float32
    for f in both(lambda c: lax.fori_loop(0, n, lambda i, c: c * 1.0, c)):
        assert type(f(1)) is np.float64
    for f in both(lambda c: lax.scan(lambda c, v: (c, v * 2), c, np.zeros((n, 2), np.float32))):
        last, stacked = f(1)
        assert type(last) is np.int64 and stacked.dtype == np.float32 and stacked.shape == (n, 2)
