"""NumPy's rules of casting, of ``out`` and of what integers hold: jitted and eager calls give what NumPy gives, or
refuse what NumPy refuses with an error of the same kind and the user's line."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp

Case = Callable[..., Any]
KINDS = (TypeError, ValueError, OverflowError)


def outcome(function: Case, *args: Any) -> Any:
    """The result as an ndarray, or the kind of the error and its text."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = function(*args)
        except KINDS as error:
            return [k for k in KINDS if isinstance(error, k)], str(error)
    return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)


def outcomes(function: Case, *args: Any) -> tuple[Any, list[Any]]:
    """NumPy's outcome; and those of the jitted and the eager call."""

    def copies(make: Callable[[Any], Any]) -> list[Any]:
        return [make(a.copy()) if isinstance(a, np.ndarray) else a for a in args]

    found = [outcome(tn.jit(function), *copies(lambda a: a)), outcome(function, *copies(tn.asarray))]
    return outcome(function, *copies(lambda a: a)), found


def agree(wanted: Any, found: Any) -> None:
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for x, y in zip(found, wanted, strict=True):
            agree(y, x)
    elif isinstance(wanted, np.ndarray):
        assert isinstance(found, np.ndarray), found
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    else:
        assert found == wanted


def _copied_to(dst: Any, src: Any, **rules: Any) -> Any:
    np.copyto(dst, src, **rules)
    return dst


X, I = np.arange(3.0), np.arange(3)  # noqa: E741
CASTING: dict[str, Case] = {
    **{f"astype {rule}": lambda x, r=rule: x.astype("i4", casting=r) for rule in ("safe", "same_kind", "equiv")},
    "astype narrows": lambda x: x.astype("f4", casting="same_kind"),
    "astype unsafe": lambda x: x.astype("i4", casting="unsafe"),
    "no such rule": lambda x: x.astype("f4", casting="foo"),
    "add in ints": lambda x: np.add(x, x, dtype="i4"),
    "add in ints, unsafe": lambda x: np.add(x, x, dtype="i4", casting="unsafe"),
    "add in halves": lambda x: np.add(x, x, dtype="f4"),
    "add in halves, safe": lambda x: np.add(x, x, dtype="f4", casting="safe"),
    "add, no": lambda x: np.add(x, np.arange(3), casting="no"),
    "add, equiv": lambda x: np.add(x, np.arange(3), casting="equiv"),
    "add a number, no": lambda x: np.add(x, 1, casting="no"),
    "add, no such rule": lambda x: np.add(x, 1, casting="bad"),
    "add in complex": lambda x: np.add(x, 1, dtype=complex),
    "add order": lambda x: np.add(x, 2, order="F", subok=False),
    "bools in floats": lambda x: np.add(x > 0, x > 0, dtype="f4"),
    "sqrt in ints": lambda x: np.sqrt(x, dtype="i4"),
    "hypot in ints": lambda x: np.hypot(x, x, dtype="i4"),
    "log1p in float32": lambda x: np.log1p(x, dtype="f4"),
    "greater in floats": lambda x: np.greater(x, x, dtype="f4"),
    "greater in bools": lambda x: np.greater(x, x, dtype=bool),
    "isnan in floats": lambda x: np.isnan(x, dtype="f4"),
    "logical_and in floats": lambda x: np.logical_and(x, x, dtype="f4"),
    "absolute of complex": lambda x: np.absolute(x + 1j, dtype="f8"),
    "power in ints": lambda x: np.power(x, 2, dtype="i4"),
    "power in floats": lambda x: np.power(x, 2, dtype="f4"),
    "library power": lambda x: np.power(x, 3.5, dtype="f4"),
    "library power in ints": lambda x: np.power(x, 3.5, dtype="i4"),
    "out": lambda x: np.add(x, 1, out=np.zeros_like(x, dtype="i4")),
    "out, unsafe": lambda x: np.add(x, 1.5, out=np.zeros_like(x, dtype="i4"), casting="unsafe"),
    "out, safe": lambda x: np.add(x, 1.5, out=np.zeros_like(x, dtype="f4"), casting="safe"),
    "concatenate": lambda x: np.concatenate([x, x], dtype="i4"),
    "concatenate, unsafe": lambda x: np.concatenate([x, x], dtype="i4", casting="unsafe"),
    "stack": lambda x: np.stack([x, x], dtype="i4"),
    "hstack, unsafe": lambda x: np.hstack([x, x], dtype="i4", casting="unsafe"),
    "copyto": lambda x: _copied_to(np.zeros_like(x, dtype="i4"), x),
    "copyto, unsafe": lambda x: _copied_to(np.zeros_like(x, dtype="i4"), x, casting="unsafe"),
    "copyto of an int": lambda x: _copied_to(np.zeros_like(x, dtype="u1"), 7),
    "copyto of a float": lambda x: _copied_to(np.zeros_like(x, dtype="u1"), 7.5),
    "copyto of an int beyond": lambda x: _copied_to(np.zeros_like(x, dtype="u1"), 300),
    "matmul": lambda x: np.matmul(x, x, dtype="f4"),
    "matmul in ints": lambda x: np.matmul(x, x, dtype="i4"),
    "divmod": lambda x: np.divmod(x, 2, dtype="f4"),
    "cumsum": lambda x: np.cumsum(x, dtype="i4"),
}


