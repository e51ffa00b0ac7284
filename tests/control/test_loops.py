"""Loops against the same loops in Python: results, derivatives, lanes; jitted and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError, ShapeError, TraceError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
X = RNG.uniform(0.2, 1.5, 7)
W = RNG.uniform(-0.5, 0.5, (4, 4))
ROWS = RNG.uniform(-1, 1, (6, 4))


def both(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [f, tn.jit(f)]


def differences(f: Callable[[Array], Any], x: Array, step: float = 1e-6) -> Array:
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        d = np.zeros_like(x)
        d[place] = step
        found[place] = (float(f(x + d)) - float(f(x - d))) / (2 * step)
    return found


# Each: a function of a vector, the same in plain Python, and what runs it: one kernel, a block a turn, or Python.


def running(x: Any) -> Any:
    return tn.lax.scan(lambda c, v: (np.sin(c) + v, c * v), 0.0, x)


def running_in_python(x: Array) -> tuple[Any, Array]:
    c, ys = 0.0, []
    for v in x:
        ys.append(c * v)
        c = np.sin(c) + v
    return c, np.array(ys)


def backwards(x: Any) -> Any:
    return tn.lax.scan(lambda c, v: (c * v + 1, c - v), 1.0, x, reverse=True)


def backwards_in_python(x: Array) -> tuple[Any, Array]:
    c, ys = 1.0, np.zeros_like(x)
    for k in range(len(x))[::-1]:
        ys[k] = c - x[k]
        c = c * x[k] + 1
    return c, ys


def recurrent(x: Any) -> Any:
    return tn.lax.scan(lambda h, v: (np.tanh(h @ W + v), h.sum()), np.zeros(4), ROWS * x[0])


def recurrent_in_python(x: Array) -> tuple[Any, Array]:
    h, ys = np.zeros(4), []
    for v in ROWS * x[0]:
        ys.append(h.sum())
        h = np.tanh(h @ W + v)
    return h, np.array(ys)


def selecting(x: Any) -> Any:
    """A call at a seam in each turn: bodies run from Python."""
    return tn.lax.scan(lambda c, v: (np.cumsum(c * v), c[0]), np.ones(3), x)


def selecting_in_python(x: Array) -> tuple[Any, Array]:
    c, ys = np.ones(3), []
    for v in x:
        ys.append(c[0])
        c = np.cumsum(c * v)
    return c, np.array(ys)


def nested(x: Any) -> Any:
    def outer(c: Any, v: Any) -> Any:
        inner, _ = tn.lax.scan(lambda d, w: (d * w + v, None), c, x)
        return inner, inner * v

    return tn.lax.scan(outer, 0.5, x)


def nested_in_python(x: Array) -> tuple[Any, Array]:
    c, ys = 0.5, []
    for v in x:
        for w in x:
            c = c * w + v
        ys.append(c * v)
    return c, np.array(ys)


def repeated(x: Any) -> Any:
    return tn.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, np.sin(s[1]) * x), (0, x))[1], x * 0


def repeated_in_python(x: Array) -> tuple[Any, Array]:
    y = x
    for _ in range(5):
        y = np.sin(y) * x
    return y, x * 0


def until_small(x: Any) -> Any:
    """The number of turns depends on the values."""
    return tn.lax.while_loop(lambda y: y.sum() > 1.0, lambda y: y * x * 0.7, x), x * 0


def until_small_in_python(x: Array) -> tuple[Any, Array]:
    y = x
    while y.sum() > 1.0:
        y = y * x * 0.7
    return y, x * 0


def counted(x: Any) -> Any:
    return tn.lax.fori_loop(1, 4, lambda i, v: v * x + i, x), x * 0


def counted_in_python(x: Array) -> tuple[Any, Array]:
    y = x
    for i in range(1, 4):
        y = y * x + i
    return y, x * 0


LOOPS = [
    (running, running_in_python), (backwards, backwards_in_python), (recurrent, recurrent_in_python),
    (selecting, selecting_in_python), (nested, nested_in_python), (repeated, repeated_in_python),
    (until_small, until_small_in_python), (counted, counted_in_python),
]  # fmt: skip
NAMES = [f.__name__ for f, _ in LOOPS]


def total(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def loss(x: Any) -> Any:
        c, ys = f(x)
        return np.sum(c * c) + np.sum(np.cos(ys))

    return loss


@pytest.mark.parametrize(("loop", "plain"), LOOPS, ids=NAMES)
def test_results_are_those_of_the_loop_in_python(loop: Any, plain: Any) -> None:
    for f in both(loop):
        for found, expected in zip(f(X), plain(X), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13)
            assert np.shape(found) == np.shape(expected)


@pytest.mark.parametrize(("loop", "plain"), LOOPS, ids=NAMES)
def test_gradients_are_differences(loop: Any, plain: Any) -> None:
    expected = differences(total(plain), X)
    for f in both(tn.grad(total(loop))):
        np.testing.assert_allclose(f(X), expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(("loop", "plain"), LOOPS, ids=NAMES)
def test_tangents_are_what_gradients_say(loop: Any, plain: Any) -> None:
    direction = RNG.uniform(-1, 1, X.shape)
    _, slope = tn.jvp(total(loop), (X,), (direction,))
    np.testing.assert_allclose(slope, direction @ tn.grad(total(loop))(X), rtol=1e-10)


@pytest.mark.parametrize(("loop", "plain"), LOOPS, ids=NAMES)
def test_second_derivatives_are_differences_of_gradients(loop: Any, plain: Any) -> None:
    gradient = tn.jit(tn.grad(total(loop)))
    expected = differences(lambda x: gradient(x).sum(), X)
    found = tn.grad(lambda x: tn.grad(total(loop))(x).sum())(X)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("loop", "plain"), LOOPS, ids=NAMES)
def test_lanes_have_the_bits_of_each_alone(loop: Any, plain: Any) -> None:
    lanes = RNG.uniform(0.2, 1.4, (5, len(X)))
    for f in both(tn.vmap(loop)):
        found = f(lanes)
        for k, x in enumerate(lanes):
            for mine, alone in zip(found, loop(x), strict=True):
                np.testing.assert_array_equal(mine[k], alone)


@pytest.mark.parametrize(("loop", "plain"), LOOPS, ids=NAMES)
def test_gradients_in_lanes(loop: Any, plain: Any) -> None:
    lanes = RNG.uniform(0.2, 1.4, (4, len(X)))
    expected = np.stack([tn.grad(total(loop))(x) for x in lanes])
    for f in both(tn.vmap(tn.grad(total(loop)))):
        np.testing.assert_allclose(f(lanes), expected, rtol=1e-12)
    summed = tn.grad(lambda x: tn.vmap(total(loop))(x).sum())
    np.testing.assert_allclose(summed(lanes), expected, rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_threads(threads: int) -> None:
    x = RNG.uniform(0, 1, (3, 50_000))
    f = tn.jit(lambda x: tn.lax.scan(lambda c, v: (np.sin(c) + v, c), np.zeros(50_000), x))
    expected = f(x)
    with tn.threads(threads):
        found = f(x)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_program_serves_every_length() -> None:
    f = tn.jit(lambda x: tn.lax.scan(lambda c, v: (c + v, c), 0.0, x))
    for n in (3, 1, 10, 100):
        x = RNG.uniform(0, 1, n)
        last, ys = f(x)
        np.testing.assert_allclose(last, x.sum())
        assert ys.shape == (n,)
    assert len(f.explain().traces) == 1


def test_numbers_of_a_loop_live_as_long_as_its_native_call() -> None:
    """A number that begins a loop is read by address, also from calls of sizes that were never met."""
    f = tn.jit(lambda x: tn.lax.scan(lambda c, v: (np.sin(c * v) + 0.25, None), 0.7, x)[0])
    for k in range(400):
        x = np.linspace(0.1, 2, 3 + k % 97)
        found, expected = f(x), 0.7
        others = [np.array(3.0 + i) for i in range(50 + k % 7)]  # take the place of numbers that are let go of
        for v in x:
            expected = np.sin(expected * v) + 0.25
        assert float(found) == pytest.approx(float(expected), rel=1e-12), (k, len(others))


@pytest.mark.parametrize("n", [0, 1])
def test_few_turns(n: int) -> None:
    x = np.arange(1.0, 1.0 + n)
    for f in both(running):
        last, ys = f(x)
        expected, stacked = running_in_python(x)
        assert float(last) == pytest.approx(float(expected))
        assert ys.shape == (n,)
        np.testing.assert_allclose(ys, stacked.reshape(n))
    for f in both(tn.grad(total(running))):
        assert f(x).shape == (n,)


def test_a_loop_of_no_turns_hands_on_what_it_was_given() -> None:
    for f in both(lambda x: tn.lax.while_loop(lambda y: y.sum() > 100.0, lambda y: y * 2, x)):
        np.testing.assert_array_equal(f(X), X)
    for f in both(tn.grad(lambda x: tn.lax.while_loop(lambda y: y.sum() > 100.0, lambda y: y * 2, x).sum())):
        np.testing.assert_array_equal(f(X), np.ones_like(X))


def test_lanes_stop_one_by_one() -> None:
    def collatz(n: Any) -> Any:
        def turn(s: Any) -> Any:
            n, count = s
            return np.where(n & 1 == 0, n >> 1, 3 * n + 1), count + 1

        return tn.lax.while_loop(lambda s: s[0] > 1, turn, (n, 0))[1]

    def plain(n: int) -> int:
        count = 0
        while n > 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    numbers = np.arange(1, 200)
    expected = [plain(int(n)) for n in numbers]
    for f in both(tn.vmap(collatz)):
        np.testing.assert_array_equal(f(numbers), expected)
    square = numbers[:196].reshape(14, 14)
    for f in both(tn.vmap(tn.vmap(collatz))):
        np.testing.assert_array_equal(f(square), np.reshape(expected[:196], (14, 14)))


def test_pytrees_are_carried_and_stacked() -> None:
    def turn(state: Any, x: Any) -> Any:
        new = {"a": state["a"] + x["u"], "b": (state["b"][0] * 0.5,)}
        return new, {"sum": new["a"] + new["b"][0]}

    xs = {"u": np.arange(3.0)}
    for f in both(lambda xs: tn.lax.scan(turn, {"a": np.float64(0), "b": (np.ones(2),)}, xs)):
        state, stacked = f(xs)
        assert float(state["a"]) == 3.0
        np.testing.assert_allclose(state["b"][0], np.full(2, 0.125))
        assert stacked["sum"].shape == (3, 2)


def test_map_is_a_loop_and_batches_are_lanes() -> None:
    expected = np.array([[r.sum(), r.max()] for r in ROWS])
    for size in (None, 1, 4, 6, 9):
        for f in both(lambda x, size=size: tn.lax.map(lambda r: np.stack([r.sum(), r.max()]), x, batch_size=size)):
            np.testing.assert_allclose(f(ROWS), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_results_of_an_associative_function(n: int, reverse: bool) -> None:
    x = RNG.uniform(0.5, 1.5, (n, 2))
    for f in both(lambda x: tn.lax.associative_scan(np.multiply, x, reverse=reverse)):
        expected = np.cumprod(x[::-1], 0)[::-1] if reverse else np.cumprod(x, 0)
        np.testing.assert_allclose(f(x), expected)


def test_an_index_out_of_range_in_a_turn_raises() -> None:
    f = tn.jit(lambda x: tn.lax.fori_loop(0, 10, lambda i, s: s + x[i], 0.0))
    assert float(f(np.ones(10))) == 10.0
    with pytest.raises(IndexError):
        f(np.ones(9))


def test_what_a_carry_must_be() -> None:
    with pytest.raises(ShapeError, match="carry"):
        tn.lax.scan(lambda c, x: (np.stack([c, c]), None), 0.0, X)
    with pytest.raises(ShapeError, match="structure"):
        tn.lax.scan(lambda c, x: ((c, c), None), 0.0, X)
    with pytest.raises(ShapeError, match="begins as"):
        tn.lax.scan(lambda c, x: (c * 1j, None), np.float64(0), X)
    with pytest.raises(TraceError, match="pair"):
        tn.lax.scan(lambda c, x: c, 0.0, X)
    with pytest.raises(ShapeError, match="entries"):
        tn.lax.scan(lambda c, x: (c, None), 0.0, (X, X[1:]))
    with pytest.raises(ShapeError, match="neither"):
        tn.lax.scan(lambda c, x: (c, None), 0.0)
    with pytest.raises(ShapeError, match="one bool"):
        tn.lax.while_loop(lambda y: y > 0, lambda y: y - 1, X)


def test_variables_around_a_body_are_read_and_not_written() -> None:
    @tn.jit
    def reads(x: Any) -> Any:
        weights = np.zeros(3)
        weights[1] = x[0]
        last, _ = tn.lax.scan(lambda c, v: (c + (weights * v).sum(), None), 0.0, x)
        weights[2] = 1.0
        return last, weights

    last, weights = reads(X)
    assert float(last) == pytest.approx(X[0] * X.sum())
    np.testing.assert_allclose(weights, [0, X[0], 1])

    @tn.jit
    def writes(x: Any) -> Any:
        found = np.zeros(3)

        def turn(c: Any, v: Any) -> Any:
            found[0] = v
            return c, None

        return tn.lax.scan(turn, 0.0, x)[0] + found[0]

    with pytest.raises(MutationError, match="scan"):
        writes(X)


def test_a_value_of_a_turn_cannot_be_kept() -> None:
    kept: list[Any] = []

    def keeps(x: Any) -> Any:
        def turn(c: Any, v: Any) -> Any:
            kept.append(c + v)
            return c, None

        return tn.lax.scan(turn, 0.0, x)[0] + kept[0]

    with pytest.raises(tn.LeakError):
        keeps(X)


@tn.jit
def keeps_a_slice(x: Any) -> Any:
    kept: list[Any] = []

    def turn(c: Any, v: Any) -> Any:
        kept.append(v)
        return c + v, None

    return tn.lax.scan(turn, 0.0, x)[0] + kept[0]


def test_a_slice_of_a_turn_cannot_be_kept() -> None:
    with pytest.raises(tn.LeakError, match="loop"):
        keeps_a_slice(X)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ShapeError, match="length is -1"):
        tn.lax.scan(lambda c, _: (c, None), 0.0, None, length=-1)


def test_elementwise_loops_are_one_kernel_in_the_block_around_them() -> None:
    f = tn.jit(lambda x: np.exp(tn.lax.scan(lambda c, v: (c * 0.5 + v, c), np.zeros(4), x)[0] + 1))
    x = RNG.uniform(0, 1, (30, 4))
    f(x)
    assert "seam" not in str(f.lower(x).as_text("segments"))
