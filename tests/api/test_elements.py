"""``a[i]``, slices and loops over ``tn.Array``: NumPy's elements and views, called without a function of the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro as tn

KEYS: dict[str, Any] = {
    "int": 2, "negative": -1, "row": (1,), "element": (2, 1), "numpy int": np.int64(1), "int32": np.int32(1),
    "slice": slice(1, None), "step": slice(None, None, -2), "slice, int": (slice(1, 3), 2), "none": None,
    "none, int": (None, 1), "ellipsis": ..., "ellipsis, int": (..., 0), "element, ellipsis": (2, 1, ...), "empty": (),
    "past the end": slice(2, 100), "nothing": slice(2, 2), "numpy bound": slice(np.int64(1), None),
    "True": True, "array": np.array([2, 0]), "list": [1, 0], "mask": np.arange(12).reshape(3, 4) % 3 == 0,
    "array, slice": (np.array([0, 2]), slice(1, 3)), "bool, int": (True, 1), "rank 0": np.array(1),
}  # fmt: skip
WRONG: dict[str, Any] = {
    "beyond": 3, "before": -4, "element beyond": (0, 4), "too many": (0, 0, 0), "float": 1.5, "text": "a",
    "two ellipses": (..., ...), "float bound": slice(1.5),
}  # fmt: skip


def _pair(dtype: str = "float64") -> tuple[np.ndarray[Any, Any], tn.Array]:
    x = (np.arange(12) - 5).reshape(3, 4).astype(dtype)
    return x, tn.asarray(x.copy())


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "bool", "complex64"])
@pytest.mark.parametrize("name", KEYS)
def test_numpys_answer_and_numpys_memory(name: str, dtype: str) -> None:
    key, (x, a) = KEYS[name], _pair(dtype)
    found, wanted = a[key], x[key]
    assert type(found) is tn.Array and found.engine is a.engine
    assert found.dtype == wanted.dtype and found.shape == wanted.shape and found.strides == wanted.strides
    np.testing.assert_array_equal(np.asarray(found), wanted)
    is_element = isinstance(wanted, np.generic)
    shares = np.may_share_memory(np.asarray(found), np.asarray(a))
    assert shares == np.may_share_memory(wanted, x)
    a[...] = x[...] = 1
    np.testing.assert_array_equal(np.asarray(found), wanted)  # a view sees the write, an element does not
    if is_element:
        with pytest.raises(tn.DtypeError, match="scalar"):
            found[...] = 2
    else:
        found[...] = wanted[...] = 0
        np.testing.assert_array_equal(np.asarray(a), x)


@pytest.mark.parametrize("name", WRONG)
def test_numpys_kind_of_error(name: str) -> None:
    x, a = _pair()
    with pytest.raises((IndexError, TypeError)) as wanted:
        x[WRONG[name]]
    with pytest.raises(tn.TenferroError, match=r"^getitem: .* \(at .*test_elements\.py:\d+\)$") as raised:
        a[WRONG[name]]
    assert isinstance(raised.value, wanted.type)


def test_rows_and_elements_in_a_loop() -> None:
    x, a = _pair()
    for found, wanted in zip(a, x, strict=True):
        assert type(found) is tn.Array
        found[0] = wanted[0] = 9
        assert [float(v) for v in found] == wanted.tolist() and all(v._scalar for v in found)
    np.testing.assert_array_equal(np.asarray(a), x)
    first, *rest = a[0]
    assert first == 9 and len(rest) == 3
    with pytest.raises(TypeError, match="rank 0"):
        iter(a[0, 0])


def test_a_scalar_has_no_elements() -> None:
    _, a = _pair()
    number = a[0, 0]
    with pytest.raises(IndexError):
        number[0]
    assert number[()] == -5 and number[...].shape == () and number[None].shape == (1,)


def test_inside_a_trace_elements_are_read_at_each_call() -> None:
    _, a = _pair()
    jitted = tn.jit(lambda i: a[1, i] + sum(row[0] for row in a))
    assert jitted(np.array(2)) == 1 - 5 - 1 + 3
    a[1, 2] = 50.0
    assert jitted(np.array(2)) == 50 - 5 - 1 + 3


def test_a_mapped_file(tmp_path: Path) -> None:
    held = np.memmap(tmp_path / "x", np.float64, "w+", shape=(4, 3))
    held[...] = np.arange(12.0).reshape(4, 3)
    a = tn.asarray(held)
    assert a[2, 1] == 7 and [float(r[0]) for r in a] == [0, 3, 6, 9]
    a[3][0] = -1
    assert held[3, 0] == -1
