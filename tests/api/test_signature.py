"""Calls are bound: one key for calls that mean the same, a named refusal for what cannot be an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DtypeError, TraceError
from tenferro.tracer.exact import static_key
from tenferro.tracer.signature import Binder


def f(x, y, *, axis=None, scale=1.0):
    return x, y, axis, scale


@dataclass(frozen=True)
class Option:
    value: object


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
    values = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,), "1", np.float32(0.0), np.float32(-0.0), np.float64(0.0)]
    values += [frozenset({1}), frozenset({1.0}), Option(1), Option(1.0), Option(True)]
    assert len({static_key(v) for v in values}) == len(values)
    assert static_key(float("nan")) == static_key(float("nan"))
    assert static_key(np.float32("nan")) == static_key(np.float32("nan"))
    assert static_key(Option(1.5)) == static_key(Option(1.5))


@dataclass
class Settings:
    x: np.ndarray
    power: object = field(metadata={"static": True})


def test_structures_tell_apart_what_python_calls_equal():
    """The keys of a dict, and static fields, are seen by the function."""
    keys = tn.jit(lambda d: next(iter(d)) * d[1])
    power = tn.jit(lambda s: s.x[:1] * s.power)
    for n in (1, True, 1.0, 1):
        assert keys({n: X[0]}).tolist() == [0.0] * 3
        result = power(Settings(np.arange(1, 3), n))
        assert result.dtype == (np.arange(1, 3) * n).dtype
    assert keys.cache_info().compiles == power.cache_info().compiles == 3


def test_programs_in_structures_are_told_apart_by_their_meaning():
    """A function that ``vjp`` makes is part of the structure of arguments. Lines do not count, numbers do."""
    applied = tn.jit(lambda pull, ct: pull(ct)[0])

    def signs(f: Any) -> list[bool]:
        return np.signbit(applied(tn.vjp(f, X[0])[1], X[0] + 1)).tolist()

    assert signs(lambda x: x * 2.0) == [False] * 3
    assert signs(lambda x: x * 2.0) == [False] * 3  # on another line
    assert applied.cache_info().compiles == 1
    assert [signs(lambda x: x * 0.0), signs(lambda x: x * -0.0)] == [[False] * 3, [True] * 3]
    assert applied.cache_info().compiles == 3


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


WRONG_SETTINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"static_argnums": "y"}, TypeError, "static_argnums is 'y'; an int or a tuple of ints is needed"),
    ({"static_argnums": 1.0}, TypeError, "static_argnums is 1.0; an int"),
    ({"static_argnums": True}, TypeError, "static_argnums is True; an int"),
    ({"static_argnums": (0, "y")}, TypeError, "static_argnums is .*; an int"),
    ({"static_argnums": 7}, ValueError, "static_argnums has 7; a number from -2 to 1 is needed, f takes x, y"),
    ({"static_argnums": (0, -3)}, ValueError, "static_argnums has -3; a number from -2 to 1"),
    ({"static_argnames": "axes"}, ValueError, "static_argnames has 'axes'; one of 'axis', 'scale', 'x', 'y' is needed"),
    ({"static_argnames": ("axis", "z")}, ValueError, "static_argnames has 'z'"),
    ({"static_argnames": 1}, TypeError, "static_argnames is 1; a str or a tuple of strs is needed"),
    ({"static_argnames": (1,)}, TypeError, "static_argnames is .*; a str"),
    ({"donate_argnums": "x"}, TypeError, "donate_argnums is 'x'; an int"),
    ({"donate_argnums": 2}, ValueError, "donate_argnums has 2; a number from -2 to 1"),
    ({"static_argnames": "x", "donate_argnums": -2}, ValueError, "argument x of f is both static and donated"),
    ({"max_compiles": 0}, ValueError, "max_compiles is 0; at least 1, or None, is needed"),
    ({"max_compiles": "1"}, TypeError, "max_compiles is '1'; an int, or None, is needed"),
    ({"max_compiles": 1.5}, TypeError, "max_compiles is 1.5"),
]


@pytest.mark.parametrize(("settings", "error", "text"), WRONG_SETTINGS)
def test_wrong_settings_are_named(settings, error, text):
    with pytest.raises(error, match=rf"jit: {text}.* \(at .*test_signature.py:\d+\)"):
        tn.jit(f, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"static_argnums": np.int64(1)},
        {"static_argnums": {1}},
        {"static_argnums": (-1, 1)},
        {"static_argnames": ["y"], "static_argnums": None, "donate_argnums": None},
    ],
)
def test_settings_of_any_kind_of_sequence(settings):
    assert tn.jit(f, **settings)(X, "y")[1] == "y"
    assert Binder(f, **settings).static_nums == {1}


def test_settings_of_functions_with_open_arguments():
    def many(*xs, **named):
        return named

    assert Binder(many, static_argnums=5, static_argnames="anything").static_names == {"anything"}
    with pytest.raises(ValueError, match=r"static_argnums has -1; many takes \*args"):
        Binder(many, static_argnums=-1)
    with pytest.raises(ValueError, match="static_argnames has 'x'; <lambda> takes no argument by name"):
        Binder(lambda *xs: xs, static_argnames="x")


def generator(x):
    yield x


async def coroutine(x):
    return x


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (3, "an object of class int; a function is needed"),
        (X, "an object of class ndarray; a function"),
        (classmethod(f), "@classmethod stands above @tn.jit"),
        (generator, "f is generator, a generator; a function that returns arrays is needed"),
        (coroutine, "f is coroutine, a coroutine; a function that returns arrays is needed"),
    ],
)
def test_what_is_no_function_of_arrays_is_refused(function, text):
    with pytest.raises(TypeError, match=f"jit: .*{text}"):
        tn.jit(function)


def test_wrong_calls_raise_as_in_python():
    with pytest.raises(TypeError, match="missing a required argument: 'y'.*test_signature"):
        Binder(f).bind((X,), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Binder(f).bind((X, X), {"z": 1})
