"""What bad input gets while tracing: one sentence with the op, what was found, what is needed, and the user's line."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.api import registry  # noqa: F401 (fills the table)
from tenferro.tracer.api.methods import ArrayMethods
from tenferro.tracer.api.record import API
from tenferro.tracer.errors import BoundsError, DtypeError, LeakError, MutationError, ShapeError, TraceError
from tenferro.tracer.trace import current_trace
from tenferro.tracer.traced import TracedArray
from tests.tracer.tracing import run, traced

X = np.linspace(0.5, 2, 6).reshape(2, 3)
PALETTE = np.arange(12.0).reshape(4, 3)


class Matrix(np.ndarray[Any, Any]):
    """Some subclass."""


def _assign(target: Any, key: Any, value: Any) -> None:
    target[key] = value


CASES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (
        lambda x: x + np.ones(4),
        ShapeError,
        r"add: shapes \(2, 3\) and \(4,\); they do not broadcast: sizes must be equal or 1",
    ),
    (
        lambda x: x @ x,
        ShapeError,
        r"matmul: axis 1 of a \(2, 3\) has size 3, axis 0 of b \(2, 3\) has size 2; they must",
    ),
    (lambda x: np.concatenate([x, x[:, :2]]), ShapeError, r"concatenate: axis 1 has sizes 3 and 2; they must be equal"),
    (lambda x: np.concatenate([x, x[0]]), ShapeError, r"concatenate: arrays of ranks \[2, 1\]; one rank"),
    (lambda x: np.stack([x, x[0]]), ShapeError, r"stack: shapes \(2, 3\) and \(3,\)"),
    (lambda x: x.reshape(4, 2), ShapeError, r"reshape: 6 elements into shape \(4, 2\); the numbers must be equal"),
    (lambda x: x.reshape(4, -1), ShapeError, r"reshape: 6 elements into shape \(4, 1\) with -1; .* must divide them"),
    (lambda x: x.transpose(0, 0), ShapeError, r"transpose: axes \(0, 0\) for rank 2; each axis once"),
    (lambda x: x.sum(axis=2), BoundsError, r"sum: axis 2 for rank 2; it must be in \[-2, 2\)"),
    (lambda x: x.sum(axis=(0, 0)), ShapeError, r"sum: axes \(0, 0\); each may be named once"),
    (lambda x: np.average(x, axis=(1, -1)), ShapeError, r"average: axes \(1, -1\); each may be named once"),
    (lambda x: np.gradient(x, axis=[0, -2]), ShapeError, r"gradient: axes \(0, -2\); each may be named once"),
    (lambda x: np.broadcast_to(x, (3, 3)), ShapeError, r"broadcast_to: shapes \(2, 3\) and \(3, 3\)"),
    (lambda x: x.squeeze(0), ShapeError, r"squeeze: axis 0 of size 2; size 1 is needed"),
    (lambda x: np.zeros(-1), ShapeError, r"zeros: size -1; sizes cannot be negative"),
    (lambda x: x[2], BoundsError, r"getitem: index 2 for axis 0 of size 2; it must be in \[-2, 2\)"),
    (lambda x: x[0, -4], BoundsError, r"getitem: index -4 for axis 1 of size 3; it must be in \[-3, 3\)"),
    (lambda x: x[0, 0, 0], BoundsError, r"getitem: 3 indices for an array of rank 2; at most 2 fit"),
    (lambda x: x[1.5], BoundsError, r"getitem: index 1\.5 of class float; integers, slices.* needed, int\(i\) rounds"),
    (lambda x: x["a"], BoundsError, r"getitem: index 'a' of class str; integers, slices"),
    (lambda x: x[x], BoundsError, r"getitem: index of dtype float64; integers or bools are needed"),
    (lambda x: x[x[0] > 0], BoundsError, r"getitem: mask of size 3 for axis 0 of size 2; they must be equal"),
    (lambda x: x[::0], ShapeError, r"getitem: slice step 0; a step other than 0"),
    (lambda x: (x > 0) - (x > 1), DtypeError, r"subtract: dtypes bool, bool; NumPy has no rule for them"),
    (lambda x: x & 1, DtypeError, r"bitwise_and: dtypes float64, int64; NumPy has no rule"),
    (lambda x: x + "a", DtypeError, r"add: an argument of class builtins\.str; an array or a number is needed"),
    (lambda x: x + np.array(["a"]), DtypeError, r"dtype <U1; one of bool, int8 to int64"),
    (lambda x: x * PALETTE[:2].astype(object), DtypeError, r"captured array: dtype object; one of bool"),
    (lambda x: x * np.sort(x.shape), DtypeError, r"captured array: an array of objects, which NumPy made of"),
    (lambda x: x * PALETTE[:2].astype(np.longdouble), DtypeError, r"captured array: dtype float128; one of bool"),
    (lambda x: x.astype(np.longdouble), DtypeError, r"astype: dtype float128; one of bool"),
    (lambda x: x.astype("U3"), DtypeError, r"astype: dtype <U3; one of bool"),
    (lambda x: np.zeros(3, object), DtypeError, r"zeros: dtype object; one of bool"),
    (
        lambda x: x * PALETTE[:2].view(Matrix),
        DtypeError,
        r"captured array: an array of class .*Matrix; a plain numpy\.nd",
    ),
    (lambda x: x * np.ma.masked_array(PALETTE[:2]), DtypeError, r"captured array: an array of class numpy\.ma.*Masked"),
    (lambda x: 1 if x[0, 0] > 1 else 2, TraceError, r"if: of a traced value, .*; numpy\.where\(x\[0, 0\] > 1, 1, 2\)"),
    (lambda x: x.any() and x.all(), TraceError, r"and: of a traced value, .*logical_and\(x\.any\(\), x\.all\(\)\)"),
    (lambda x: int(x[0, 0]), TraceError, r"int: of a traced value, .* return it and convert outside"),
    (lambda x: float(x[0, 0]), TraceError, r"float: of a traced value, .*x\[0, 0\]\.astype\(float\) converts"),
    (lambda x: complex(x[0, 0]), TraceError, r"complex: of a traced value"),
    (lambda x: math.sin(x[0, 0]), TraceError, r"math\.sin: of a traced value, .*numpy\.sin\(x\[0, 0\]\) takes"),
    (lambda x: x.item(), TraceError, r"item: of a traced value"),
    (lambda x: x.tolist(), TraceError, r"tolist: of a traced value"),
    (lambda x: x.tobytes(), TraceError, r"tobytes: of a traced value"),
    (lambda x: 3 in x, TraceError, r"in: of a traced value, .*numpy\.any\(x == 3\) asks"),
    (lambda x: range(x[0, 0].astype(int)), TraceError, r"range: of a traced value, .* a size of x\.shape is known"),
    (lambda x: [1, 2][x[0, 0].astype(int)], TraceError, r"an untraced array is indexed by a traced value"),
    (
        lambda x: PALETTE[x[0].astype(int)],
        TraceError,
        r"indexing: an untraced array .*tenferro\.numpy\.asarray\(a\)\[i\]",
    ),
    (lambda x: PALETTE[x[0, 0].astype(int)], TraceError, r"indexing: an untraced array is indexed by a traced value"),
    (
        lambda x: np.sum([x, x]),
        TraceError,
        r"numpy\.sum: of a list of traced values, .*\(numpy\.stack\(\[x, x\]\)\)",
    ),
    (lambda x: np.random.rand(3), TraceError, r"numpy\.random\.rand: .* frozen; tenferro\.random\.uniform makes"),
    (lambda x: np.random.default_rng(0), TraceError, r"numpy\.random\.default_rng: inside a traced function"),
    (lambda x: np.random.normal(size=2), TraceError, r"numpy\.random\.normal: inside a traced function"),
    (lambda x: _assign(PALETTE, 0, x[0]), MutationError, r"write: a traced value goes into an array made outside"),
    (lambda x: x.astype(int) ** -1, ValueError, r"power: integers to the exponent -1; .*x\.astype\(float\)"),
    (lambda x: x.astype(int) ** -5, ValueError, r"power: integers to the exponent -5; .*x\.astype\(float\)"),
    (lambda x: f"{x.sum():.3f}", TraceError, r"format: of a traced value, which has no elements yet; return it"),
    (lambda x: f"{x:>9}", TraceError, r"format: of a traced value, which has no elements yet; return it"),
    (lambda x: np.pad(x, 1, mode="upwards"), ShapeError, r"pad: mode 'upwards'; one of constant, empty, edge"),
    (lambda x: np.pad(x, (1, 2, 3)), ShapeError, r"pad: pad_width \(1, 2, 3\) for rank 2; one pair"),
    (
        lambda x: np.linalg.svd(x),
        TraceError,
        r"svd: full_matrices=True; full_matrices=False is needed in a traced function",
    ),
    (lambda x: np.delete(x, 7, axis=0), IndexError, r"delete: index 7 is out of bounds for axis 0 with size 2"),
    (lambda x: np.fill_diagonal(x, 1), MutationError, r"write: argument x is not the function's own; write into"),
    (lambda x: np.linalg.eig(x), TraceError, r"numpy\.linalg\.eig: .*; numpy\.linalg\.eigh of a symmetric"),
    (lambda x: np.fft.rfft(x), TraceError, r"numpy\.fft\.rfft: .*; tenferro\.pure_callback\(numpy\.fft\.rfft, "),
    (lambda x: np.add.reduceat(x, [0]), TraceError, r"add\.reduceat: .*; numpy\.bincount\(group, weights=x\)"),
    (
        lambda x: x[0, : np.argmax(x)],
        TraceError,
        r"getitem: slice bound of a traced value; .*numpy\.where\(numpy\.arange",
    ),
    (lambda x: np.r_[x[0], x[1]], TraceError, r"numpy\.r_ and numpy\.c_: of traced values, .*numpy\.concatenate"),
    (lambda x: np.c_[x[0], 1.0], TraceError, r"numpy\.r_ and numpy\.c_: of traced values, .*axis=-1"),
    (
        lambda x: np.float32(x.sum()),
        TraceError,
        r"numpy\.float32: of a traced value, .*x\.sum\(\)\.astype\(numpy",
    ),
    (lambda x: np.trim_zeros(x[0]), TraceError, r"numpy\.trim_zeros: not available in a traced function; return"),
    (lambda x: np.isin(x, [1], kind="x"), TraceError, r"isin: kind 'x'; 'sort', 'table' or None is needed"),
    (lambda x: np.histogramdd(x), TraceError, r"numpy\.histogramdd: .*; numpy\.add\.at\(counts"),
    (lambda x: np.histogram2d(x, x), ShapeError, r"histogram2d: x of rank 2; rank 1 is needed"),
    (lambda x: np.histogram2d(x[0], x[:, 0]), ShapeError, r"histogram2d: x and y have sizes .*; one size is needed"),
    (
        lambda x: x.ravel()[: x[x > 1].size],
        TraceError,
        r"comparison \(number of elements selected\) <= x\.shape\[0\]\*x\.shape\[1\] = 6: a size known only",
    ),
    (
        lambda x: x.astype("i4") + x[x > 1].size,
        TraceError,
        r"int32: \(number of elements selected\) beside an array of this dtype, known only when .*numpy\.int64",
    ),
    (lambda x: np.std(x, ddof="a"), DtypeError, r"std: ddof 'a'; a number is needed"),
    (lambda x: np.vecdot(x, 1.5), ShapeError, r"vecdot: an operand of rank 0; rank 1 or more"),
    (lambda x: np.tensordot(x, x, 3), ShapeError, r"tensordot: 3 axes for ranks 2 and 2; at most the smaller rank"),
    (lambda x: np.divmod(x, x, x.copy(), x.copy()), TraceError, r"divmod: out; floor_divide and remainder"),
    (lambda x: np.frexp(x), TraceError, r"frexp: not available in a traced function"),
    (lambda x: np.exp(x, where=x > 0), TraceError, r"exp: where without out leaves elements undefined; give out"),
    (lambda x: np.add.reduceat(x, [0]), TraceError, r"add\.reduceat: not available"),
    (
        lambda x: np.divide.at(x.copy(), [0], 2.0),
        TraceError,
        r"divide\.at: not available in a traced function; add\.at, subtract\.at, multiply\.at, maximum\.at and",
    ),
    (lambda x: np.arange(x[0, 0]), TraceError, r"arange: a traced bound; the number of elements must be known"),
    (lambda x: np.take(x, [0], mode="raised"), TraceError, r"take: mode 'raised'; 'raise', 'clip' or 'wrap'"),
    (lambda x: x.reshape(3, 2, order="A"), TraceError, r"reshape: order 'A', which asks how the memory lies; 'C'"),
    (lambda x: x.ravel("K"), TraceError, r"ravel: order 'K', which asks how the memory lies; 'C' or 'F' is needed"),
    (lambda x: (x > 1).astype("u1") + 300, OverflowError, r"add: Python integer 300 out of bounds for uint8"),
    (lambda x: x.put([0], 1), AttributeError, r"ndarray\.put: not available on a traced value"),
    (lambda x: x.flat, AttributeError, r"ndarray\.flat: .*x\.reshape\(-1\)\[i\] = v writes one"),
    (lambda x: x.strides, AttributeError, r"ndarray\.strides: .*return the array and ask it outside"),
    (lambda x: x.astype(complex).astype(float), DtypeError, r"astype: complex128 to float64; x\.real or abs\(x\)"),
    (lambda x: len(x.sum()), ShapeError, r"len: an array of rank 0"),
    (lambda x: np.array([x, x[0]]), ShapeError, r"array: a list of arrays of ranks \[1, 2\]; one rank is needed"),
]


def test_while_on_a_traced_condition() -> None:
    def f(x: Any) -> Any:
        while x.sum() > 1:
            x = x / 2
        return x

    with pytest.raises(TraceError, match=r"while: of a traced value, .*; keep the while loop outside and jit its body"):
        traced(f, X)


def test_an_index_argument_is_named() -> None:
    with pytest.raises(BoundsError, match=r"getitem: index n = 9 for axis 0 of size 2"):
        traced(lambda x, n: x[n], X, 9)


def test_no_operator_or_method_without_a_function() -> None:
    names = set(re.findall(r'_(?:call|inplace)\("(\w+)"', "".join(map(inspect.getsource, (ArrayMethods, TracedArray)))))
    assert len(names) > 50
    assert names <= set(API)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_bad_input(number: int) -> None:
    function, error, text = CASES[number]
    with pytest.raises(error, match=text + r".*\(at .*test_errors\.py:\d+\)$") as caught:
        traced(function, X)
    assert type(caught.value).__module__ in ("tenferro.tracer.errors", "builtins")
    assert current_trace() is None
    np.testing.assert_array_equal(run(lambda x: np.zeros(2) + x[:, 0], X), X[:, 0])  # the next call works


def test_a_leaked_array_says_where_it_was_made() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x

    traced(f, X)
    text = (
        r"traced value float64\(.*\): used after the trace of f has ended; it was made at .*test_errors\.py:\d+; return"
    )
    for use in (lambda y: y + 1, lambda y: y[0], lambda y: np.exp(y), lambda y: y.shape, bool, lambda y: np.asarray(y)):
        with pytest.raises(LeakError, match=text):
            use(kept[0])

    def g(x: Any) -> Any:
        return x + kept[0]

    with pytest.raises(LeakError, match=text):
        traced(g, X)


def test_a_result_that_is_no_array() -> None:
    class Thing:
        pass

    with pytest.raises(TraceError, match=r"f: result of class .*Thing; arrays, numbers and pytrees of them"):

        def f(x: Any) -> Any:
            return x, Thing()

        traced(f, X)


def test_an_error_of_the_function_itself_passes_through() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        traced(f, X)
    assert current_trace() is None
    assert type(np.zeros(2)) is np.ndarray


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.sum(x, axis="rows"),
        lambda x: np.sum(x, axis=1.5),
        lambda x: np.array_split(x, "a"),
        lambda x: np.rot90(x, np.ones(3)),
        lambda x: np.diff(x, "a"),
        lambda x: np.tril(x, None),
        lambda x: np.diagonal(x, 1.5),
        lambda x: np.round(x, "a"),
    ],
)
def test_integers_are_needed(function: Callable[[Any], Any]) -> None:
    with pytest.raises(
        DtypeError,
        match=r"\w+: \w+ .*; an integer is needed(, int\(x\) rounds a number)? \(at .*test_errors\.py:\d+\)$",
    ):
        traced(function, X)
