"""What Python and NumPy ask of an array as an object, of tn.Array: files, texts, numbers, copies, containers."""

from __future__ import annotations

import copy
import io
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.arange(6.0).reshape(2, 3)
Make = Callable[[Any], Any]


def saved(write: Callable[[Any], None]) -> Any:
    file = io.BytesIO()
    write(file)
    file.seek(0)
    found = np.load(file)
    return found if isinstance(found, np.ndarray) else {k: found[k].tolist() for k in found}


def written(m: Make) -> str:
    file = io.StringIO()
    np.savetxt(file, m(X), fmt="%.3f", delimiter=";")
    return file.getvalue()


SAME: dict[str, Callable[[Make], Any]] = {
    "save": lambda m: saved(lambda f: np.save(f, m(X))).tolist(),
    "savez": lambda m: saved(lambda f: np.savez(f, m(X), y=m(X[0]))),
    "savez_compressed": lambda m: saved(lambda f: np.savez_compressed(f, y=m(X[:, 1]))),
    "savetxt": written,
    "array2string": lambda m: np.array2string(m(X), precision=2, separator=","),
    "array_str": lambda m: np.array_str(m(X)),
    "array_repr": lambda m: np.array_repr(m(X)),
    "assert_allclose": lambda m: np.testing.assert_allclose(m(X), X + 1e-12),
    "assert_allclose of both": lambda m: np.testing.assert_allclose(m(X), m(X)),
    "assert_array_equal": lambda m: np.testing.assert_array_equal(X, m(X)),
    "assert_equal": lambda m: np.testing.assert_equal({"a": m(X)}, {"a": X}),
    "assert_array_less": lambda m: np.testing.assert_array_less(m(X), X + 1),
    "assert_array_max_ulp": lambda m: float(np.testing.assert_array_max_ulp(m(X), X).max()),
    "assert_allclose of NaNs": lambda m: np.testing.assert_allclose(m([np.nan, 1.0]), [np.nan, 1.0]),
    "assert_allclose fails": lambda m: np.testing.assert_allclose(m(X), X + 1),
    "pickle": lambda m: pickle.loads(pickle.dumps(m(X))).tolist(),
    "pickle of a scalar": lambda m: pickle.loads(pickle.dumps(m(X).sum(), 5)).tolist(),
    "copy": lambda m: copy.copy(m(X)).tolist(),
    "deepcopy": lambda m: copy.deepcopy({"a": [m(X)]})["a"][0].tolist(),
    "str": lambda m: f"{m(X)} {m(X).sum()} {m([1, 2]).sum()} {m([True]).all()}",
    "f-string": lambda m: f"{m(X).sum():.2f} {m(X)[0, 1]:>8.3f}| {m([1, 2]).sum():04d} {m(1.5):.1f}",
    "percent": lambda m: "%.3f %d" % (m(X).sum(), m([1, 2]).sum()),  # noqa: UP031
    "format of an array": lambda m: f"{m(X):.2f}",
    "float": lambda m: float(m(X).sum()),
    "float of many": lambda m: float(m(X)),
    "int": lambda m: int(m(X).sum() + 0.5),
    "complex": lambda m: complex(m(3j)),
    "bool": lambda m: [bool(m(X).sum()), bool(m([0.0]))],
    "bool of many": lambda m: bool(m(X)),
    "bool of none": lambda m: bool(m([])),
    "index": lambda m: [10, 20, 30, 40][m([1, 2]).sum()] + len(range(m([1, 2]).sum())) + operator.index(m(3)),
    "index of a float": lambda m: operator.index(m(3.0)),
    "len": lambda m: len(m(X)),
    "len of a scalar": lambda m: len(m(X).sum()),
    "iteration": lambda m: [float(v) for row in m(X) for v in row],
    "iteration of a scalar": lambda m: list(m(X).sum()),
    "unpacking": lambda m: (lambda a, b: float(b[1] - a[0]))(*m(X)),
    "zip, enumerate, reversed": lambda m: [
        (k, float(a), float(b)) for k, (a, b) in enumerate(zip(m(X[0]), reversed(m(X[1])), strict=True))
    ],
    "sorted, min, sum": lambda m: [
        *map(float, sorted(m(X[0]), reverse=True)), float(min(m(X[1]))), float(sum(m(X[0])))
    ],
    "in": lambda m: [3.0 in m(X), 9.0 in m(X), X[0] in m(X), 9.0 not in m(X)],
    "in a scalar": lambda m: 15.0 in m(X).sum(),
    "in a list": lambda m: m(X).sum() in [2.0, 15.0],
    "hash": lambda m: hash(m(X)),
    "hash of a scalar": lambda m: [hash(m(X).sum()), {m(X).sum(): 1}[15.0], len({m([1, 2]).sum(), 3})],
    "None": lambda m: [m(X) is None, m(X).sum() == None, m(X).sum() != None],  # noqa: E711
    "None, by element": lambda m: np.asarray(m(X) == None).tolist() + np.asarray(m(X) != None).tolist(),  # noqa: E711
    "None, ordered": lambda m: m(X) < None,
    "a text": lambda m: np.asarray(m(X) == "a").tolist(),
    "round": lambda m: [round(m(X).mean()), float(round(m(X * 1.234).sum(), 2)), int(round(m([55]).sum(), -1))],
    "round of an array": lambda m: round(m(X), 1),
    "math": lambda m: [f(m(X).mean()) for f in (math.sqrt, math.floor, math.ceil, math.trunc)],
    "a list repeated": lambda m: [[1, 2] * m([1, 2]).sum(), m([2]).sum() * (1, 2)],
    "a list repeated by a float": lambda m: [1, 2] * m(X).sum(),
    "a list and an array": lambda m: np.asarray([1, 2] * m([3, 4])).tolist(),
    "bytes": lambda m: [bytes(m(np.array([1, 2], np.uint8))), m(X).tobytes()],
    "numpy.array": lambda m: [np.array([m(X), m(X)]).tolist(), np.array([m(X).sum(), 1.0]).tolist()],
    "shape assigned": lambda m: reshaped(m(X.copy()), (3, 2)),
    "shape -1": lambda m: reshaped(m(X.copy()), -1),
    "shape that does not fit": lambda m: reshaped(m(X.copy()), (4, 2)),
    "shape that needs a copy": lambda m: reshaped(m(X.copy()).T, (6,)),
    "shape of a scalar": lambda m: reshaped(m(X).sum(), (1,)),
}  # fmt: skip


