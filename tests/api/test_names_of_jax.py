"""What programs for JAX import beside arrays and derivatives: vectors of pytrees, devices, registered dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.flatten_util import ravel_pytree
from tenferro.tree_util import register_dataclass

TREE = {"w": np.arange(6.0).reshape(2, 3), "b": (np.float32(2), [np.array([3, 4])])}


def test_a_pytree_as_a_vector_and_back() -> None:
    flat, unravel = ravel_pytree(TREE)
    np.testing.assert_array_equal(flat, [0, 1, 2, 3, 4, 5, 2, 3, 4])
    back = unravel(flat * 2)
    assert tn.tree.structure(back) == tn.tree.structure(TREE)
    for x, y in zip(tn.tree.leaves(back), tn.tree.leaves(TREE), strict=True):
        assert np.array_equal(x, 2 * y) and x.dtype == y.dtype and np.shape(x) == np.shape(y)
    assert ravel_pytree({})[0].shape == (0,) and ravel_pytree({})[1](np.zeros(0)) == {}
    with pytest.raises(
        tn.ShapeError, match=r"unravel: an array of shape \(3,\); \(9,\) is needed, .*\(at .*test_names"
    ):
        unravel(np.ones(3))


def test_vectors_of_pytrees_in_programs() -> None:
    def f(w: Any, b: Any) -> Any:
        flat, unravel = ravel_pytree({"w": w, "b": b})
        half = unravel(flat / 2)
        return (half["w"] ** 2).sum() + half["b"].sum()

    w, b = np.ones((2, 2)), np.ones(3)
    assert tn.jit(f)(w, b) == f(w, b) == 2.5
    slopes = tn.grad(f, (0, 1))(w, b)
    np.testing.assert_array_equal(slopes[0], np.full((2, 2), 0.5))
    np.testing.assert_array_equal(slopes[1], np.full(3, 0.5))
    np.testing.assert_array_equal(tn.vmap(f)(np.stack([w, w]), np.stack([b, b])), [2.5, 2.5])
    jitted = tn.jit(f)
    assert [jitted(np.ones((n, 2)), b) for n in (2, 3)] == [2.5, 3.0] and jitted.cache_info().compiles == 1


def test_where_arrays_are() -> None:
    x = np.arange(3.0)
    placed = tn.device_put({"x": x, "n": 2}, "reference:0")
    assert placed["x"].device == "reference:0" and not np.shares_memory(np.asarray(placed["x"]), x)
    got = tn.device_get(placed)
    assert type(got["x"]) is np.ndarray and got["n"] == 2
    assert tn.block_until_ready(placed) is placed
    np.testing.assert_array_equal(tn.jit(lambda x: tn.block_until_ready(tn.device_put(x)) + 1)(x), x + 1)


def test_a_registered_dataclass() -> None:
    @register_dataclass
    @dataclass
    class Plain:
        x: Any

    @dataclass
    class Model:
        w: Any
        name: str

    register_dataclass(Model, data_fields=["w"], meta_fields=["name"])
    model = Model(np.ones(2), "m")
    assert len(tn.tree.leaves(model)) == 1 and tn.tree.map(lambda x: x + 1, model).name == "m"
    np.testing.assert_array_equal(tn.grad(lambda m: (m.w**2).sum())(model).w, [2.0, 2.0])
    assert tn.tree.leaves(Plain(3)) == [3]
    with pytest.raises(ValueError, match="register_dataclass: class Model is registered already"):
        register_dataclass(Model, data_fields=["w"], meta_fields=["name"])
    with pytest.raises(TypeError, match="register_dataclass: data_fields without meta_fields; both or none"):
        register_dataclass(Model, data_fields=["w"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "make_jaxpr",
            r"module 'tenferro' has no attribute 'make_jaxpr'; tenferro\.make_program\(f\)\(\*args\) serves",
        ),
        ("scipy", "; tenferro.special and tenferro.linalg serve$"),
        ("nonsense", "has no attribute 'nonsense'$"),
    ],
)
def test_a_name_that_is_missing(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(tn, name)
