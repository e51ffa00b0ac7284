"""Functions that select by masks are native calls whatever is selected: NumPy's answers, errors included."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import toolchain
from tests.api.native import native_hits as hits

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)


class Pair(NamedTuple):
    low: Any
    high: Any


def twice(x: Any) -> Any:
    y = x[x > 0]
    return y[y > 1]


def thrice(x: Any) -> Any:
    y = x[x > -1]
    z = y[y < 1]
    return z[z * z > 0.25] - z.sum()


def of_two(x: Any) -> Any:
    y, z = x[x > 0], x[x < 0]
    return y * 2, z.sum(), y.sum() - z.sum()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x[x > 0],
    "sum": lambda x: np.exp(x[x > 0]).sum(),
    "twice": twice,
    "thrice": thrice,
    "of two": of_two,
    "views": lambda x: (x[x > 0][::-2], x[x > 0].reshape(-1, 1)),
    "places": lambda x: np.nonzero(x > 0)[0],
    "containers": lambda x: {"a": [x[x > 0]], "b": Pair(x[x < 0], 3)},
    "with an input": lambda x: (x, x[x > 0], x[:3]),
    "bools": lambda x: (x > 0)[x < 1],
    "small": lambda x: x.astype(np.int8)[x > 0],
    "halves": lambda x: x.astype(np.int16)[x > 0] * 2,
    "complex": lambda x: (x + 1j * x)[x > 0] * 2,
    "rows": lambda x: np.stack([x, x * 2, x - 1], 1)[x > 0],
    "planes": lambda x: x.reshape(-1, 4, 3)[x.reshape(-1, 4, 3)[:, :, 0] > 0],
    "two axes": lambda x: x.reshape(-1, 4)[x.reshape(-1, 4) > 0],
    "outer": lambda x: np.outer(x[x > 0][:400], x[x < 0][-300:]),
    "product": lambda x: np.stack([x, x], 1)[x > 0].T @ np.stack([x, x], 1)[x > 0],
    "its length": lambda x: (x[x > 0].shape[0] + 1, x[x < 0]),
    "its mean": lambda x: x[x > 0].sum() / (x[x > 0].shape[0] + 1),
    "every other": lambda x: x[::2][x[::2] > 0],
    "from behind": lambda x: x[::-1][x > 0],
    "a column": lambda x: x.reshape(-1, 4)[:, 1][x.reshape(-1, 4)[:, 0] > 0],
    "rows with gaps": lambda x: x.reshape(-1, 4)[:, :3][x.reshape(-1, 4)[:, 0] > 0],
    "by what was selected": lambda x: x[x > 0][:, None] * x[x > 0][None, :5],
}


def inputs(size: int, runs: int) -> list[np.ndarray[Any, Any]]:
    """Arrays of which every part is selected, from nothing to all."""
    rng = np.random.default_rng(size)
    found = [rng.standard_normal(size) + shift for shift in np.linspace(-2, 2, runs - 2)]
    return [*found, np.full(size, -1.5), np.full(size, 1.5)]


def same(found: Any, wanted: Any) -> None:
    assert tn.tree.structure(found) == tn.tree.structure(wanted)
    for a, b in zip(tn.tree.leaves(found), tn.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        if isinstance(b, np.ndarray | np.generic):
            assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpys_answers(name: str) -> None:
    f = FUNCTIONS[name]
    jitted = tn.jit(lambda x: f(x))
    for size in (300, 12, 5_004):
        before, given = hits(jitted), inputs(size, 20)
        for x in given * 2:
            same(jitted(x), f(x))
        assert hits(jitted) - before > len(given)  # the second time round most are native calls


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_call_may_have_another_size(name: str) -> None:
    f = FUNCTIONS[name]
    jitted = tn.jit(lambda x: f(x))
    rng = np.random.default_rng(0)
    for size in range(600, 1_080, 12):
        x = rng.standard_normal(size)
        same(jitted(x), f(x))
    assert hits(jitted) > 25


@pytest.mark.parametrize("name", ["twice", "rows", "outer"])
def test_the_bits_do_not_depend_on_threads_or_on_the_way(name: str) -> None:
    f = FUNCTIONS[name]
    given = inputs(2_000 if name == "outer" else 600_000, 8)[:7]
    for x in given[::3]:
        jitted = tn.jit(lambda x: f(x))
        first = tn.tree.leaves(jitted(x))
        for threads in (1, 2, 3):
            with tn.threads(threads):
                for _ in range(4):
                    for a, b in zip(tn.tree.leaves(jitted(x)), first, strict=True):
                        assert a.tobytes() == b.tobytes()
        assert hits(jitted) > 6


def test_arrays_and_numbers_of_every_kind() -> None:
    f = tn.jit(lambda x, least, scale=1.0: x[x > least] * scale)
    x = np.arange(20.0)
    for k in range(30):
        np.testing.assert_array_equal(f(x, float(k)), x[x > k])
        np.testing.assert_array_equal(f(x, np.float64(k), scale=2.0), x[x > k] * 2)
        found = f(tn.asarray(x), float(k))
        assert isinstance(found, tn.Array)
        np.testing.assert_array_equal(np.asarray(found), x[x > k])
    assert hits(f) > 60


def test_what_a_stage_reports_is_raised() -> None:
    def f(x: Any, i: Any) -> Any:
        return x[x > 0][i]

    jitted, x, i = tn.jit(f), np.arange(-5.0, 5.0), np.array([0, 3])
    for _ in range(6):
        np.testing.assert_array_equal(jitted(x, i), f(x, i))
    assert hits(jitted)
    for _ in range(3):
        with pytest.raises(IndexError, match="index 4 is out of bounds|indices contain 4"):
            jitted(x, np.array([0, 4]))
        np.testing.assert_array_equal(jitted(x, i), f(x, i))


def test_nothing_is_kept_and_nothing_given_up_twice() -> None:
    jitted = tn.jit(lambda x: (lambda y: (x, y, y[::2], y[y > 2]))(x[x > 0]))
    given = [np.arange(40.0) - k for k in range(30)]
    for x in given * 2:
        jitted(x)
    before = [sys.getrefcount(x) for x in given]
    start = sys.getallocatedblocks()
    for _ in range(200):
        for x in given:
            found = jitted(x)
    assert [sys.getrefcount(x) for x in given] == [n + (k == len(given) - 1) for k, n in enumerate(before)]
    # Of the tuple, of the comparison, and the first of them of its view.
    assert [sys.getrefcount(found[k]) for k in (1, 2, 3)] == [3, 2, 2]
    del found
    assert sys.getallocatedblocks() - start < 200
    assert hits(jitted) > 5_000


def test_threads_have_frames_of_their_own() -> None:
    jitted = tn.jit(FUNCTIONS["thrice"])
    given = inputs(500, 20)
    wanted = [jitted(x).tobytes() for x in given]

    def work(turn: int) -> bool:
        order = [(k * 7 + turn) % len(given) for k in range(len(given))] * 20
        return all(jitted(given[k]).tobytes() == wanted[k] for k in order)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_a_mask_that_others_write_to_meanwhile() -> None:
    """What is selected then is anybody's guess, but nothing is written where it does not belong."""
    x, rows = np.arange(400_000.0), np.arange(1_200_000.0).reshape(-1, 3)
    mask, stop = np.zeros(x.size, bool), threading.Event()
    jitted, of_rows = tn.jit(lambda x, m: x[m]), tn.jit(lambda x, m: x[m] * 2)

    def write() -> None:
        while not stop.is_set():
            mask[:] = ~mask

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        try:
            for _ in range(60):
                with contextlib.suppress(tn.ShapeError):
                    assert jitted(x, mask).shape[0] <= x.size and of_rows(rows, mask).shape[1:] == (3,)
        finally:
            stop.set()
        written.result()
    mask[:] = x % 3 == 0
    np.testing.assert_array_equal(jitted(x, mask), x[mask])
    np.testing.assert_array_equal(of_rows(rows, mask), rows[mask] * 2)


