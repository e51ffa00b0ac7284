"""Jitted functions: types, aliasing, donation, keywords, methods, pytrees, nesting, threads, pickling, errors."""

from __future__ import annotations

import pickle
import queue
import threading
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DtypeError, LeakError, MutationError, TraceError

Point = namedtuple("Point", "x y")


@tn.jit
def double(x):
    """Twice x."""
    return 2 * x


# -- type in, type out -------------------------------------------------------------------------------------------------


def test_numpy_in_numpy_out():
    out = double(np.arange(3.0))
    assert type(out) is np.ndarray and out.flags.writeable and out.tolist() == [0, 2, 4]


def test_rank_0_gives_numpy_scalars():
    assert type(double(np.float32(2))) is np.float32
    assert type(tn.jit(lambda x: x.sum())(np.ones(3))) is np.float64


def test_array_in_array_out():
    x = tn.asarray(np.arange(3.0))
    assert isinstance(double(x), tn.Array)
    add = tn.jit(lambda a, b: a + b)
    assert isinstance(add(x, np.ones(3)), tn.Array)
    assert isinstance(tn.jit(lambda a: a.sum())(x), tn.Array)


def test_captured_array_decides_too():
    table = tn.asarray(np.arange(3.0))
    out = tn.jit(lambda x: x + table)(np.ones(3))
    assert isinstance(out, tn.Array) and np.asarray(out).tolist() == [1, 2, 3]


def test_no_array_leaf_gives_numpy():
    assert type(double(2.0)) is float and type(double(np.float64(2))) is np.float64
    assert type(tn.jit(lambda: np.zeros(2) + 1)()) is np.ndarray


def test_sizes_and_constants_come_back_as_python_objects():
    @tn.jit
    def f(x):
        return x.shape, 1.5, None, "name", len(x.shape), x.shape[0] * 2 + 1, True

    out = f(np.ones((2, 3)))
    assert out == ((2, 3), 1.5, None, "name", 2, 5, True)
    assert [type(v) for v in (out[0][0], out[1], out[5])] == [int, float, int]
    assert f(np.ones((4, 3)))[0] == (4, 3)


def test_dict_order_is_kept():
    out = tn.jit(lambda x: {"z": x + 1, "a": x})(np.ones(2))
    assert list(out) == ["z", "a"]


# -- aliasing ----------------------------------------------------------------------------------------------------------


def test_identity_returns_the_argument():
    x = np.ones(3)
    assert tn.jit(lambda x: x)(x) is x


def test_views_of_arguments_are_views():
    x = np.arange(6.0)
    out = tn.jit(lambda x: x[1:4])(x)
    assert np.shares_memory(out, x)
    out[0] = 100
    assert x[1] == 100
    t = tn.jit(lambda x: x.reshape(2, 3).T)(x)
    assert np.shares_memory(t, x)


def test_fresh_stays_fresh():
    x = np.ones(3)
    out = tn.jit(lambda x: x * 1.0)(x)
    assert not np.shares_memory(out, x)
    a, b = tn.jit(lambda x: (x + 1, x + 1))(x)
    assert not np.shares_memory(a, b)


def test_repeated_result_is_one_array():
    def f(x):
        y = x + 1
        return y, y, y[1:]

    a, b, c = tn.jit(f)(np.ones(3))
    assert a is b and np.shares_memory(a, c)


# -- donation and mutation -------------------------------------------------------------------------------------------


def test_mutating_an_argument_raises_and_names_it():
    @tn.jit
    def f(values):
        values[0] = 1
        return values

    x = np.zeros(3)
    with pytest.raises(MutationError, match="values"):
        f(x)
    assert x.tolist() == [0, 0, 0]


def test_donated_argument_is_written_in_place():
    def f(x, y):
        x += y
        return x * 2

    g = tn.jit(f, donate_argnums=0)
    x, y = np.zeros(3), np.arange(3.0)
    assert g(x, y).tolist() == [0, 2, 4]
    assert x.tolist() == [0, 1, 2]
    assert g(x, y).tolist() == [0, 4, 8]
    assert x.tolist() == [0, 2, 4]


def test_donated_argument_returned_is_itself():
    def f(x):
        x *= 2
        return x

    x = np.ones(3)
    assert tn.jit(f, donate_argnums=0)(x) is x and x.tolist() == [2, 2, 2]


def test_donated_argument_keeps_its_value_when_the_run_fails():
    def f(x, i):
        x += 1
        return x, np.take(x, i)

    g = tn.jit(f, donate_argnums=0)
    x = np.zeros(3)
    with pytest.raises(IndexError):
        g(x, np.array([5]))
    assert x.tolist() == [0, 0, 0]
    g(x, np.array([1]))
    assert x.tolist() == [1, 1, 1]


