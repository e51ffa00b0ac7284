"""tn.Array on a GPU that the CPU stands for: it moves, computes and stays there."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.tracer.errors import LoweringError
from tests.cuda.engine_cases import K, V, X, Y, layer_norm, softmax
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import ShimDevice

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def crossed(engine: CudaEngine) -> dict[str, int]:
    assert isinstance(engine.device, ShimDevice)
    found, engine.device.copied = engine.device.copied, {"up": 0, "down": 0}
    return found


def test_an_array_moves_there_and_back(cuda: CudaEngine):
    x = tn.asarray(X).to("cuda:0")
    assert (x.device, x.shape, x.dtype, x.ndim, x.nbytes) == ("cuda:0", X.shape, X.dtype, 2, X.nbytes)
    assert x.to("cuda:0") is x and x.engine is cuda and len(x) == 6
    back = x.to("cpu:0")
    assert back.device == "cpu:0" and np.asarray(back).tobytes() == X.tobytes()
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(np.asarray(tn.asarray(X, engine="cuda:0")), X)
    assert x.block_until_ready() is x
    assert repr(tn.asarray(V[:2], engine="cuda:0")).endswith("dtype=float64, engine=cuda:0)")


def test_jitted_results_stay_there(cuda: CudaEngine):
    f = tn.jit(layer_norm)
    x, v = tn.asarray(X, engine="cuda:0"), tn.asarray(V, engine="cuda:0")
    crossed(cuda)
    y = f(f(x, v), v)
    y.block_until_ready()
    assert crossed(cuda) == {"up": 0, "down": 0} and y.device == "cuda:0"
    wanted = tn.jit(layer_norm)(tn.jit(layer_norm)(X, V), V)
    assert np.asarray(y).tobytes() == wanted.tobytes()
    assert f.cache_info().programs == 1
    np.testing.assert_array_equal(f(X, V), tn.jit(layer_norm)(X, V))  # on the host where the arrays are


def test_arrays_of_both_kinds_meet_on_the_device(cuda: CudaEngine):
    x = tn.asarray(X, engine="cuda:0")
    f = tn.jit(lambda x, y, s: (x + y * s, np.sort(x, axis=1), x.shape[0], x))
    a, b, n, same = f(x, Y, 2.0)
    assert a.device == b.device == "cuda:0" and n == 6 and same is x
    np.testing.assert_array_equal(np.asarray(a), X + Y * 2.0)
    np.testing.assert_array_equal(np.asarray(b), np.sort(X, axis=1))


def test_captured_device_arrays(cuda: CudaEngine):
    class Model:
        weights: Any = tn.asarray(V, engine="cuda:0")

    model = Model()
    f = tn.jit(lambda x: x * model.weights)
    x = tn.asarray(X, engine="cuda:0")
    np.testing.assert_array_equal(np.asarray(f(x)), X * V)
    model.weights = tn.asarray(V + 1, engine="cuda:0")
    np.testing.assert_array_equal(np.asarray(f(x)), X * (V + 1))
    model.weights = V * 2
    np.testing.assert_array_equal(np.asarray(f(x)), X * (V * 2))
    del Model.weights


def test_operations_outside_jit_run_there(cuda: CudaEngine):
    x, k = tn.asarray(X, engine="cuda:0"), tn.asarray(K, engine="cuda:0")
    crossed(cuda)
    y: Any = (x + 1.0) * x.T[:, :6].T.max()
    z: Any = np.exp(x).sum(axis=0)
    w: Any = softmax(x)
    view: Any = x[1:4, ::2].T
    t = k.astype(np.float32).reshape(-1)
    assert crossed(cuda)["down"] == 0
    assert {a.device for a in (y, z, w, view, t)} == {"cuda:0"}
    host, ints = tn.asarray(X), tn.asarray(K)
    pairs: list[tuple[Any, Any]] = [
        (y, (host + 1.0) * host.T[:, :6].T.max()),
        (z, np.exp(host).sum(axis=0)),
        (w, softmax(host)),
        (view, host[1:4, ::2].T),
        (t, ints.astype(np.float32).reshape(-1)),
    ]
    for found, expected in pairs:
        f, g = np.asarray(found), np.asarray(expected)
        assert f.dtype == g.dtype and f.shape == g.shape and f.tobytes() == g.tobytes()
    assert float(x.max()) == X.max() and bool((x == x).all()) and [*map(float, x[0, :2])] == [*X[0, :2]]


def test_views_share_the_memory(cuda: CudaEngine):
    x = tn.asarray(X, engine="cuda:0")
    before = cuda.device.pool().used
    v = x.T[3:]
    cuda.synchronize()
    assert cuda.device.pool().used == before
    del x
    np.testing.assert_array_equal(np.asarray(v), X.T[3:])


def test_in_place_operators_replace_and_item_writes_are_refused(cuda: CudaEngine):
    x = tn.asarray(X, engine="cuda:0")
    other = x
    x += 1.0
    x *= tn.asarray(Y, engine="cuda:0")
    assert x is other and x.device == "cuda:0"
    np.testing.assert_array_equal(np.asarray(x), (X + 1.0) * Y)
    with pytest.raises(LoweringError, match=r"setitem: an array on cuda:0, whose memory is not written"):
        x[0] = 1.0
    with pytest.raises(TypeError, match="a cast of kind .same_kind. is needed"):
        k = tn.asarray(K, engine="cuda:0")
        k += 0.5


def test_copies_and_pickles(cuda: CudaEngine):
    x = tn.asarray(X, engine="cuda:0")
    assert copy.copy(x).device == "cuda:0"
    np.testing.assert_array_equal(np.asarray(copy.deepcopy(x)), X)
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(x))), X)
    np.testing.assert_array_equal(np.from_dlpack(x), X)


def test_arrays_on_two_engines_are_refused(cuda: CudaEngine):
    with pytest.raises(LoweringError, match="arguments on cpu:0 and cuda:0; one engine is needed"):
        tn.asarray(X, engine="cuda:0") + tn.asarray(Y)