def test_memory_that_is_not_there_is_named() -> None:
    x = np.arange(4_000_000.0)
    jitted = tn.jit(lambda x, least: np.outer(x[x >= least], x[x >= least]))
    for count in (20, 30, 40, 30, 20):
        assert jitted(x, float(x.size - count)).shape == (count, count)
    assert hits(jitted)
    with pytest.raises(tn.MemoryLimitError, match=r"\(3999990, 3999990\)"):
        jitted(x, 10.0)
    assert jitted(x, float(x.size - 25)).shape == (25, 25)


def test_arrays_that_are_not_in_order_are_numpys_to_select_from() -> None:
    jitted = tn.jit(lambda x: x[x > 0] * 2)
    x = np.random.default_rng(0).standard_normal((30, 20))
    for layout in (x, x.T, x[::2, ::-1], np.asfortranarray(x), x[:, :1], x[:0]):
        for _ in range(5):
            np.testing.assert_array_equal(jitted(layout), layout[layout > 0] * 2)


def test_a_size_that_no_int64_holds_is_named() -> None:
    f = tn.jit(lambda x: x[x > 0].shape[0] ** 6)
    for _ in range(5):
        assert f(np.ones(10)) == 10**6
    with pytest.raises(tn.RangeError, match="int64"):
        f(np.ones(2000))
    assert f(np.ones(9)) == 9**6
