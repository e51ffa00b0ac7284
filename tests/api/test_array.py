"""tn.Array: NumPy's aliasing, eager operations, conversions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tenferro.tracer.errors import DtypeError, MutationError, TraceError
from tests.runtime.engines import several


@pytest.fixture
def x():
    return tn.asarray(np.arange(6.0).reshape(2, 3))


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), b)
    return isinstance(a, tn.Array)


def test_asarray_shares_memory():
    source = np.arange(3.0)
    x = tn.asarray(source)
    source[0] = 9
    assert x[0] == 9 and np.asarray(x) is not None and np.shares_memory(np.asarray(x), source)
    assert not np.shares_memory(np.asarray(tn.array(source)), source)
    assert tn.asarray(x) is x


def test_attributes(x):
    assert (x.shape, x.ndim, x.size, x.nbytes, x.dtype) == ((2, 3), 2, 6, 48, np.float64)
    assert x.device == tn.list_engines()[0] and x.engine.id == x.device
    assert len(x) == 2 and x.block_until_ready() is x and x.to_device("cpu") is x
    assert "Array(" in repr(x) and "float64" in repr(x)


def test_slices_are_views(x):
    row = x[1]
    row[0] = 100
    assert x[1, 0] == 100
    x.T[0, 0] = -1
    assert float(x[0, 0]) == -1
    x.reshape(6)[5] = 7
    assert float(x[1, 2]) == 7


def test_writes(x):
    x[0] = [7, 8, 9]
    x[x > 8] = 0
    assert same(x, [[7, 8, 0], [3, 4, 5]])
    x += 1
    assert same(x, [[8, 9, 1], [4, 5, 6]])
    i = tn.asarray(np.arange(3))
    i[0] = tn.asarray(2.9)
    assert i.tolist() == [2, 1, 2]
    with pytest.raises(DtypeError, match="add: result of dtype float64 for an array of dtype int64"):
        i += 0.5


def test_operators(x):
    a = np.asarray(x)
    assert same(x + 1, a + 1) and same(2 * x, 2 * a) and same(-x, -a) and same(x - a, a - a)
    assert same(a + x, a + a) and same(x > 2, a > 2) and same(abs(x), abs(a))
    assert same(x @ x.T, a @ a.T)
    assert (x + 1).dtype == np.float64 and (tn.asarray(np.float32(1)) + 1.0).dtype == np.float32


def test_methods(x):
    a = np.asarray(x)
    assert same(x.sum(axis=1), a.sum(axis=1)) and same(x.max(), a.max()) and same(x.mean(0), a.mean(0))
    assert same(x.astype("int32"), a.astype("int32")) and same(x.reshape(3, -1), a.reshape(3, -1))
    assert x.sum().ndim == 0 and float(x.sum()) == 15


def test_numpy_functions_dispatch(x):
    a = np.asarray(x)
    assert same(np.exp(x), np.exp(x)) and same(np.add(x, a), a + a) and same(np.sum(x, axis=0), a.sum(0))
    assert same(np.concatenate([x, a]), np.concatenate([a, a])) and same(np.where(x > 2, x, 0), np.where(a > 2, a, 0))
    assert same(np.add.reduce(x), a.sum(0))
    out = np.zeros_like(a)
    assert np.multiply(x, 2, out=out) is out and out.tolist() == (a * 2).tolist()


def test_what_has_no_rule_is_numpys_own_outside_of_a_trace(x):
    a = np.asarray(x)
    for f in (
        np.fft.rfft, np.fft.fftshift, lambda v: np.trim_zeros(v[0]), np.frexp, lambda v: np.add.reduceat(v[0], [0, 2]),
        lambda v: np.apply_along_axis(np.sort, 0, v), lambda v: np.subtract.accumulate(v, 1),
        lambda v: np.linalg.eigvals(v[:, :2]), lambda v: np.hypot.outer(v, v),
        lambda v: np.histogram2d(v[0], v[1], 2)[0],
    ):  # fmt: skip
        found, wanted = f(x), f(a)
        for p, q in zip(found, wanted, strict=True) if type(wanted) is tuple else ((found, wanted),):
            np.testing.assert_array_equal(np.asarray(p), q)
    assert type(np.fft.rfft(x)) is np.ndarray
    assert np.shares_memory(np.real_if_close(x), a)  # no copy of the memory goes in
    out: Any = tn.asarray(np.zeros((2, 3), complex))
    assert np.fft.fft(x, out=out) is out and same(out, np.fft.fft(a))
    with pytest.raises(ValueError, match=r"^fftn: .* \(at .*test_array"):
        np.fft.fftn(x, s=(2,), axes=(0, 1))
    cure = r"^numpy\.fft\.rfft: not available in a traced function; tenferro\.pure_callback\(numpy\.fft\.rfft"
    with pytest.raises(TraceError, match=cure):
        tn.jit(np.fft.rfft)(x)
    with pytest.raises(TraceError, match=r"^numpy\.linalg\.eigvals: .*; numpy\.linalg\.eigvalsh of a symmetric"):
        tn.jit(np.linalg.eigvals)(x[:, :2])


def test_eager_bits_are_jitted_bits():
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)

    def f(v):
        return np.exp(np.sin(v) * 3) / (1 + np.tanh(v) ** 2)

    eager, jitted = f(tn.asarray(x)), tn.jit(f)(x)
    assert np.asarray(eager).tobytes() == jitted.tobytes()


def test_at(x):
    assert same(x.at[0, 1].set(50), [[0, 50, 2], [3, 4, 5]])
    assert same(x.at[:, 0].add(1), [[1, 1, 2], [4, 4, 5]])
    assert same(tn.asarray(np.zeros(3)).at[[0, 0, 2]].add(1.0), [2, 0, 1])
    assert same(x.at[1].max(4), [[0, 1, 2], [4, 4, 5]])
    assert float(x[0, 1]) == 1
    with pytest.raises(IndexError):
        x.at[5].set(0)


def test_at_inside_jit():
    @tn.jit
    def f(x, i):
        return x.at[0].set(5), x.at[i].add(1.0), x

    x = np.zeros(3)
    first, second, same_x = f(x, np.array([1, 1, 2]))
    assert first.tolist() == [5, 0, 0] and second.tolist() == [0, 2, 1] and same_x is x and x.tolist() == [0, 0, 0]


def test_python_conversions(x):
    assert bool(x[0, 1]) and int(x[1, 1]) == 4 and float(x[1, 1]) == 4 and [1, 2, 3][tn.asarray(1)] == 2
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x[1, 2].item() == 5 and 4.0 in x
    assert [r.tolist() for r in x] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError):
        bool(x)
    with pytest.raises(TypeError):
        hash(x)


def test_pickles_by_value(x):
    back = pickle.loads(pickle.dumps(x[:, 1:]))
    assert isinstance(back, tn.Array) and back.tolist() == [[1, 2], [4, 5]]


def test_dlpack_both_ways(x):
    a = np.from_dlpack(x)
    assert a.tolist() == x.tolist() and np.shares_memory(a, np.asarray(x))
    assert tn.from_dlpack(np.arange(3.0)).tolist() == [0, 1, 2]


def test_index_arrays(x):
    assert same(x[[1, 0], [2, 0]], [5, 0]) and same(x[:, tn.asarray([0, 2])], [[0, 2], [3, 5]])
    with pytest.raises(IndexError):
        x[[3]]
    with pytest.raises(IndexError):
        np.take(x, np.array([10]))


def test_unsupported():
    for bad in (np.array(["a"]), np.ma.masked_array([1.0]), np.zeros(2, np.longdouble), object()):
        with pytest.raises(DtypeError):
            tn.asarray(bad)


def test_namespace(x):
    assert x.__array_namespace__() is tnp
    assert isinstance(tnp.zeros(3), tn.Array) and tnp.zeros((2, 2)).tolist() == [[0, 0], [0, 0]]
    assert type(tnp.exp(np.zeros(2))) is np.ndarray
    assert tnp.float32 is np.float32 and tnp.pi == np.pi and tnp.newaxis is None
    assert tnp.arange(3).tolist() == [0, 1, 2]
    first, second = tnp.meshgrid(tnp.arange(2), tnp.arange(3))
    assert first.tolist() == [[0, 1]] * 3 and second.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert isinstance(tnp.linspace(0, 1, 3), tn.Array)


def test_namespace_inside_jit():
    palette = np.array([10.0, 20.0, 30.0])

    @tn.jit
    def f(i, x):
        return tnp.asarray(palette)[i] + tnp.exp(x) * tnp.ones(3)

    np.testing.assert_allclose(f(np.array([2, 0, 1]), np.zeros(3)), [31, 11, 21])


def test_in_place_inside_a_trace_is_refused(x):
    @tn.jit
    def f(v):
        x[0] = v
        return v

    with pytest.raises(MutationError):
        f(np.ones(3))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_two_engines(x):
    if not tn.list_engines()[0].startswith("cpu"):
        pytest.skip("needs the CPU engine")
    with several(2) as (_, second):
        y = x.to(second)
        assert y.device == "cpu:1" and not np.shares_memory(np.asarray(x), np.asarray(y))
        assert (y + 1).device == "cpu:1"
        with pytest.raises(tn.LoweringError, match="cpu:0 and cpu:1"):
            x + y


def test_sharing_of_memory_is_told_truly() -> None:
    x = np.arange(6.0)
    shared, own = tn.asarray(x), tn.array(x)
    for asks in (np.may_share_memory, np.shares_memory):
        assert asks(x, shared) and asks(shared, x[1:]) and asks(shared[2:], shared)
        assert not asks(x, own) and not asks(own, shared)


def test_permutation_leaves_the_users_memory_alone() -> None:
    x = np.arange(20.0)
    permuted = np.random.default_rng(0).permutation(tn.asarray(x))
    np.testing.assert_array_equal(x, np.arange(20.0))
    np.testing.assert_array_equal(np.sort(permuted), x)


def test_functions_of_other_namespaces_are_no_namesakes() -> None:
    x = np.arange(12.0).reshape(3, 2, 2)
    for function in (np.linalg.trace, np.linalg.diagonal):  # of the last two axes, where numpy.trace takes the first
        assert type(function(tn.asarray(x))) is tn.Array
        np.testing.assert_array_equal(np.asarray(function(tn.asarray(x))), function(x))
        np.testing.assert_array_equal(tn.jit(function)(x), function(x))
        np.testing.assert_array_equal(np.asarray(getattr(tn.linalg, function.__name__)(x)), function(x))


def test_the_class_is_not_called() -> None:
    with pytest.raises(tn.TraceError, match=r"Array: a list; .*tn\.asarray\(x\) makes arrays \(at .*test_array\.py"):
        tn.Array([1, 2])


def test_config_error_is_public() -> None:
    assert issubclass(tn.ConfigError, tn.TenferroError)
    assert issubclass(tn.ConfigError, ValueError)
