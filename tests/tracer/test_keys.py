"""Keys of every form that NumPy takes, read and written through, jitted and eager, on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import BoundsError, TraceError
from tests import oracle
from tests.oracle import agrees, jitted_agrees
from tests.tracer.tracing import op_names, traced

ARRAYS = {"rank 0": np.array(3.0), "rank 2": np.arange(6.0).reshape(2, 3), "empty": np.zeros((0, 3))}
MASK = np.array([True, False])
KEYS: list[Any] = [
    True, False, np.True_, np.False_, np.array(True), np.array(False), None, ..., (), (True, 0), (0, True),
    (True, slice(None)), (True, True), (True, False), (None, True), (True, None), (..., True), (True, ...),
    (True, [0, 1]), ([0, 1], True), (False, [0, 1]), (False, [0]), (slice(None), True), (slice(None), False),
    (slice(None), True, 0), (0, slice(None), True), (True, slice(None), 0), (np.array(True), 0), (None, ..., False),
    (True, [[0], [1]]), (False, []), [], [[]], [True, False], [[True, False, True], [False, False, True]],
    (True, slice(1, None)), (False, slice(1, None)), MASK, (MASK, True), (True, MASK), (False, MASK), (MASK, [0]),
    (MASK, [True, False, True]), (MASK, 0), (0, [True, False, True]), (0, None, [True, False, True]), np.array(1),
    (slice(None), np.array(1)), np.int64(1), (None, 0), (0, ...), (True, np.array(0)), (slice(None), [0], True),
    ([0], slice(None), True), ([0], None, True), ([0, 1], [0, 1, 2]),
    slice(None, None, 0), slice("a", None), slice(1.5, None), 1.5, [1.5], "a", ["a"], {}, (..., ...), (0, 0, 0, 0),
    np.array([1], object), np.float64(1), 2**70,
]  # fmt: skip
VALUES: list[Any] = [7.0, np.array([1.0, 2.0, 3.0])]


@pytest.fixture(scope="module", autouse=True)
def _engines() -> Iterator[None]:
    with oracle.both_engines():
        yield


def _reader(key: Any) -> Callable[[Any], Any]:
    return lambda x: x[key]


def _writer(key: Any, value: Any) -> Callable[[Any], Any]:
    def write(x: Any) -> Any:
        y = x.copy()
        y[key] = value
        return y

    return write


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reading(key: Any, array: str) -> None:
    agrees(_reader(key), ARRAYS[array])


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_writing(key: Any, array: str) -> None:
    for value in VALUES:
        agrees(_writer(key, value), ARRAYS[array])


def _under_traced_bools(x: Any) -> Any:
    high, low = x.sum() > 1, x.sum() < -1
    return x[high], x[low], x[high, ...], x[None, high], x[..., low], x[high, None]


def _beside_traced_bools(x: Any) -> Any:
    high = x.sum() > 1
    return x[high, 1:], x[:, high], x[0, high], x[high, 0], x[0, :, high], x[high, [0]]


def _own_bool(x: Any) -> Any:
    return x[x > 1], x[x < 1], x[None][x[None] > 1]


def _written_under_traced_bools(x: Any) -> Any:
    high, low = x.sum() > 1, x.sum() < -1
    y = x.copy()
    y[high] = 9
    y[low] = 8
    y[high] += 1
    y[high, ...] *= x
    y[..., low] = 7
    y[low, None] -= 100
    z = x.copy()
    z[high] = x[None] * 2
    np.add.at(z, high, 2)
    np.add.at(z, True, 0.5)
    return y, z


def _written_bools(x: Any) -> Any:
    y = x.copy()
    y[True] += 1
    y[False] += 1
    y[True, ...] *= 2
    y[..., False] = 5
    y[None, True] -= x
    return y


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("function", [_under_traced_bools, _written_under_traced_bools, _written_bools])
def test_single_bools(function: Callable[[Any], Any], array: str) -> None:
    agrees(function, ARRAYS[array])


def test_single_bools_beside_other_items() -> None:
    agrees(_own_bool, np.array(3.0))
    agrees(_own_bool, np.array(0.5))
    agrees(_beside_traced_bools, ARRAYS["rank 2"])


def _masked_values(x: Any) -> Any:
    y = x.copy()
    y[x[:, 0, 0] > 0] = x[0, :, :1]
    y[x[:, :, 0] > 1] = x[0, 0, :1]
    y[x > 2] = x[0, 0, :1]
    y[:, x[0, :, 0] < -1] = x[:, :1]
    y[:, x[0, :, 0] > 1] = x[:, x[0, :, 0] > 1] * 2
    y[0, :, x[0, 0] > 0] = x[0, 0][x[0, 0] > 0][:, None]
    y[..., x[0, 0] < 0] -= 3
    return y


def test_values_under_masks_are_broadcast() -> None:
    x = np.linspace(-3, 3, 60).reshape(3, 4, 5)
    agrees(_masked_values, x)
    agrees(_masked_values, -x)


def test_one_value_under_a_mask_stands_for_all() -> None:
    """A captured array of one element: its size is a symbol, so that it is 1 is a guard."""
    one, mask = np.array([5.0]), np.array([True, False])
    jitted_agrees(_writer(mask, one), ARRAYS["rank 2"])
    one.resize(3, refcheck=False)
    jitted_agrees(_writer(mask, one), ARRAYS["rank 2"])


class _Number:
    def __index__(self) -> int:
        return 1


def test_objects_that_are_integers() -> None:
    agrees(lambda x: (x[_Number()], x[:, _Number() :], x[_Number(), :]), ARRAYS["rank 2"])


def test_masks_that_the_function_makes_have_known_sizes() -> None:
    def f(x: Any) -> Any:
        return x[np.array([True, False])].shape, x[np.arange(2) > 0, [0, 2]], x[[True, True], 1:]

    result = traced(f, ARRAYS["rank 2"])
    assert "mask_select" not in op_names(result)
    agrees(f, ARRAYS["rank 2"])


def test_bools_leave_no_index_arrays_behind() -> None:
    assert op_names(traced(lambda x: x[True], np.ones(3))) == ["reshape", "copy"]


def test_two_traced_masks_are_refused() -> None:
    with pytest.raises(TraceError, match=r"known only when the program runs.*\(at .*test_keys\.py:\d+\)"):
        tn.jit(lambda x: x[x[:, 0] > 0, x[0] > 0])(ARRAYS["rank 2"])


def test_compress_and_extract_take_shorter_conditions() -> None:
    x = ARRAYS["rank 2"]
    agrees(lambda x: np.compress([True], x, axis=1), x)
    agrees(lambda x: np.compress([0, 1, 0, 1], x), x)
    agrees(lambda x: np.compress(x[0] > 0, x, axis=1), x)
    agrees(lambda x: np.extract([[False, True], [True, True]], x), x)
    agrees(lambda x: np.compress([[True]], x, axis=1), x)


def _set(x: Any, i: Any) -> Any:
    y = x.copy()
    y[i] = 1
    return y


def _added(x: Any, i: Any) -> Any:
    y = x.copy()
    np.add.at(y, i, 1)
    return y


def _made(x: Any, i: Any) -> Any:
    y = np.zeros(5)
    y[i] = x[0]
    return y


def _known(x: Any, i: Any) -> Any:
    y = np.zeros(5)
    y[[1, 10]] = 1
    return x + y


def _read_known(x: Any, i: Any) -> Any:
    return x + np.zeros(5)[10]


@pytest.mark.parametrize("function", [_set, _added, _made, _known, _read_known])
def test_places_out_of_range(function: Callable[..., Any]) -> None:
    places = (np.array([1, 10]), np.array(10), np.array([[-6]]))
    for i in places:
        if function in (_set, _added):
            agrees(function, np.arange(5.0), i)
        else:
            jitted_agrees(function, np.arange(5.0), i)


def test_the_place_and_the_size_are_told() -> None:
    with pytest.raises(BoundsError, match=r"scatter: indices contain 10; axis 0 has 5 elements, so \[-5, 5\) .*py:\d+"):
        tn.jit(_set)(np.arange(5.0), np.array([1, 10]))


def test_numbers_of_values_that_do_not_fit_the_mask() -> None:
    def f(x: Any, v: Any) -> Any:
        y = x.copy()
        y[x > 1] = v
        return y

    x = np.arange(5.0)
    agrees(f, x, np.ones(2))
    agrees(f, x, np.ones(3))
    with pytest.raises(
        ValueError, match=r"mask_update: 2 values for 3 elements under the mask; as many, or one, are .*py"
    ):
        tn.jit(f)(x, np.ones(2))
