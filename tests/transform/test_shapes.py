"""``eval_shape``, ``ShapeDtypeStruct``, ``make_program`` and ``disable_jit``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import ShapeError, TraceError

Struct = tn.ShapeDtypeStruct


def test_structs():
    s = Struct((3, 4), "float32")
    assert (s.shape, s.dtype, s.ndim, s.size, len(s)) == ((3, 4), np.dtype("float32"), 2, 12, 3)
    assert s == Struct([3, 4], np.float32) != Struct((4, 3), "float32")
    assert hash(s) == hash(Struct((3, 4), "f4"))
    assert repr(s) == "ShapeDtypeStruct(shape=(3, 4), dtype=float32)"
    for shape, dtype, error in (((-1,), "f4", ShapeError), ((2.5,), "f4", ShapeError), ((2,), None, TypeError)):
        with pytest.raises(error):
            Struct(shape, dtype)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="rank 0"):
        len(Struct((), "f4"))


@pytest.mark.parametrize("shape", [3, "ab", None, {3}])
def test_a_struct_needs_a_tuple(shape: Any):
    with pytest.raises(TypeError, match=r"^ShapeDtypeStruct: shape is .*; a tuple of ints.* is needed \(at .*_shapes"):
        Struct(shape, float)
    with pytest.raises(TypeError, match=r"shape is 3; a tuple of ints, \(3,\) for a vector, is needed"):
        Struct(3, float)  # type: ignore[arg-type]
    assert Struct([3, 4], float).shape == (3, 4)


def test_shapes_of_results():
    def f(p: Any, n: int) -> Any:
        return {"y": p["w"] @ p["x"], "z": (p["w"].sum(), p["x"] > 0), "n": np.zeros((n, 2), np.float32)}

    found = tn.eval_shape(f, {"w": Struct((3, 4), "float32"), "x": np.ones(4, np.float32)}, 5)
    assert found == {
        "y": Struct((3,), "float32"), "z": (Struct((), "float32"), Struct((4,), "bool")),
        "n": Struct((5, 2), "float32"),
    }  # fmt: skip


def test_nothing_is_computed():
    huge = Struct((10**9, 10**3), "float64")
    assert tn.eval_shape(lambda x: np.sin(x).sum(axis=0), huge) == Struct((1000,), "float64")


def test_shapes_of_derivatives():
    x = Struct((5,), "float64")
    assert tn.eval_shape(tn.grad(lambda x: (x**2).sum()), x) == x
    assert tn.eval_shape(tn.hessian(lambda x: (x**2).sum()), x) == Struct((5, 5), "float64")
    assert tn.eval_shape(tn.vmap(lambda x: x * np.ones(3)), x) == Struct((5, 3), "float64")
    assert tn.eval_shape(tn.jit(lambda x: x[::2]), x) == Struct((3,), "float64")


def test_inside_of_a_trace():
    @tn.jit
    def f(x: Any) -> Any:
        return x * tn.eval_shape(lambda y: y.T, x).shape[0]

    np.testing.assert_array_equal(f(np.ones((2, 3))), np.full((2, 3), 3.0))
    np.testing.assert_array_equal(f(np.ones((4, 5))), np.full((4, 5), 5.0))


def test_what_depends_on_elements_has_no_shape():
    with pytest.raises(ShapeError, match="depends on elements"):
        tn.eval_shape(lambda x: x[x > 0], Struct((5,), "float64"))
    with pytest.raises(TraceError):
        tn.eval_shape(lambda x: x if x.sum() > 0 else -x, np.ones(3))


def test_programs():
    program = tn.make_program(tn.grad(lambda x: (x * x).sum()))(Struct((3,), "float32"))
    assert "multiply" in str(program)
    assert program.name == "grad(<lambda>)"
    assert str(program.outputs[0].type).startswith("float32")
    both = tn.make_program(lambda x, n: x * n, static_argnums=1, return_shape=True)(np.ones(3), 2)
    assert both[1] == Struct((3,), "float64")
    assert both[0].operations[0].op.name == "multiply"


# -- disable_jit -------------------------------------------------------------------------------------------------------


@tn.jit
def shown(x: Any) -> Any:
    print(type(x).__name__)
    return x * 2


def test_without_jit_functions_are_plain_ones(capsys: pytest.CaptureFixture[str]):
    x = np.ones(3)
    for _ in range(5):
        shown(x)
    capsys.readouterr()
    with tn.disable_jit():
        np.testing.assert_array_equal(shown(x), 2 * x)
        assert type(shown(tn.array(x))) is tn.Array
        with tn.disable_jit(False):
            shown(x)
    shown(x)
    assert capsys.readouterr().out.split() == ["ndarray", "Array"]


def test_without_jit_methods_and_derivatives_run():
    class Model:
        scale = 2.0

        @tn.jit
        def call(self, x: Any) -> Any:
            return x * self.scale if x > 0 else x

    with tn.disable_jit():
        assert Model().call(3.0) == 6  # Python decides
        assert tn.jit(tn.grad(lambda x: x**3 if x > 0 else x))(2.0) == 12


def test_errors_leave_jit_as_it_was(capsys: pytest.CaptureFixture[str]):
    shown(np.ones(2))
    capsys.readouterr()
    with pytest.raises(KeyError), tn.disable_jit():
        raise KeyError
    shown(np.ones(2))
    assert capsys.readouterr().out == ""


def test_stages_of_calls_on_arrays_that_are_not_there():
    @tn.jit
    def f(x: Any, k: int) -> Any:
        return (x["a"] @ x["b"]).sum(axis=0) * k

    real = {"a": np.ones((300, 200), np.float32), "b": np.ones((200, 100), np.float32)}
    told = {k: Struct(v.shape, v.dtype) for k, v in real.items()}
    assert str(f.trace(told, 3)) == str(f.trace(real, 3))
    lowered = f.lower(told, 3)
    assert lowered.memory().peak == f.lower(real, 3).memory().peak
    assert f.cache_info().programs == 1
    huge = {"a": Struct((1 << 24, 1 << 20), np.float32), "b": Struct((1 << 20, 1), np.float32)}
    assert f.lower(huge, 3).memory().peak.bytes >= 4 << 24
    np.testing.assert_array_equal(f(real, 3), np.full(100, 3 * 300 * 200, np.float32))

    class Model:
        scale = 2.0

        @tn.jit
        def forward(self, x: Any) -> Any:
            return self.scale * x

    assert "multiply" in str(Model().forward.trace(Struct((3,), np.float64)))


def test_structs_are_no_arguments_of_calls():
    with pytest.raises(TypeError, match="ShapeDtypeStruct"):
        tn.jit(lambda x: x + 1)(Struct((3,), np.float64))