def test_donated_argument_that_shares_memory_is_refused():
    def f(x, y):
        x += 1
        return x + y

    x = np.zeros(4)
    with pytest.raises(MutationError, match="x may share memory with y"):
        tn.jit(f, donate_argnums=0)(x[:3], x[1:])
    assert x.tolist() == [0, 0, 0, 0]


def test_read_only_donated_argument_is_refused():
    def f(x):
        x += 1
        return x

    x = np.zeros(3)
    x.flags.writeable = False
    with pytest.raises(MutationError, match="read-only"):
        tn.jit(f, donate_argnums=0)(x)
    assert x.tolist() == [0, 0, 0]


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_keywords_and_defaults():
    @tn.jit
    def f(x, y=1.0, *, scale=2.0):
        return (x + y) * scale

    x = np.ones(2)
    assert f(x).tolist() == [4, 4]
    assert f(x, 3.0).tolist() == [8, 8]
    assert f(x, y=3.0).tolist() == [8, 8]
    assert f(scale=1.0, x=x).tolist() == [2, 2]
    assert f.cache_info().compiles == 3
    with pytest.raises(TypeError, match="missing"):
        f()


def test_static_arguments():
    @tn.jit(static_argnames="axis")
    def f(x, axis):
        return x.sum(axis)

    x = np.arange(6.0).reshape(2, 3)
    assert f(x, 0).tolist() == [3, 5, 7] and f(x, axis=1).tolist() == [3, 12]
    assert f.cache_info().compiles == 2


def test_static_zero_and_negative_zero():
    f = tn.jit(lambda x, c: x * c, static_argnums=1)
    assert not np.signbit(f(np.ones(1), 0.0))[0] and np.signbit(f(np.ones(1), -0.0))[0]


@dataclass
class Layer:
    w: np.ndarray
    b: float
    mode: str = "relu"

    @tn.jit
    def __call__(self, x):
        y = x * self.w + self.b
        return np.maximum(y, 0) if self.mode == "relu" else y


def test_pytrees_in_and_out():
    @tn.jit
    def f(tree):
        return {"sum": tree["a"] + tree["b"][0], "p": Point(tree["b"][1], tree["n"])}

    out = f({"a": np.ones(2), "b": [np.ones(2), np.zeros(3)], "n": None})
    assert out["sum"].tolist() == [2, 2] and isinstance(out["p"], Point) and out["p"].y is None


def test_dataclass_method():
    layer = Layer(np.array([1.0, -1.0]), 0.5)
    assert layer(np.ones(2)).tolist() == [1.5, 0]
    layer.b = 2.0
    assert layer(np.ones(2)).tolist() == [3, 1]
    layer.mode = "linear"
    layer.b = -3.0
    assert layer(np.ones(2)).tolist() == [-2, -4]


class Model:
    def __init__(self, rate):
        self.rate = rate
        self.w = np.full(3, rate)

    @tn.jit
    def step(self, x):
        return x * self.rate + self.w

    @tn.jit
    def scaled(self, x, *, by=1.0):
        return x * by


def test_methods_read_self():
    model = Model(2.0)
    assert model.step(np.ones(3)).tolist() == [4, 4, 4]
    model.rate = 3.0
    assert model.step(np.ones(3)).tolist() == [5, 5, 5]
    model.w[:] = 0
    assert model.step(np.ones(3)).tolist() == [3, 3, 3]
    model.w = np.ones(3)
    assert model.step(np.ones(3)).tolist() == [4, 4, 4]
    other = Model(5.0)
    assert other.step(np.ones(3)).tolist() == [10, 10, 10]
    assert Model.step(other, np.ones(3)).tolist() == [10, 10, 10]
    assert model.scaled(np.ones(3), by=2.0).tolist() == [2, 2, 2]


def test_nested_jit_inlines():
    @tn.jit
    def f(x):
        return double(x) + 1

    before = double.cache_info()
    assert f(np.ones(3)).tolist() == [3, 3, 3]
    assert double.cache_info() == before


def test_decoration_forms():
    assert tn.jit()(lambda x: x + 1)(np.ones(1)).tolist() == [2]
    assert double.__name__ == "double" and double.__doc__ == "Twice x." and double.__wrapped__(3) == 6


def test_vector_of_scalars():
    @tn.jit
    def f(a, b):
        return np.stack([a.sum(), b.sum()])

    assert f(np.ones(2), np.ones(3)).tolist() == [2, 3]


# -- threads, pickling -------------------------------------------------------------------------------------------------


def test_eight_threads_one_trace():
    @tn.jit
    def f(x):
        return np.exp(x) + 1

    x = np.linspace(0, 1, 100)
    barrier = threading.Barrier(8)
    results = []

    def work():
        barrier.wait()
        for _ in range(20):
            results.append(f(x))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert f.cache_info().compiles == 1 and len(results) == 160
    assert all(np.array_equal(r, results[0]) for r in results)