@pytest.mark.parametrize("name", CASTING)
def test_casting(name: str) -> None:
    wanted, found = outcomes(CASTING[name], X)
    for x in found:
        if isinstance(wanted, tuple) and isinstance(wanted[0], list):
            assert x[0] == wanted[0]
            assert wanted[0] == [ValueError] or "test_numpy_rules.py:" in x[1], x
        else:
            agree(wanted, x)


def test_options_that_are_not_there_are_refused_by_name() -> None:
    for function in (lambda x: np.add(x, x, signature="dd->d"), lambda x: np.vecdot(x, x, dtype="f4")):
        for call in (tn.jit(function), lambda x, f=function: f(tn.asarray(x))):
            with pytest.raises(tn.TraceError, match=r"^(add: signature|vecdot: dtype); not available \(at .*rules\.py"):
                call(X)
    with pytest.raises(tn.TraceError, match=r"^astype: casting 'same_value', .* is needed \(at .*rules\.py"):
        tn.jit(lambda x: x.astype("i4", casting="same_value"))(X)


SHAPES = ((3,), (2, 3), (1, 3), (1,), (), (3, 3))


def _add_into(out: Any, x: Any) -> Any:
    out = out.copy()
    out += x
    return out


OUT: dict[str, Case] = {
    "in place": _add_into,
    "ufunc": lambda out, x: np.add(x, 1, out=out.copy()),
    "library ufunc": lambda out, x: np.hypot(x, 1, out=out.copy()),
    "comparison": lambda out, x: np.less(x, 1, out=out.copy()),
    "where": lambda out, x: np.add(out[..., :1], 1, out=out.copy(), where=x > 0),
    "clip": lambda out, x: np.clip(x, 0, 1, out=out.copy()),
    "sum": lambda out, x: np.sum(x, axis=0, out=out.copy()),
    "reduce": lambda out, x: np.add.reduce(x, axis=0, out=out.copy()),
    "max": lambda out, x: np.max(x, axis=-1, keepdims=True, out=out.copy()),
    "take": lambda out, x: np.take(x, [0], 0, out=out.copy()),
    "concatenate": lambda out, x: np.concatenate([x], out=out.copy()),
    "copyto": lambda out, x: _copied_to(out.copy(), x),
    "quantile": lambda out, x: np.quantile(x, 0.5, 0, out=out.copy()),
}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("shape", SHAPES)
def test_out_does_not_grow(shape: tuple[int, ...], name: str) -> None:
    for other in SHAPES[:4]:
        if name == "where" and not shape:
            continue
        wanted, found = outcomes(OUT[name], np.full(shape, 7.0), np.arange(float(np.prod(other))).reshape(other))
        if name == "copyto" and len(other) > len(shape):
            continue  # NumPy drops leading axes of size 1 there
        for x in found:
            if isinstance(wanted, np.ndarray):
                agree(wanted, x)
            else:
                assert x[0] == [ValueError] and "test_numpy_rules.py:" in x[1], (shape, other, x)


