"""The reference engine: values by NumPy, sums along the tree, sizes, checks, and what outputs share."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest

from tenferro.engines.reference import ReferenceEngine
from tenferro.lowering import lower
from tenferro.lowering.tree import tree_sum
from tenferro.tracer.dims import Leaf, leaf
from tenferro.tracer.errors import BoundsError, DivisionError
from tenferro.tracer.program import ArrayType, ProgramInput, SemanticProgram, Value
from tests.lowering.programs import BOOL, F64, I64, Builder, heat, layer_norm, number, size, softmax

N = leaf("extent", 0, 0)


def run(program: SemanticProgram, *inputs: Any) -> list[np.ndarray]:
    return ReferenceEngine().compile(lower(program)).run(inputs).outputs


def test_its_name() -> None:
    assert ReferenceEngine().id == "reference:0" and ReferenceEngine(2).id == "reference:2"


def test_it_makes_no_kernels() -> None:
    executable = ReferenceEngine().compile(lower(softmax()))
    assert executable.kernels == 0 and executable.kernel_bytes == 0 and executable.kernel_texts() == {}


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (4, 1), (2, 3000)])
def test_softmax(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).normal(size=shape)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(softmax(), x)[0], e / e.sum(1, keepdims=True), rtol=1e-14)


def test_layer_norm() -> None:
    rng = np.random.default_rng(2)
    x, gamma, beta = rng.normal(size=(4, 700)), rng.normal(size=700), rng.normal(size=700)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gamma + beta
    np.testing.assert_allclose(run(layer_norm(), x, gamma, beta)[0], expected, rtol=1e-11, atol=1e-12)


def test_heat() -> None:
    u = np.random.default_rng(3).normal(size=(6, 7))
    v = u.copy()
    lap = (u[:-2, 1:-1] + u[2:, 1:-1]) + (u[1:-1, :-2] + u[1:-1, 2:])
    v[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * (lap - 4.0 * u[1:-1, 1:-1])
    kept = u.copy()
    assert np.array_equal(run(heat(), u)[0], v) and np.array_equal(u, kept)


def reduction(op: str, dtype: Any, axes: tuple[int, ...], keepdims: bool = False) -> SemanticProgram:
    b = Builder()
    return b.finish(b.reduce(op, b.input("x", 2, dtype), axes, keepdims))


class TestReductions:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_sums_follow_the_tree_in_logical_order(self, dtype: str, order: str) -> None:
        x = np.asarray(np.random.default_rng(4).normal(size=(70, 300)), dtype, order=order)  # type: ignore[call-overload]
        assert run(reduction("sum", dtype, (0, 1)), x)[0] == tree_sum(x.reshape(1, -1))[0]
        assert np.array_equal(run(reduction("sum", dtype, (0,)), x)[0], tree_sum(np.ascontiguousarray(x.T)))
        assert run(reduction("sum", dtype, (0,), True), x)[0].shape == (1, 300)

    def test_complex_sums_are_two_sums(self) -> None:
        rng = np.random.default_rng(5)
        x = rng.normal(size=(3, 999)) + 1j * rng.normal(size=(3, 999))
        (out,) = run(reduction("sum", "complex128", (1,)), x)
        assert np.array_equal(out.real, tree_sum(x.real)) and np.array_equal(out.imag, tree_sum(x.imag))

    def test_float16_sums_round_once(self) -> None:
        x = np.full((1, 5000), 0.1, np.float16)
        (out,) = run(reduction("sum", "float16", (1,)), x)
        assert out.dtype == np.float16 and out[0] == np.float16(tree_sum(x.astype(np.float32))[0])

    def test_integer_sums_wrap(self) -> None:
        x = np.array([[2**63 - 1, 1]])
        assert run(reduction("sum", "int64", (1,)), x)[0][0] == -(2**63)

    def test_an_empty_sum_is_zero(self) -> None:
        (out,) = run(reduction("sum", "float64", (1,)), np.zeros((3, 0)))
        assert np.array_equal(out, np.zeros(3)) and not np.signbit(out).any()

    @pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
    def test_squared_deviations(self, dtype: str) -> None:
        x = (np.random.default_rng(6).normal(size=(3, 9000)) + 100).astype(dtype)
        (out,) = run(reduction("squared_deviations", dtype, (1,)), x)
        wide = x.astype(np.complex128)
        assert out.dtype == x.real.dtype
        np.testing.assert_allclose(out, np.var(wide, 1) * 9000, rtol=2e-6)

    def test_argmax_over_two_axes_counts_in_row_major_order(self) -> None:
        x = np.random.default_rng(7).normal(size=(4, 5))
        assert run(reduction("argmax", "float64", (0, 1)), x)[0] == x.argmax()


class TestSizes:
    def test_sizes_are_those_of_the_inputs(self) -> None:
        b = Builder()
        x = b.input("x", 2)
        n, m = x.type.shape
        (out,) = run(b.finish(b.divide(b.reduce("sum", x, (0, 1)), size(n * m))), np.ones((3, 4)))  # type: ignore[operator]
        assert out == 1.0

    def test_an_int_input_is_a_size_and_a_number(self) -> None:
        b = Builder()
        value = Value(0, ArrayType(I64, (), True))
        b.inputs.append(ProgramInput(value, "int", "n"))
        b.n_values = 1
        n = leaf("int", 0)
        index = b.iota(shape=(n,), axis=0)
        first, second = run(b.finish(b.multiply(index, value), value, aliases=(0, -1)), 4)
        assert first.tolist() == [0, 4, 8, 12] and second == 4 and second.dtype == np.int64

    def test_run_time_extents_are_measured_and_reported(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        found = Leaf("runtime", 1, 0)
        mask = b.less(number(0.0), x)
        picked = b.mask_select(x, mask, extent=leaf("runtime", 1, 0))
        total = b.divide(b.reduce("sum", picked, 0), size(leaf("runtime", 1, 0)))
        program = b.finish(picked, total)
        result = ReferenceEngine().compile(lower(program)).run([np.array([1.0, -2.0, 3.0])])
        assert result.runtime == {found: 2}
        assert result.outputs[0].tolist() == [1.0, 3.0] and result.outputs[1] == 2.0


class TestBounds:
    def program(self) -> SemanticProgram:
        b = Builder()
        x, i = b.input("x", 2), b.input("i", 1, I64)
        return b.finish(b.take(x, i, axis=1))

    def test_negative_indices_count_from_the_end(self) -> None:
        x = np.arange(6.0).reshape(2, 3)
        assert np.array_equal(run(self.program(), x, np.array([-1, 0, -3]))[0], x[:, [-1, 0, -3]])

    @pytest.mark.parametrize("bad", [3, -4, 2**40])
    def test_out_of_range(self, bad: int) -> None:
        with pytest.raises(BoundsError) as error:
            run(self.program(), np.zeros((2, 3)), np.array([0, bad, 99]))
        text = str(error.value)
        assert text.startswith(f"take: indices contain {bad}; axis 1 has 3 elements") and text.endswith(
            "(at user.py:1)"
        )
        assert isinstance(error.value, IndexError)

    def test_the_next_run_works(self) -> None:
        executable = ReferenceEngine().compile(lower(self.program()))
        x = np.arange(6.0).reshape(2, 3)
        with pytest.raises(BoundsError):
            executable.run([x, np.array([7])])
        assert np.array_equal(executable.run([x, np.array([2])]).outputs[0], x[:, [2]])

    def test_an_empty_axis_has_no_index(self) -> None:
        with pytest.raises(BoundsError, match="axis 1 has 0 elements"):
            run(self.program(), np.zeros((2, 0)), np.array([0]))


class TestDivision:
    def program(self, *, selected: bool = False, op: str = "floor_divide") -> SemanticProgram:
        b = Builder()
        x, y = b.input("x", 1, I64), b.input("y", 1, I64, shape=(N,))
        q = b.emit(op, x, y)
        return b.finish(b.where(b.not_equal(y, number(0, I64)), q, number(-1, I64)) if selected else q)

    X, Y = np.array([7, 8, 9]), np.array([2, 0, 4])

    @pytest.mark.parametrize("op", ["floor_divide", "remainder"])
    def test_it_warns_with_the_line_and_gives_0(self, op: str) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (out,) = run(self.program(op=op), self.X, self.Y)
        assert out[1] == 0 and out[0] == getattr(np, op)(7, 2)
        (warning,) = caught
        assert issubclass(warning.category, RuntimeWarning) and (warning.filename, warning.lineno) == ("user.py", 1)
        assert str(warning.message).startswith(f"{op}: divisor 0 under the dividend 8;")

    def test_it_raises_where_asked(self) -> None:
        with (
            np.errstate(divide="raise"),
            pytest.raises(DivisionError, match=r"dividend 8; .* \(at user.py:1\)") as error,
        ):
            run(self.program(), self.X, self.Y)
        assert isinstance(error.value, FloatingPointError) and isinstance(error.value, ZeroDivisionError)

    def test_it_is_silent_where_asked(self) -> None:
        with np.errstate(divide="ignore"):
            assert run(self.program(), self.X, self.Y)[0].tolist() == [3, 0, 2]

    def test_it_calls_where_asked(self) -> None:
        calls: list[tuple[str, int]] = []
        with np.errstate(divide="call", call=lambda kind, flag: calls.append((kind, flag))):
            run(self.program(), self.X, self.Y)
        assert calls == [("divide by zero", 1)]

    def test_lanes_that_where_discards_do_not_count(self) -> None:
        assert run(self.program(selected=True), self.X, self.Y)[0].tolist() == [3, -1, 2]

    def test_lanes_that_it_keeps_do(self) -> None:
        b = Builder()
        x, y, c = b.input("x", 1, I64), b.input("y", 1, I64, shape=(N,)), b.input("c", 1, BOOL, shape=(N,))
        program = b.finish(b.where(c, number(5, I64), b.floor_divide(x, y)))
        keep, drop = np.array([True, False, True]), np.array([False, True, False])
        with np.errstate(divide="raise"):
            with pytest.raises(DivisionError):
                run(program, self.X, self.Y, keep)
            assert run(program, self.X, self.Y, drop)[0].tolist() == [3, 5, 2]

    def test_floats_divide_by_zero_in_silence(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        (out,) = run(
            b.finish(
                b.floor_divide(x, number(0.0)),
            ),
            np.array([1.0]),
        )
        assert np.isinf(out[0]) or np.isnan(out[0])


class TestOutputs:
    def test_views_of_inputs_stay_views(self) -> None:
        b = Builder()
        x = b.input("x", 2)
        flipped = b.transpose(x, axes=(1, 0))
        given = np.arange(6.0).reshape(2, 3)
        (out,) = run(b.finish(flipped, aliases=(-1,)), given)
        assert np.shares_memory(out, given) and out.shape == (3, 2)

    def test_fresh_outputs_share_nothing(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        given = np.arange(3.0)
        outs = run(b.finish(b.copy(x), b.copy(x), b.real(x), b.astype(x, dtype=F64)), given)
        for k, out in enumerate(outs):
            assert np.array_equal(out, given) and out.flags.owndata
            assert not any(np.shares_memory(out, other) for other in (given, *outs[:k]))

    def test_strided_inputs(self) -> None:
        b = Builder()
        x = b.input("x", 2)
        given = np.arange(24.0).reshape(4, 6)[::2, ::-3]
        (out,) = run(b.finish(b.reshape(b.exp(x), shape=(x.type.shape[0] * x.type.shape[1],))), given)  # type: ignore[operator]
        assert np.array_equal(out, np.exp(given).reshape(-1)) and out.flags.c_contiguous


def test_an_executable_holds_no_array_of_a_run() -> None:
    executable = ReferenceEngine().compile(lower(softmax()))
    x = np.ones((2, 2))
    before = sys.getrefcount(x)
    executable.run([x])
    assert sys.getrefcount(x) == before