def test_pickles_by_name():
    assert pickle.loads(pickle.dumps(double)) is double
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(tn.jit(lambda x: x))


# -- looking inside ----------------------------------------------------------------------------------------------------


def test_trace_and_lower():
    program = double.trace(np.ones(3))
    assert "multiply" in str(program) and len(program.inputs) == 1
    lowered = double.lower(np.ones(3))
    assert "multiply" in lowered.as_text("program")
    assert "multiply" in lowered.as_text("exec")
    assert "multiply" in lowered.as_text("regions")
    assert len(lowered.regions) == 1
    assert len(lowered.exec_program.instructions) == 1
    with pytest.raises(ValueError, match="as_text"):
        lowered.as_text("nonsense")
    memory = lowered.memory()
    assert memory.bytes == 24 and "x.shape[0]" in memory.formula


def test_cache_info_and_clear():
    f = tn.jit(lambda x: x - 1)
    assert f.cache_info().programs == 0
    f(np.ones(2))
    f(np.ones(3))
    info = f.cache_info()
    assert (info.programs, info.compiles, info.hits) == (1, 1, 1)
    f.cache_clear()
    assert f.cache_info().programs == 0
    assert f(np.ones(2)).tolist() == [0, 0]


def test_explain():
    @tn.jit
    def f(x):
        return x + 1

    f(np.ones(2))
    f(np.ones(2, np.int32))
    explanation = f.explain()
    assert [t.number for t in explanation.traces] == [1, 2]
    assert "first call" in explanation.traces[0].reason
    assert "int32" in explanation.traces[1].reason and "x" in explanation.traces[1].reason
    assert explanation.traces[0].trace_ms > 0


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", [bool, int, float, complex], ids=lambda u: u.__name__)
def test_traced_value_as_a_number(use):
    f = tn.jit(lambda x: use(x.sum()) + x)
    with pytest.raises(TraceError, match="test_jit.py"):
        f(np.ones(2))


def test_shape_mismatch_names_the_line():
    @tn.jit
    def f(x, y):
        return x + y

    with pytest.raises(ValueError, match=r"add: .*test_jit\.py"):
        f(np.ones(2), np.ones(3))
    assert f(np.ones(2), np.ones(2)).tolist() == [2, 2]


def test_unsupported_arguments():
    for bad in (np.array(["a"]), np.array([None]), np.ma.masked_array([1.0]), np.zeros(1, np.longdouble)):
        with pytest.raises(DtypeError, match="argument x"):
            double(bad)
    assert double(np.ones(1)).tolist() == [2]


def test_leaked_tracer():
    kept = queue.SimpleQueue()

    @tn.jit
    def f(x):
        kept.put((x, x.shape[0]))
        return x + 1

    f(np.ones(2))
    array, size = kept.get()
    with pytest.raises(LeakError):
        array + 1
    with pytest.raises(LeakError):
        bool(size > 3)


def test_result_that_is_no_array():
    with pytest.raises(TraceError, match="result"):
        tn.jit(lambda x: {1, 2})(np.ones(2))


def test_write_into_an_outside_array():
    outside = np.zeros(3)

    @tn.jit
    def f(x):
        outside[:] = x
        return x

    with pytest.raises((MutationError, TraceError, TypeError, ValueError)):
        f(np.ones(3))
    assert outside.tolist() == [0, 0, 0]


def test_frozen_random_numbers():
    generator = np.random.default_rng(0)
    with pytest.raises(TraceError, match="generator"):
        tn.jit(lambda x: x + generator.random())(np.ones(2))
    with pytest.raises(TraceError, match="random"):
        tn.jit(lambda x: x + np.random.rand())(np.ones(2))


def test_index_out_of_range_at_run_time():
    f = tn.jit(lambda x, i: np.take(x, i))
    assert f(np.arange(3.0), np.array([2, -1])).tolist() == [2, 2]
    with pytest.raises(IndexError, match="test_jit.py"):
        f(np.arange(3.0), np.array([3]))
    assert f(np.arange(3.0), np.array([0])).tolist() == [0]


def test_errors_leave_nothing_half_done():
    fail = [True]

    @tn.jit
    def f(x):
        if fail[0]:
            raise KeyError("mine")
        return x + 1

    with pytest.raises(KeyError, match="mine"):
        f(np.ones(2))
    fail[0] = False
    assert f(np.ones(2)).tolist() == [2, 2]
    assert f.cache_info().programs == 1


def test_foreign_byte_order_and_memmap(tmp_path):
    assert double(np.arange(3).astype(">f4")).tolist() == [0, 2, 4]
    path = tmp_path / "x.bin"
    np.arange(3.0).tofile(path)
    out = double(np.memmap(path, np.float64, mode="r"))
    assert type(out) is np.ndarray and out.tolist() == [0, 2, 4]
