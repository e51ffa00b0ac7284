"""Outside arrays that a function has read in a call outside ``jit``: a write before it returns is refused, and they are
as before when it has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError

X = np.ones(3)


def reusing(write: Callable[[Any, int], Any]) -> tuple[Any, Any]:
    """A function that computes with one buffer again and again, and the buffer."""
    buffer = np.zeros(3)

    def loss(x: Any) -> Any:
        total = 0.0
        for k in range(3):
            write(buffer, k)
            total = total + (buffer * x).sum()
        return total

    return loss, buffer


WRITES: dict[str, Callable[[Any, int], Any]] = {
    "item": lambda b, k: b.__setitem__(0, k),
    "slice": lambda b, k: b.__setitem__(slice(None), k),
    "in place": lambda b, k: np.add(b, k, out=b),
    "copyto": lambda b, k: np.copyto(b, k),
    "fill": lambda b, k: b.fill(k),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_buffer_that_is_used_again_is_refused(write: str) -> None:
    """The gradient would be that of the last contents for every use."""
    loss, buffer = reusing(WRITES[write])
    for f in (tn.grad(loss), tn.jit(tn.grad(loss)), tn.value_and_grad(loss)):
        with pytest.raises(MutationError, match="test_frozen_arrays"):
            f(X)
        assert buffer.flags.writeable
    with pytest.raises(MutationError, match=r"grad\(loss\): an outside array is written .* x.copy\(\) makes one"):
        tn.grad(loss)(X)
    copying, _ = reusing(lambda b, k: None)
    np.testing.assert_array_equal(tn.grad(copying)(X), np.zeros(3))


def test_an_argument_is_not_written_behind_the_functions_back() -> None:
    x = np.ones(3)

    def square(v: Any) -> Any:
        result = (v * v).sum()
        x[:] = 100.0
        return result

    with pytest.raises(MutationError, match="outside array is written"):
        tn.grad(square)(x)
    x[:] = 2.0
    np.testing.assert_array_equal(tn.grad(lambda v: (v * v).sum())(x), 2 * x)


def test_what_is_not_read_or_read_later_may_be_written() -> None:
    buffer, count = np.zeros(3), np.zeros(1)

    def loss(x: Any) -> Any:
        buffer[:] = 2.0
        total = (buffer * x).sum()
        count[0] += 1
        return total

    np.testing.assert_array_equal(tn.grad(loss)(X), np.full(3, 2.0))
    assert count[0] == 1


def test_arrays_are_writeable_again() -> None:
    whole = np.arange(6.0)
    view, other, fixed = whole[1:4], whole[3:], np.ones(3)
    fixed.flags.writeable = False

    def loss(x: Any) -> Any:
        return (view * x).sum() + (whole[:3] * other * x).sum() + (whole * whole).sum() + (fixed * x).sum()

    for f in (tn.grad(loss), tn.grad(lambda x: tn.grad(loss)(x).sum() + loss(x))):
        f(X)
        assert [a.flags.writeable for a in (whole, view, other, fixed)] == [True, True, True, False]
    with pytest.raises(ZeroDivisionError):
        tn.grad(lambda x: loss(x) + 1 // 0)(X)
    assert [a.flags.writeable for a in (whole, view, other, fixed)] == [True, True, True, False]


def test_arrays_of_others_memory_stay_writeable() -> None:
    memory = bytearray(24)
    borrowed = np.frombuffer(memory)
    assert borrowed.flags.writeable
    tn.grad(lambda x: (borrowed * x).sum())(X)
    borrowed[0] = 1.0


def test_two_threads_read_one_array() -> None:
    weights, results = np.arange(3.0), list[Any]()
    inside, done = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        found = (weights * x).sum()
        inside.set()
        assert done.wait(60)
        return found

    thread = threading.Thread(target=lambda: results.append(tn.grad(slow)(X)))
    thread.start()
    assert inside.wait(60)
    np.testing.assert_array_equal(tn.grad(lambda x: (weights * x).sum())(X), weights)
    assert not weights.flags.writeable  # the other thread's call has not ended
    done.set()
    thread.join()
    np.testing.assert_array_equal(results[0], weights)
    assert weights.flags.writeable


def test_elements_at_known_places_are_numbers_of_a_body() -> None:
    table = np.array([2.0, 3.0])
    for f in (g := tn.vmap(lambda v: v * table[1] + table[-2]), tn.jit(g)):
        np.testing.assert_array_equal(f(X), np.full(3, 5.0))
    for f in (g := tn.vmap(lambda v: v * table[2]), tn.jit(g)):
        with pytest.raises(IndexError, match="index 2"):
            f(X)
    half = table.astype(np.float32)
    for f in (g := tn.vmap(lambda v: v * half[0]), tn.jit(g)):
        assert f(X.astype(np.float16)).dtype == np.float32