def reshaped(x: Any, shape: Any) -> Any:
    x.shape = shape
    return x.tolist()


@pytest.mark.parametrize("case", SAME)
def test_as_of_numpys_array(case: str) -> None:
    wanted, found = (outcome(lambda m=m: SAME[case](m)) for m in (np.asarray, tn.asarray))  # type: ignore[misc]
    if isinstance(wanted, Exception):
        assert isinstance(found, type(wanted)), repr(found)
    else:
        assert found == wanted


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (TypeError, ValueError, IndexError, AttributeError, AssertionError) as error:
        return error


def test_to_a_file(tmp_path):
    tn.asarray(X).tofile(tmp_path / "x.bin")
    assert np.fromfile(tmp_path / "x.bin").tolist() == X.ravel().tolist()


def test_a_shape_is_the_arrays_own():
    own = X.copy()
    x, y = tn.asarray(own), tn.asarray(own)
    x.shape = (3, 2)
    x[0, 1] = 9
    assert own.shape == y.shape == (2, 3) and own[0, 1] == y[0, 1] == 9


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda x: setattr(x, "shape", (3, 2)), r"shape: assigned, .*; x\.reshape\(shape\) is one \(at .*\)"),
        (lambda x: setattr(x, "dtype", np.int64), r"dtype: assigned, .*; x\.view\(dtype\) is one \(at .*\)"),
        (lambda x: round(x, 1), r"round: of an array; numpy\.round"),
        (lambda x: x.sum() * [1.0, 2.0], r"multiply: a traced number and a list; Python repeats by ints"),
    ],
)
def test_of_traced_arrays_what_numpy_does_is_refused_with_the_cure(write, text):
    with pytest.raises(TypeError, match=text):
        tn.jit(lambda x: write(x))(X)


def test_what_cannot_be_assigned_says_what_can():
    with pytest.raises(AttributeError, match=r"dtype: assigned to an array; x = x\.view\(dtype\) is needed"):
        tn.asarray(X).dtype = np.int64
    with pytest.raises(AttributeError, match=r"shape: assigned to a scalar; x = x\.reshape\(shape\) is needed"):
        tn.asarray(X).sum().shape = (1,)
