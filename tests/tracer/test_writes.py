"""Variables: in-place operators, slice and element writes, views, ``out=``, known cells, donated arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import BoundsError, DtypeError, MutationError, ShapeError, UnrolledLoopWarning
from tests.tracer.tracing import Run, agrees, op_names, run, run_traced, traced

X = np.linspace(-2, 3, 60).reshape(3, 4, 5)


def _iadd(x: Any) -> Any:
    y = x.copy()
    z = y
    y += x
    y *= 2
    return y, z


def _slices(x: Any) -> Any:
    y = x.copy()
    y[1:, :2] = 7
    y[..., -1] = x[..., 0]
    y[0, ::2] += 1
    y[:, ::-1, 1] = x[:, :, 2]
    return y


def _through_views(x: Any) -> Any:
    y = x.copy()
    row = y[1]
    column = row.T[2]
    column[:] = 5
    row += 1
    y.reshape(-1)[::7] = -1
    y.ravel()[3] = 9
    y.T[0, 0, 0] = 8
    y[:, None, 1][..., 0] = 3
    y.transpose(1, 2, 0)[1] *= 2
    return y, row


def _view_sees_later_write(x: Any) -> Any:
    y = x + 0
    v = y[0]
    y[0, 0] = 100
    w = v.sum()
    y[...] = 1
    return v, w


def _element_is_a_copy(x: Any) -> Any:
    y = x.copy()
    a = y[0, 0, 0]
    y[0, 0, 0] = 50
    a += 1
    return a, y


def _integer_arrays(x: Any) -> Any:
    y = x.copy()
    y[[0, 2]] = 4
    y[:, [0, 1], [2, 3]] = x[:, 0, :2]
    y[[0, 1], :, [2, 3]] = x[1, :, :2].T
    y[np.array([[0], [1]]), 3] = x[:2, :1, :].reshape(2, 1, 5)
    y[0][[1, 1]] = 6
    return y


def _masks(x: Any) -> Any:
    y = x.copy()
    y[y > 2] = 0
    y[x < -1] = x[x < -1] * 2
    y[x > 1] += 10
    y[x[:, :, 0] > 0] = np.arange(5.0)
    y[:, x[0, :, 0] < -1] = 3
    y[y[:, 0, 0] > 100] = 5
    return y


def _add_at(x: Any) -> Any:
    y = x.copy()
    np.add.at(y, [0, 0, 1], 1.5)
    np.add.at(y, ([0, 0], [1, 1]), x[0, 0])
    np.subtract.at(y, ([0, 1], [1, 1], [2, 2]), 1)
    return y


def _out(x: Any) -> Any:
    y = np.empty(x.shape)
    np.multiply(x, 2, out=y)
    z = np.zeros_like(x)
    np.add(x, 1, out=z, where=x > 0)
    np.copyto(z[0], 5)
    np.copyto(z, -x, where=x < -1)
    w = np.zeros(x.shape[1:])
    np.sum(x, axis=0, out=w)
    x.max(axis=0, out=w[:, :])
    return y, z, w


def _fill(x: Any) -> Any:
    y = np.ones((2, 3))
    y.fill(4)
    z = x.copy()
    z.fill(x[0, 0, 0])
    return y, z


def _loop(x: Any) -> Any:
    out = np.zeros(5)
    for k in range(5):
        out[k] = x[0, 0, k] * k
        if k:
            out[k] += out[k - 1]
    return out


def _known_cells(x: Any) -> Any:
    weights = np.arange(5) * 2.0
    weights[1] = 7
    weights[2:] /= 2
    table = np.zeros((4, 5), np.float64)
    table[1] = weights
    half = weights.sum() / 2
    index = np.array([0, 2])
    scale = float(weights.max())
    assert int(index[1]) == 2 and weights.tolist()[0] == 0.0 and weights[1] == 7 and 7 in weights
    return x * weights + table, half, x[index], scale, np.linspace(0, 1, 4) + x[0, :, 0], np.asarray(weights)


def _creation(x: Any) -> Any:
    n, m = x.shape[0], x.shape[1]
    return (
        np.zeros(n), np.ones((n, m), np.float32), np.full((m,), 2.5), np.arange(n), np.arange(1, m),
        np.arange(0, n * m, 3),
        np.arange(n, dtype=np.float32), np.arange(m, 0, -1), np.eye(n), np.eye(n, m, 1), np.identity(n), np.tri(n, m),
        np.linspace(0, 1, n), np.linspace(0, 1, m, endpoint=False), np.indices((n, m)), np.full(x.shape, x[0, 0, 0]),
        np.zeros_like(x), np.ones_like(x, dtype=np.int32), np.full_like(x, 3), np.empty((n, 0)),
        np.array([n, m]) / 2, np.array(x.shape), np.asarray([x[0, 0, 0], 1]), np.array([[x[0, 0, 0]], [x[0, 0, 1]]]),
        np.array(x), np.asarray(x, np.float32), np.ascontiguousarray(x.T), np.array([1, 2.5]), np.stack([x[0], x[1]]),
        np.array(x[0, 0], ndmin=3), np.indices((n, m), sparse=True), np.copy(x), x.astype(x.dtype),
    )  # fmt: skip


def _copied_with_ones_in_front(x: Any) -> Any:
    y, z = x.copy(), x.copy()
    np.copyto(y, (x * 2)[None, None])
    np.copyto(z, x[None, :, :1] + 1, where=x > 0)
    return y, z


WRITES: list[Callable[..., Any]] = [
    _copied_with_ones_in_front,
    _iadd, _slices, _through_views, _view_sees_later_write, _element_is_a_copy, _integer_arrays, _masks, _add_at, _out,
    _fill, _loop, _known_cells, _creation,
]  # fmt: skip


@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
def test_writes_mean_what_they_mean_in_numpy(function: Callable[..., Any]) -> None:
    agrees(function, X)


def thomas(a: Any, b: Any, c: Any, d: Any) -> Any:
    n = len(b)
    cp, dp, x = np.zeros(n), np.zeros(n), np.zeros(n)
    cp[0] = c[0] / b[0]
    dp[0] = d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


def test_element_writes_are_forwarded_not_stored_one_by_one() -> None:
    n = 200
    rng = np.random.default_rng(1)
    a, c, d = (rng.uniform(0, 1, n) for _ in range(3))
    b = 4 + rng.uniform(0, 1, n)
    with pytest.warns(
        UnrolledLoopWarning, match=r"thomas: more than 1000 operations traced from one line; .*keep the loop outside"
    ):
        result = traced(thomas, a, b, c, d)
    names = op_names(result)
    assert names.count("slice_update") + names.count("scatter") == 0
    assert names.count("concatenate") == 1
    np.testing.assert_allclose(run_traced(result, a, b, c, d), thomas(a, b, c, d), rtol=1e-12)


def test_stored_elements_have_the_line_of_the_write() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y[0] = x[1] * 2
        return y

    result = traced(f, np.ones(3))
    assert op_names(result)[-1] == "slice_update"
    lines = [o.line for o in result.program.operations]
    assert lines[-1] == lines[-3] and lines[-1] != lines[0]
    assert lines[-1] is not None and lines[-1].file == __file__


def test_places_that_may_be_one_are_stored_first() -> None:
    def f(x: Any, k: int) -> Any:
        y = x.copy()
        y[k] = 1
        y[0] = 2
        return y[k], y

    x = np.zeros(4)
    result = traced(f, x, 2)
    assert run_traced(result, x, 2)[0] == 1
    assert run_traced(result, x, 0)[0] == 2


def test_known_cells_leave_no_operation_behind() -> None:
    def f(x: Any) -> Any:
        w = np.ones(3)
        w *= 2
        w[0] = np.sqrt(w).sum()
        return x * 2

    assert op_names(traced(f, np.ones(2))) == ["multiply"]


def test_uniform_known_cells_enter_as_one_number() -> None:
    result = traced(lambda x: x + np.zeros(3), np.ones(3))
    assert op_names(result) == ["broadcast_to", "add"]
    assert not result.constants


def test_donated_arguments_are_written_in_place() -> None:
    def f(x: Any, y: Any) -> Any:
        x[0] = 5
        x += y
        return x[1:], y

    result = traced(f, np.zeros(3), np.ones(3), donate=(0,))
    assert result.writes == ((0, 2),)
    assert result.program.aliases == (-1, -2, -1)
    made = Run(result, (np.zeros(3), np.ones(3)))
    np.testing.assert_array_equal(made.output(2), [6, 1, 1])


def test_aliases_follow_the_variables() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        z = x * 1.0
        return x, x[::2], y, y.T, y[0], z, x.T.reshape(-1), x.reshape(-1), np.zeros(3), x + 1

    result = traced(f, np.ones((2, 3)))
    assert result.program.aliases == (-1, -1, 0, 0, 0, 1, 2, -1, 3, 4)


def test_equal_results_are_two_arrays() -> None:
    def f(x: Any) -> Any:
        a = x + 1
        b = np.zeros_like(x)
        b[...] = a
        return a, b, b

    result = traced(f, np.ones(3))
    assert result.program.aliases == (0, 1, 1)
    assert result.program.outputs[0] != result.program.outputs[1]


def test_views_of_constants_are_views_of_a_fresh_array() -> None:
    def f(x: Any) -> Any:
        w = np.arange(4) * 2.0
        return w[1:], w, x.copy()[1:]

    result = traced(f, np.ones(3))
    assert result.program.aliases == (0, 0, 1)
    assert op_names(result)[-1] in ("copy", "slice")
    assert all(o.op.name != "slice" or o.inputs[0] not in {i.value for i in result.program.inputs}
               for o in result.program.operations)  # fmt: skip
    agrees(f, np.ones(3))


def test_in_place_operators_on_outside_arrays_are_refused() -> None:
    outside = np.ones(3)

    def f(x: Any) -> Any:
        nonlocal outside
        outside += x

    with pytest.raises(MutationError, match=r"add: out is an array made outside the trace; .*zeros\(shape\)"):
        traced(f, np.ones(3))


def test_captured_arrays_are_inputs() -> None:
    w = np.arange(3.0)
    table = np.arange(6.0).reshape(2, 3)

    def f(x: Any) -> Any:
        return x * w + w, table @ x, w

    result = traced(f, np.ones(3))
    assert [i.kind for i in result.program.inputs] == ["argument", "captured", "captured"]
    assert [a is b for (_, a), b in zip(result.captured, (w, table), strict=True)] == [True, True]
    assert result.program.aliases == (0, 1, -2)
    found = run_traced(result, np.ones(3))
    np.testing.assert_array_equal(found[0], 2 * w)
    w += 1
    np.testing.assert_array_equal(run_traced(result, np.ones(3))[0], 2 * w)


ERRORS: list[tuple[Callable[..., Any], type[Exception], str]] = [
    (lambda x: x.__setitem__(0, 1), MutationError, r"write: argument x is not the function's own; .*argument x\.copy"),
    (lambda x: x.T.__setitem__(0, 1), MutationError, r"write: argument x is not the function's own"),
    (lambda x: x.__iadd__(1), MutationError, r"write: argument x is not the function's own"),
    (lambda x: np.exp(x, out=x), MutationError, r"write: argument x is not the function's own"),
    (lambda x: np.add.at(x, [0], 1), MutationError, r"write: argument x is not the function's own"),
    (lambda x: np.exp(x, out=X), MutationError, r"exp: out is an array made outside the trace; .*numpy\.zeros"),
    (lambda x: np.copyto(X, x), MutationError, r"copyto: out is an array made outside the trace"),
    (lambda x: np.add.at(X, [0], x[0]), MutationError, r"add\.at: .* array made outside the trace"),
    (lambda x: np.broadcast_to(x + 1, (2, 3, 4, 5)).__setitem__(0, 1), MutationError, r"write: .*read-only view"),
    (lambda x: (x > 0).__iadd__(1.5), DtypeError, r"add: result of dtype float64 for an array of dtype bool"),
    (lambda x: x.copy().__iadd__(1j), DtypeError, r"add: result of dtype complex128 for an array of dtype float64"),
    (
        lambda x: x.copy().__iadd__(np.ones((2, 3, 4, 5))),
        ShapeError,
        r"add: a result of shape \(2, 3, 4, 5\) into an array of shape \(3, 4, 5\)",
    ),
    (lambda x: x.copy().__setitem__(0, np.ones(3)), ShapeError, r"setitem: shapes \(4, 5\) and \(3,\)"),
    (
        lambda x: x.copy().__setitem__((0, 0, 9), 1),
        BoundsError,
        r"setitem: index 9 for axis 2 of size 5; it must be in",
    ),
    (lambda x: x.copy().__setitem__(0, 1j), DtypeError, r"setitem: complex values into float64"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_writes_that_are_refused(number: int) -> None:
    function, error, text = ERRORS[number]

    def f(x: Any) -> Any:
        return function(x)

    with pytest.raises(error, match=text + r".*\(at .*test_writes\.py:\d+\)"):
        traced(f, X)


def test_store_into_an_outside_array_is_refused() -> None:
    outside = np.zeros((3, 4, 5))

    def f(x: Any) -> Any:
        outside[0] = x[0]

    def g(x: Any) -> Any:
        outside[0, 0, 0] = x[0, 0, 0]

    for function in (f, g):
        with pytest.raises(
            MutationError, match=r"write: a traced value goes into an array made outside the trace; .*zeros"
        ):
            traced(function, X)
    assert not outside.any()


def test_overlapping_slices_read_before_they_write() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y[1:] = y[:-1]
        y[:-1] += y[1:]
        return y

    agrees(f, np.arange(6.0))


def test_heat_step_is_one_update() -> None:
    def heat(u: Any) -> Any:
        out = u.copy()
        out[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        return out

    u = np.random.default_rng(0).uniform(size=(7, 6))
    result = traced(heat, u)
    assert op_names(result).count("slice_update") == 1
    assert not result.program.guards
    for shape in ((0, 0), (1, 5), (2, 2), (3, 3), (9, 4)):
        v = np.random.default_rng(1).uniform(size=shape)
        np.testing.assert_array_equal(run_traced(result, v), heat(v))


def test_nested_results_and_sizes() -> None:
    def f(x: Any, n: int) -> Any:
        return {"sum": x.sum(), "sizes": (x.shape[0], n, n + 1), "none": None, "name": "x", "list": [x.shape[0] * 2]}

    assert run(f, np.ones(3), 4) == {"sum": 3.0, "sizes": (3, 4, 5), "none": None, "name": "x", "list": [6]}


@pytest.mark.parametrize("size", [4, 6, 1])
def test_strided_windows_take_values_of_another_form_of_the_same_size(size: int) -> None:
    """The window's size is an expression, the value's a number or another expression: equal by a guard."""

    def halves(x: Any) -> Any:
        y, half = x.copy(), (x.shape[0] + 1) // 2
        y[::2] = x[:half]
        y[::2] += x[:half]
        y[::-2] = x[-half:]
        return y

    x = np.arange(size) + 1.0
    np.testing.assert_array_equal(tn.jit(halves)(x), halves(x))


def test_a_list_into_a_strided_window() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y[1::2] = [7.0, 8.0]
        y[::2] += np.array([1.0, 2.0])
        return y

    jitted = tn.jit(f)
    for size in (4, 5):
        x = np.arange(float(size))
        if size == 4:
            np.testing.assert_array_equal(jitted(x), f(x))
        else:
            with pytest.raises(ValueError):
                jitted(x)


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y[::-1].reshape(-1),
        lambda y: y[::2].reshape(1, -1),
        lambda y: y.reshape(4, 3)[:, :2].reshape(4, 2, 1),
        lambda y: y.reshape(6, 2).T.reshape(2, 3, 2),
        lambda y: y.reshape(1, 12).T.reshape(-1),
        lambda y: y.reshape(6, 2).T.reshape(-1),
    ],
)
def test_a_reshape_that_only_splits_axes_is_a_view(write: Callable[[Any], Any]) -> None:
    """As in NumPy, where any strides serve for it; one that joins axes of a transposed view is a copy in both."""

    def f(x: Any) -> Any:
        y = x.copy()
        write(y)[0] = 99
        return y

    x = np.arange(12.0)
    np.testing.assert_array_equal(tn.jit(f)(x), f(x))
