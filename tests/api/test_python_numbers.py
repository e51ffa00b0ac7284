"""Python numbers beside arrays (NEP 50): as traced arguments, as literals and in eager operations, all as NumPy."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

ARRAYS = {d: np.arange(-2 if d[0] == "i" else 0, 4).astype(d) for d in ("u1", "i4", "i8", "u8", "f4", "?")}
INTS = (-300, -1, 0, 3, 7, 300, 2**31, 2**40)


def _store(x: Any, n: Any) -> Any:
    y = x.copy()
    y[0] = n
    return y


def _add_to(x: Any, n: Any) -> Any:
    y = x.copy()
    y += n
    return y


def _power_of(x: Any, n: Any) -> Any:
    y = x.copy()
    y **= n
    return y


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "greater": lambda x, n: x > n,
    "reflected": lambda x, n: n >= x,
    "equal": lambda x, n: x == n,
    "not_equal": lambda x, n: n != x,
    "add": lambda x, n: x + n,
    "subtract": lambda x, n: n - x,
    "floor_divide": lambda x, n: x // n,
    "clip_above": lambda x, n: np.clip(x, 0, n),
    "clip_below": lambda x, n: np.clip(x, n, None),
    "full_like": np.full_like,
    "full": lambda x, n: np.full(3, n, x.dtype),
    "asarray": lambda x, n: np.asarray(n, dtype=x.dtype),
    "initial": lambda x, n: x.max(initial=n),
    "store": _store,
    "add in place": _add_to,
    "minimum": np.minimum,
    "left_shift": lambda x, n: x << n,
    "right_shift": lambda x, n: n >> x,
    "isclose": np.isclose,
}
POWERS: dict[str, Callable[[Any, Any], Any]] = {
    "power": lambda x, n: x**n,
    "reflected": lambda x, n: n**x,
    "function": np.power,
    "array": lambda x, n: x ** (x * 0 + n),
    "in place": _power_of,
}


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except (TypeError, ValueError, OverflowError) as error:
        return error


def _agree(found: Any, wanted: Any) -> None:
    if isinstance(wanted, Exception):
        kinds = (TypeError, ValueError, OverflowError)
        assert [isinstance(found, k) for k in kinds] == [isinstance(wanted, k) for k in kinds], (found, wanted)
        return
    assert not isinstance(found, Exception), found
    assert np.asarray(found).dtype == wanted.dtype
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)


def _compare(operation: Callable[[Any, Any], Any], x: Any, numbers: tuple[Any, ...]) -> None:
    jitted = tn.jit(operation)
    for n in numbers:
        wanted = _outcome(operation, x.copy(), n)
        _agree(_outcome(jitted, x.copy(), n), wanted)
        _agree(_outcome(tn.jit(lambda x, n=n: operation(x, n)), x.copy()), wanted)
        _agree(_outcome(operation, tn.asarray(x.copy()), n), wanted)


@pytest.mark.filterwarnings("ignore::tenferro.RecompileWarning")
@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "u8", "f4"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_ints(name: str, dtype: str) -> None:
    _compare(OPERATIONS[name], ARRAYS[dtype], INTS)


@pytest.mark.filterwarnings("ignore::tenferro.RecompileWarning")
@pytest.mark.parametrize("dtype", ARRAYS)
@pytest.mark.parametrize("name", POWERS)
def test_powers(name: str, dtype: str) -> None:
    if dtype == "?" and name == "in place":
        pytest.skip("bool arrays hold no powers")
    _compare(POWERS[name], ARRAYS[dtype], (-300, -5, -1, 0, 1, 2, 3, 7, 300, 2.0, 0.5, 2.7))


def test_one_program_serves_the_numbers_that_fit() -> None:
    f = tn.jit(lambda x, n: x + n)
    x = np.arange(3, dtype=np.uint8)
    for n in (0, 7, 255):
        np.testing.assert_array_equal(f(x, n), x + np.uint8(n))
    assert f.cache_info().compiles == 1
    with pytest.raises(OverflowError, match=r"add: Python integer 256 out of bounds for uint8; .*test_python_numbers"):
        f(x, 256)
    with pytest.raises(OverflowError, match=r"Python integer -1 out of bounds for uint8"):
        f(x, -1)


def test_sizes_must_fit() -> None:
    x = np.zeros(300, np.uint8)
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        tn.jit(lambda x: x + x.shape[0])(x)
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        tn.jit(lambda x: x // x.shape[0])(x)
    np.testing.assert_array_equal(tn.jit(lambda x: x + x.shape[0])(x[:255]), x[:255] + 255)


@pytest.mark.parametrize("make", [np.asarray, tn.asarray])
def test_ints_beyond_64_bits(make: Callable[[Any], Any]) -> None:
    x, f = make(np.arange(3)), make(np.arange(3.0))
    jit = tn.jit if make is np.asarray else (lambda function: function)
    with pytest.raises(OverflowError, match=r"add: Python integer 1180591620717411303424 out of bounds for int64"):
        jit(lambda x: x + 2**70)(x)
    assert not np.asarray(jit(lambda x: x == 2**70)(x)).any()
    assert np.asarray(jit(lambda x: x < 2**70)(x)).all()
    np.testing.assert_array_equal(np.asarray(jit(lambda x: x + 2**70)(f)), np.arange(3.0) + 2**70)


def test_eager_store_of_an_int_that_does_not_fit() -> None:
    x = tn.asarray(np.zeros(3, np.uint8))
    with pytest.raises(OverflowError, match=r"setitem: Python integer 300 out of bounds for uint8; .*python_numbers"):
        x[0] = 300


def test_shifts_of_sizes() -> None:
    f = tn.jit(lambda x, n: (x + (n << 2), x + (1 << n), x + (n >> 1), x << n, n >> x))
    x = np.arange(4)
    for found, wanted in zip(f(x, 5), (x + 20, x + 32, x + 2, x << 5, 5 >> x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_ints_in_lists_must_fit() -> None:
    with pytest.raises(OverflowError, match=r"array: Python integer 300 out of bounds for uint8"):
        tn.jit(lambda n: np.array([n, 2], dtype=np.uint8))(300)
    with pytest.raises(OverflowError, match=r"array: Python integer 300 out of bounds for uint8"):
        tn.jit(lambda x: np.array([300, x[0]], dtype=np.uint8))(np.ones(2))


def test_expressions_that_outgrow_64_bits() -> None:
    f = tn.jit(lambda x, n: (x + n * n, x < n * n))
    x = np.arange(3)
    np.testing.assert_array_equal(f(x, 3)[0], x + 9)
    with pytest.raises(OverflowError):
        f(x, 2**40)
    g = tn.jit(lambda x, n: x < n * n)
    np.testing.assert_array_equal(g(x, 2**40), [True] * 3)
    np.testing.assert_array_equal(g(x, 1), x < 1)


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u2"])
def test_the_reciprocal_of_integers_rounds_towards_zero(dtype: str) -> None:
    x = np.array([-5, -2, -1, 1, 2, 100], "i8").astype(dtype)
    found = tn.jit(np.reciprocal)(x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, np.reciprocal(x))


@pytest.mark.parametrize("digits", [None, 2, 0, -1, -2, -3, -19, -20, -400])
def test_an_int_is_rounded_as_python_does(digits: int | None) -> None:
    jitted = tn.jit(lambda n: round(n, digits))
    for n in (127, 125, 135, -125, -135, -127, 5, 0, 999, 2**62, -(2**62), 2**63 - 1):
        assert jitted(n) == round(n, digits)
        assert type(jitted(n)) is int
    assert jitted.cache_info().compiles == 1
    assert tn.jit(lambda n: (round(10 * n, -1), round(10 * n + 5, -1)))(3) == (30, 40)
    with pytest.raises(TypeError):
        tn.jit(lambda n: round(n, 1.5))(3)


@pytest.mark.parametrize("operator", ["[1] * n", "n * (1,)", "[1] + n", "n - [1]", "n ** [2]", "[1] / n"])
def test_a_float_and_a_list_are_refused_as_in_python(operator: str) -> None:
    function = eval(f"lambda n: {operator}")
    with pytest.raises(TypeError):
        function(2.5)
    with pytest.raises(TypeError, match="a number that is no int and a (list|tuple)"):
        tn.jit(function)(2.5)
    assert tn.jit(lambda x, n: (x * [2.0], np.multiply(n, [2.0])))(np.ones(1), 2.5)[1] == 5.0


def test_a_float_argument_is_a_float_to_isinstance() -> None:
    def kinds(n: Any, x: Any) -> tuple[bool, ...]:
        return (
            isinstance(n, float), isinstance(n, complex), isinstance(n, numbers.Number), np.isscalar(n),
            isinstance(n * 2 + 1, float), isinstance(x, float), isinstance(x, np.ndarray),
        )  # fmt: skip

    for n in (2.5, 2.5 + 1j):
        assert tn.jit(kinds)(n, np.ones(2)) == kinds(n, np.ones(2))


@pytest.mark.parametrize("text", [str, repr, format, "{}".format, lambda n: f"{n}", lambda n: f"{[n]}", hash])
def test_the_text_of_a_float_argument_is_refused(text: Callable[[Any], Any]) -> None:
    for function in (lambda n: {text(n): n}, lambda n: {text(n * 2): 1}):
        with pytest.raises(tn.TraceError, match=r"of a traced value, which has no elements yet.*test_python_numbers"):
            tn.jit(function)(2.5)


def test_a_float_argument_is_no_parameter_that_must_be_known() -> None:
    with pytest.raises(TypeError, match="test_python_numbers"):
        tn.jit(lambda n: np.zeros(n))(2.5)