def _set(x: Any, v: Any) -> Any:
    y = x.copy()
    y[0] = v
    return y


def _set_all(x: Any, v: Any) -> Any:
    y = x.copy()
    y[:] = v
    return y


def _set_some(x: Any, v: Any) -> Any:
    y = x.copy()
    y[x > 0] = v
    return y


def _set_list(x: Any, v: Any) -> Any:
    y = x.copy()
    y[1:] = [v, 1]
    return y


def _fill(x: Any, v: Any) -> Any:
    y = x.copy()
    y.fill(v)
    return y


STORES: dict[str, Case] = {
    "element": _set, "slice": _set_all, "mask": _set_some, "list": _set_list, "fill": _fill,
    "array": lambda x, v: np.array(v, dtype=x.dtype) + x,
    "array of a list": lambda x, v: np.array([v, x[0], 1], x.dtype),
    "index": lambda x, v: (y := x.copy(), y.__setitem__([0, 1], v))[0],
    "made inside": lambda x, v: (y := np.zeros(3, x.dtype), y.__setitem__(0, v))[0] + x,
}  # fmt: skip
NUMBERS = (math.nan, math.inf, -math.inf, 1e300, 2.7, -1.0, 300.7, 1e19, 3, 300, -1, 2**70, True, 1j)


@pytest.mark.parametrize("dtype", ["i8", "u1", "?", "f4"])
@pytest.mark.parametrize("name", STORES)
def test_python_numbers_stored_in_arrays(name: str, dtype: str) -> None:
    store, x = STORES[name], np.arange(3).astype(dtype)
    for v in NUMBERS:
        if v == 2**70 and name == "array of a list":
            continue  # beside a traced element it would have to be an int64
        wanted = outcome(store, x.copy(), v)
        for found in (outcome(tn.jit(lambda x, v=v: store(x, v)), x), outcome(store, tn.asarray(x.copy()), v)):
            if isinstance(wanted, np.ndarray):
                agree(wanted, found)
            else:
                assert found[0] == wanted[0], (v, found, wanted)


def test_what_has_a_dtype_converts_as_astype() -> None:
    """So does a float argument, known only when the program runs."""
    x = np.arange(3)
    wanted = {math.nan: 0, math.inf: 2**63 - 1, -1e300: -(2**63), 2.7: 2}
    store = tn.jit(_set)
    for value, number in wanted.items():
        for v in (value, np.float64(value), np.array(value)):
            assert store(x, v).tolist() == [number, 1, 2]
        for w in (np.float64(value), np.array(value), tn.asarray(value)):
            assert _set(tn.array(x), w).tolist() == [number, 1, 2]
    assert tn.jit(_set)(x.astype("u1"), np.int64(300)).tolist() == [44, 1, 2]
    assert tn.jit(lambda x: _set(x, np.int64(300)))(x.astype("u1")).tolist() == [44, 1, 2]
    floats = tn.asarray(np.array([math.nan, math.inf, 2.7]))
    for made in (floats.astype("i8"), tnp.asarray(floats, "i8"), tn.asarray(np.asarray(floats), "i8")):
        assert made.tolist() == [0, 2**63 - 1, 2]


NO_NUMBERS = (None, "a", b"a", int, ..., {}, slice(1))


@pytest.mark.parametrize("number", range(len(NO_NUMBERS)))
def test_nothing_equals_what_is_no_number(number: int) -> None:
    other = NO_NUMBERS[number]
    for function in (
        lambda x: x == other, lambda x: x != other, lambda x: other == x, lambda x: np.where(x == other, 0, x),
        lambda x: x[0] == other, lambda x: x[0] != other, lambda x: x[0, ...] == other, lambda x: x.sum() != other,
        lambda x: other in [x[0]],
    ):  # fmt: skip
        wanted, found = outcomes(function, X)
        for x in found:
            agree(wanted, x)
    for function in (lambda x: np.equal(x, None), lambda x: np.not_equal(None, x)):
        wanted, found = outcomes(function, X)
        for x in found:
            agree(wanted, x)
    for call in (tn.jit(lambda x: x < other), lambda x: tn.asarray(x) < other, tn.jit(lambda x: x + other)):
        with pytest.raises(TypeError):
            call(X)
    assert type(tn.jit(lambda x: x.sum() == None)(X)) is bool  # noqa: E711


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "c8"])
@pytest.mark.parametrize("places", [0, 1, -1])
def test_round(dtype: str, places: int) -> None:
    x = np.array([1, 0, 1]).astype(dtype)
    for function in (lambda x: np.round(x, places), lambda x: x.round(places)):
        wanted, found = outcomes(function, x)
        for y in found:
            if isinstance(wanted, np.ndarray):
                agree(wanted, y)
            else:
                assert y[0] == wanted[0]


