"""Calls are bound: one key for calls that mean the same, a named refusal for what cannot be an argument."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest

from tenferro.tracer.errors import DtypeError, TraceError
from tenferro.tracer.signature import Binder, static_key


def f(x, y, *, axis=None, scale=1.0):
    return x, y, axis, scale


class Mode(Enum):
    FAST = 1


X = np.zeros((2, 3), np.float32)


def test_keywords_and_positions_share_a_key():
    binder = Binder(f)
    first = binder.bind((X, X), {}).key
    assert binder.bind((X,), {"y": X}).key == first
    assert binder.bind((), {"y": X, "x": X}).key == first
    assert binder.bind((X, X), {"scale": 2.0, "axis": "a"}).key == binder.bind((X, X), {"axis": "a", "scale": 3.0}).key


def test_rebuild_puts_values_back():
    call = Binder(f).bind((X, [X, {"n": 3, "mode": "wrap"}]), {"axis": None})
    assert [leaf.name for leaf in call.dynamic] == ["x", "y[0]", "y[1]['n']"]
    assert call.rebuild(["a", "b", "c"]) == (("a", ["b", {"n": "c", "mode": "wrap"}]), {"axis": None})


@pytest.mark.parametrize("value", ["text", True, Mode.FAST, np.dtype("f4"), np.sin, slice(1, 2), int])
def test_static_by_value(value):
    call = Binder(f).bind((X, value), {})
    assert len(call.dynamic) == 1
    assert call.rebuild([X])[0][1] is value


def test_numbers():
    call = Binder(f).bind((3, 2.5), {"axis": 1j, "scale": np.float64(2)})
    sorts = {leaf.name: (leaf.sort, leaf.weak) for leaf in call.dynamic}
    assert sorts == {"x": ("int", False), "y": ("array", True), "axis": ("array", True), "scale": ("array", False)}
    assert call.key == Binder(f).bind((4, 3.5), {"axis": 2j, "scale": np.float64(3)}).key


def test_static_keys_tell_apart_what_python_calls_equal():
    values = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,), "1"]
    assert len({static_key(v) for v in values}) == len(values)
    assert static_key(float("nan")) == static_key(float("nan"))


def test_foreign_byte_order_and_alignment_are_copied():
    swapped = np.arange(3).astype(">f4")
    raw = np.zeros(13, np.uint8)[1:].view(np.float32)
    call = Binder(f).bind((swapped, raw), {})
    assert [leaf.value.dtype.isnative and leaf.value.flags.aligned for leaf in call.dynamic] == [True, True]
    assert call.dynamic[0].value.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array(["a"]), "argument x"),
        (np.array([object()]), "dtype object"),
        (np.zeros(2, np.longdouble), "longdouble|float128"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.zeros(2, [("a", int)]), "argument x"),
        (np.ma.masked_array([1]), "MaskedArray"),
        (np.zeros(1).view(np.recarray), "recarray"),
        ({1, 2}, "a builtins.set"),
        (object(), "argument x"),
    ],
)  # fmt: skip
def test_refused(value, words):
    with pytest.raises(DtypeError, match=words):
        Binder(f).bind((value, X), {})


def test_int_beyond_int64():
    with pytest.raises(OverflowError, match="argument y is 9223372036854775808"):
        Binder(f).bind((X, 2**63), {})


def test_unhashable_static_is_named():
    with pytest.raises(TraceError, match="static argument axis is a set .* cannot be hashed"):
        Binder(f, static_argnames="axis").bind((X, X), {"axis": {1}})


def test_static_arguments():
    binder = Binder(f, static_argnums=1, static_argnames=("axis",))
    a, b = binder.bind((X, 3), {"axis": 0}), binder.bind((X, 4), {"axis": 0})
    assert a.key != b.key and len(a.dynamic) == 1
    assert a.rebuild(["t"]) == (("t", 3), {"axis": 0})
    assert binder.bind((X,), {"y": 3, "axis": 0}).key == a.key


def test_settings_are_checked():
    with pytest.raises(ValueError, match="static_argnames names 'axes'"):
        Binder(f, static_argnames="axes")
    with pytest.raises(ValueError, match="static_argnums has 7"):
        Binder(f, static_argnums=7)
    with pytest.raises(ValueError, match="both static and donated"):
        Binder(f, static_argnums=0, donate_argnums=0)


def test_wrong_calls_raise_as_in_python():
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        Binder(f).bind((X,), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Binder(f).bind((X, X), {"z": 1})