def _write_bits(x: Any) -> Any:
    y = x.copy()
    bits = y.view("u8")
    bits[0] = 0x3FF0000000000000
    bits[1:] ^= 1 << 63
    y[2] += 1
    return y, bits, bits + 1


VIEWS: dict[str, Case] = {
    "ints": lambda x: x.view("i8"), "unsigned": lambda x: x.view(np.uint64), "itself": lambda x: x.view(),
    "class": lambda x: x.view(np.ndarray), "typed": lambda x: x.view(dtype="i8", type=np.ndarray),
    "strided": lambda x: x[::2].view("i8"), "scalar": lambda x: x.sum().view("i8"),
    "back": lambda x: x.view("i8").view("f8"),
    "bools": lambda x: (x > 1).view("u1"), "to bools": lambda x: (x > 1).astype("i1").view(bool) & True,
    "halves": lambda x: x.astype("f2").view("i2"), "reshaped": lambda x: x.view("i8").reshape(3, 1).T,
    "sum": lambda x: (x + 1).view("i8").sum(), "writes": _write_bits,
    "made inside": lambda x: np.ones(3).view("i8") + x,
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_bits(name: str) -> None:
    wanted, found = outcomes(VIEWS[name], X)
    for x in found:
        agree(wanted, x)


@pytest.mark.parametrize("dtype", ["f4", "u1", "c16", ">f8", ">i8"])
def test_views_of_other_widths_and_orders_are_refused(dtype: str) -> None:
    text = rf"^view: float64 as {np.dtype(dtype)}; a real dtype of equal width is needed, .* \(at .*rules\.py:\d+\)$"
    with pytest.raises(tn.DtypeError, match=text):
        tn.jit(lambda x: x.view(dtype))(X)


def test_nan_to_num_in_place() -> None:
    def replace(x: Any) -> Any:
        y = x.copy()
        z = np.nan_to_num(y, copy=False, nan=5.0)
        z += 1
        return y

    x = np.array([math.nan, 1.0, 2.0])
    assert tn.jit(replace)(x).tolist() == replace(tn.asarray(x)).tolist() == [6, 2, 3]
    with pytest.raises(tn.MutationError, match="argument x is not the function's own"):
        tn.jit(lambda x: np.nan_to_num(x, copy=False))(x)


def test_methods_of_ndarray() -> None:
    def both(x: Any) -> Any:
        y = x[::-1].copy()
        y.sort()
        z = x[::-1].copy()
        z.partition(1)
        return y, z[:2], x.searchsorted(1.5), x.compress([True, False, True]), x.argpartition(0)[0], x.conj() is x

    wanted, found = outcomes(both, X)
    for x in found:
        agree(wanted, x)
    with pytest.raises(AttributeError, match=r"ndarray\.put: not available on tn\.Array; numpy\.asarray\(x\)\.put is"):
        tn.asarray(X).put([0], 1)
    assert not hasattr(tn.asarray(X), "foo")


def test_arrays_of_the_other_byte_order_become_native() -> None:
    x = np.arange(6.0).reshape(2, 3).astype(">f8")
    for found in tn.jit(lambda x: (x.T, x[0], x + 1, x.copy()))(x):
        assert found.dtype.isnative and not np.shares_memory(found, x)
    assert tn.jit(lambda x: x)(x) is x
    for made in (tn.asarray(x), tn.asarray(x).astype(">i4"), tnp.zeros(2, ">f8")):
        assert made.dtype.isnative


def _stored(z: Any, x: Any, y: Any) -> Any:
    z = z.copy()
    z[:] = [x, y]
    return z


RAGGED: dict[str, tuple[Case, tuple[Any, ...]]] = {
    "array": (lambda x, y: np.array([x, y]), (X, X[:1])),
    "deep": (lambda x, y: np.array([[x, x], [y, y]]), (X, X[:1])),
    "operand": (lambda z, x, y: z + [x, y], (np.zeros((2, 3)), X, X[:1])),
    "store": (_stored, (np.zeros((2, 3)), X, X[:1])),
    "row of an element": (lambda x: np.array([[x[0]], x]), (X,)),
    "row of a number": (lambda x: np.array([x, [1]]), (X,)),
    "stack": (lambda x, y: np.stack([x, y]), (X, X[:1])),
}


@pytest.mark.parametrize("name", RAGGED)
def test_a_list_of_arrays_of_several_shapes_is_no_array(name: str) -> None:
    function, args = RAGGED[name]
    with pytest.raises(ValueError):
        function(*args)
    jitted = tn.jit(function)
    with pytest.raises(tn.ShapeError, match=r"shape.*test_numpy_rules"):
        jitted(*args)


def test_a_list_is_an_array_where_the_sizes_are_equal() -> None:
    jitted = tn.jit(lambda x, y: np.array([x, y]))
    assert jitted(X, X + 1).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert jitted(X[:1], X[:1]).tolist() == [[0], [0]]
    with pytest.raises(tn.ShapeError, match=r"shapes \(3,\) and \(1,\), which is inhomogeneous; one shape is needed"):
        jitted(X, X[:1])


def _deleted(x: Any) -> None:
    y = x.copy()
    del y[0]


REFUSED: dict[str, tuple[Case, type[Exception], str]] = {
    "where": (lambda x: np.where(x > 0, x), ValueError, "where: one of x and y"),
    "hash": (hash, TypeError, "hash: of an array"),
    "key": (lambda x: {x: 1}, TypeError, "hash: of an array"),
    "format": (lambda x: f"{x:.2f}", TypeError, "format: "),
    "del": (_deleted, ValueError, "del: of an element"),
    "step": (lambda x: np.arange(0, x.shape[0], 0), ZeroDivisionError, "arange: step 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses_is_refused_by_name_and_line(name: str) -> None:
    function, kind, text = REFUSED[name]
    with pytest.raises(kind):
        function(X)
    with pytest.raises(kind, match=rf"^{text}.*"):
        tn.jit(function)(X)
    if name not in ("where", "step"):  # which are NumPy's own in eager calls
        with pytest.raises(kind, match=rf"^{text}.*test_numpy_rules"):
            function(tn.asarray(X))


def test_what_a_traced_value_cannot_do_is_said() -> None:
    def reshaped(x: Any) -> Any:
        y = x.copy()
        y.shape = (3, 1)
        return y

    with pytest.raises(tn.TraceError, match=r"shape: assigned.*x\.reshape\(shape\) is one \(at .*test_numpy_rules"):
        tn.jit(reshaped)(X)
    with pytest.raises(tn.TraceError, match=r"int: of a traced value.*test_numpy_rules"):
        tn.jit(math.trunc)(2.5)
    assert math.trunc(tn.asarray(X)[2]) == 2


def test_a_read_only_array_is_not_written() -> None:
    x = X.copy()
    x.flags.writeable = False
    with pytest.raises(tn.MutationError, match=r"setitem: .*read-only \(at .*test_numpy_rules"):
        tn.asarray(x)[0] = 1.0


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y[::-1][::-1],
        lambda y: y[::-1, ::-1][::-1, ::-1],
        lambda y: y[::-1][::-1][::-1][::-1],
        lambda y: np.flip(np.flip(y)),
        lambda y: y[:, ::-1][:, ::-1],
        lambda y: y[:][::1],
    ],
)
def test_a_view_reversed_twice_is_contiguous_again(view):
    def f(x):
        y = np.zeros((3, 2))
        flat = view(y).reshape(-1)
        flat[0] = x[0]
        return y

    x = np.ones(1)
    assert tn.jit(f)(x).tolist() == f(x).tolist()
    g = tn.jit(lambda x: view(x))
    z = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(g(z), z) and np.shares_memory(g(z), z)
