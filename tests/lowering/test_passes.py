"""Each pass on hand-built programs: what it changes, and what it must leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tenferro.lowering import PASSES, simplify
from tenferro.lowering.checker import check
from tenferro.lowering.passes.algebra import simplify_algebra
from tenferro.lowering.passes.conjugates import sink_conjugates
from tenferro.lowering.passes.constants import fold_constants
from tenferro.lowering.passes.dead import drop_dead
from tenferro.lowering.passes.layout import simplify_layout
from tenferro.lowering.passes.push import push_views
from tenferro.lowering.passes.share import share_equal
from tenferro.lowering.passes.sizes import unify_sizes
from tenferro.lowering.passes.windows import push_windows
from tenferro.tracer.dims import leaf, substitute
from tenferro.tracer.program import Literal, Operand, SemanticProgram, ShapeGuard
from tests.lowering.programs import BOOL, F32, F64, I64, Builder, heat, layer_norm, number, size, softmax

F16, C128 = np.dtype("float16"), np.dtype("complex128")


def names(program: SemanticProgram) -> list[str]:
    check(program)
    return [o.op.name for o in program.operations]


def test_names_of_passes_are_distinct() -> None:
    assert len({name for name, _ in PASSES}) == len(PASSES)


@pytest.mark.parametrize("make", [softmax, layer_norm, heat])
def test_passes_settle(make) -> None:
    once = simplify(make())
    assert names(simplify(once)) == names(once)


class TestDead:
    def test_drops_what_no_output_needs(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        b.exp(x)
        y = b.sin(x)
        b.add(y, x)
        assert names(drop_dead(b.finish(y))) == ["sin"]

    def test_returns_a_program_without_dead_operations_itself(self) -> None:
        program = softmax()
        assert drop_dead(program) is program


class TestShare:
    def test_equal_operations_become_one(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        program = share_equal(b.finish(b.multiply(b.exp(x), b.exp(x))))
        assert names(program) == ["exp", "multiply"]
        assert len({v.id for v in program.operations[1].inputs}) == 1  # type: ignore[union-attr]

    def test_operands_that_commute_may_be_exchanged(self) -> None:
        for op, dtype, left in (("add", F32, 1), ("multiply", F32, 1), ("multiply", C128, 2), ("subtract", F32, 2)):
            b = Builder()
            x, y = b.input("x", 1, dtype), b.input("y", 1, dtype, shape=(leaf("extent", 0, 0),))
            program = b.finish(b.emit(op, x, y), b.emit(op, y, x))
            assert len(names(share_equal(program))) == left, op

    def test_a_square_is_no_product_of_two(self) -> None:
        b = Builder()
        x, y = b.input("x", 1), b.input("y", 1, shape=(leaf("extent", 0, 0),))
        assert len(names(share_equal(b.finish(b.multiply(x, x), b.multiply(x, y))))) == 2

    def test_literals_are_compared_by_bits(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        program = b.finish(b.multiply(x, number(0.0)), b.multiply(x, number(-0.0)), b.multiply(x, number(0.0)))
        assert len(share_equal(program).operations) == 2

    def test_parameters_count(self) -> None:
        b = Builder()
        x = b.input("x", 2)
        assert len(share_equal(b.finish(b.reduce("sum", x, 0), b.reduce("sum", x, 1))).operations) == 2

    def test_operations_with_run_time_extents_stay_apart(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        mask = b.less(x, number(0.0))
        first = b.mask_select(x, mask, extent=leaf("runtime", 1, 0))
        second = b.mask_select(x, mask, extent=leaf("runtime", 2, 0))
        program = b.finish(b.reduce("sum", first, 0), b.reduce("sum", second, 0))
        assert names(share_equal(program)).count("mask_select") == 2


class TestSizes:
    def test_a_guarded_equality_makes_one_size_of_two(self) -> None:
        b = Builder()
        x, y = b.input("x", 1), b.input("y", 1)
        b.guards.append(ShapeGuard("==", x.type.shape[0], y.type.shape[0], True))
        program = unify_sizes(b.finish(b.exp(y), b.sin(x)))
        assert {str(v.type) for o in program.operations for v in o.outputs} == {"float64(d0_0,)"}
        assert [str(g) for g in program.guards] == ["d0_0 == d1_0"]

    def test_equations_are_solved_in_turn(self) -> None:
        b = Builder()
        x, y, z = b.input("x", 1), b.input("y", 1), b.input("z", 1)
        n, m, k = (v.type.shape[0] for v in (x, y, z))
        b.guards += [ShapeGuard("==", n - 1, m, True), ShapeGuard("==", m, k + 1, True)]  # type: ignore[operator]
        program = unify_sizes(b.finish(b.exp(x), b.exp(y), b.exp(z)))
        assert [str(o.outputs[0].type) for o in program.operations] == [
            "float64(d0_0,)", "float64(d0_0 - 1,)", "float64(d0_0 - 2,)"
        ]  # fmt: skip

    def test_many_equations_take_time_in_proportion(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def work(n: int) -> int:
            b = Builder()
            sizes = [b.input(f"x{k}", 1).type.shape[0] for k in range(n)]
            b.guards += [ShapeGuard("==", sizes[0], m, True) for m in sizes[1:]]
            calls = 0

            def counted(*args: Any) -> Any:
                nonlocal calls
                calls += 1
                return substitute(*args)

            monkeypatch.setattr("tenferro.lowering.passes.sizes.substitute", counted)
            unify_sizes(b.finish(b.exp(b.input("y", 1))))
            return calls

        assert work(80) < 3 * work(40)

    def test_a_size_that_is_known_becomes_a_literal(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        n = x.type.shape[0]
        b.guards.append(ShapeGuard("==", n, 3, True))
        program = unify_sizes(b.finish(b.divide(x, size(n))))
        assert program.operations[0].inputs[1] == number(3.0)

    def test_other_guards_tell_nothing(self) -> None:
        b = Builder()
        x, y = b.input("x", 1), b.input("y", 1)
        n, m = x.type.shape[0], y.type.shape[0]
        b.guards += [ShapeGuard("==", n, m, False), ShapeGuard("<", n, m, True)]
        program = b.finish(b.exp(x), b.exp(y))
        assert unify_sizes(program) is program


class TestConstants:
    def test_literals_fold_in_their_own_dtype(self) -> None:
        b = Builder()
        x = b.input("x", 1, F32)
        third = b.divide(number(1.0, F32), number(3.0, F32))
        program = drop_dead(fold_constants(b.finish(b.multiply(x, b.sqrt(third)))))
        assert names(program) == ["multiply"]
        expected = np.sqrt(np.float32(1) / np.float32(3))
        assert program.operations[0].inputs[1] == Literal(float(expected), F32)

    def test_signs_of_zero_and_nan_survive(self) -> None:
        b = Builder()
        zero = b.negative(number(0.0))
        nan = b.divide(number(0.0), number(0.0))
        program = fold_constants(b.finish(zero, nan))
        assert program.outputs[0] == number(-0.0)
        assert isinstance(program.outputs[1], Literal) and np.isnan(program.outputs[1].value)

    @pytest.mark.parametrize("op", ["exp", "sin", "tanh"])
    def test_functions_that_an_engine_rounds_in_its_own_way_stay(self, op: str) -> None:
        b = Builder()
        program = b.finish(b.emit(op, number(0.5)))
        assert fold_constants(program) is program

    def test_complex_products_stay(self) -> None:
        b = Builder()
        program = b.finish(b.multiply(number(1 + 2j, C128), number(2 - 1j, C128)))
        assert fold_constants(program) is program

    def test_sizes_stay(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        program = b.finish(b.add(size(x.type.shape[0]), number(1.0)))
        assert fold_constants(program) is program


def identity_cases() -> list[tuple[str, np.dtype, float | complex, bool]]:
    return [
        ("multiply", F64, 1.0, True), ("multiply", I64, 1, True), ("multiply", F64, 0.0, False),
        ("multiply", C128, 1.0 + 0j, False), ("divide", F64, 1.0, True), ("add", F64, -0.0, True),
        ("add", F64, 0.0, False), ("add", I64, 0, True), ("add", C128, 0j, False), ("subtract", F64, 0.0, True),
        ("subtract", F64, -0.0, False), ("subtract", I64, 0, True), ("subtract", C128, 0j, False),
    ]  # fmt: skip


class TestAlgebra:
    @pytest.mark.parametrize(("op", "dtype", "value", "goes"), identity_cases())
    def test_only_exact_identities_go(self, op: str, dtype: np.dtype, value: complex, goes: bool) -> None:
        b = Builder()
        x = b.input("x", 1, dtype)
        program = simplify_algebra(b.finish(b.emit(op, x, number(value, dtype))))
        assert (names(program) == []) is goes

    def test_guards_of_tangents_that_are_numbers_go(self) -> None:
        for op, tangent, left in (
            ("tangent_product", 1.0, []), ("tangent_product", -2.0, ["multiply"]),
            ("tangent_quotient", 1.0, ["divide"]),
            ("tangent_product", 0.0, ["broadcast_to"]), ("tangent_quotient", -0.0, ["broadcast_to"]),
            ("tangent_pair", 3.0, ["tangent_product"]), ("tangent_pair", 0.0, ["broadcast_to"]),
        ):  # fmt: skip
            b = Builder()
            x = b.input("x", 1)
            program = b.finish(b.emit(op, Literal(tangent, F64), x))
            assert names(simplify_algebra(program)) == left, (op, tangent)

    def test_guards_of_other_tangents_stay(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        assert names(simplify_algebra(b.finish(b.tangent_product(x, Literal(1.0, F64))))) == ["tangent_product"]

    def test_a_scalar_cannot_stand_for_an_array(self) -> None:
        b = Builder()
        x, s = b.input("x", 1), b.input("s", 0)
        ones = b.broadcast_to(number(1.0), shape=x.type.shape, axes=())
        program = b.finish(b.multiply(b.add(ones, ones), s))
        assert names(simplify_algebra(program)) == names(program)

    @pytest.mark.parametrize(
        ("value", "inverse"), [(4.0, 0.25), (0.5, 2.0), (-2.0, -0.5), (2.0**-1074, None), (3.0, None)]
    )
    def test_division_by_a_power_of_two(self, value: float, inverse: float | None) -> None:
        b = Builder()
        x = b.input("x", 1)
        operation = simplify_algebra(b.finish(b.divide(x, number(value)))).operations[-1]
        if inverse is None:
            assert operation.op.name == "divide"
        else:
            assert operation.op.name == "multiply" and operation.inputs[1] == number(inverse)

    @pytest.mark.parametrize("value", [2.0**k for k in (-1022, -1, 3, 1022, 1023)] + [-8.0])
    def test_its_inverse_has_the_same_bits(self, value: float) -> None:
        x = np.array([0.0, -0.0, 5e-324, 1.0, -3.7, 1e308, np.inf, np.nan, 2.2250738585072014e-308, 7e-310])
        with np.errstate(all="ignore"):
            assert np.array_equal((x / value).view(np.uint64), (x * (1.0 / value)).view(np.uint64))

    def test_double_negation_and_copies(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        program = drop_dead(simplify_algebra(b.finish(b.exp(b.copy(b.negative(b.negative(b.copy(x))))))))
        assert names(program) == ["exp"]

    @pytest.mark.parametrize(
        ("path", "left"),
        [
            (("float64",), 0), (("float32", "float64"), 2), (("complex128", "complex64"), 2),
        ],
    )  # fmt: skip
    def test_conversions(self, path: tuple[str, ...], left: int) -> None:
        b = Builder()
        x = y = b.input("x", 1)
        for dtype in path:
            y = b.astype(y, dtype=np.dtype(dtype))
        assert len(drop_dead(simplify_algebra(b.finish(y))).operations) == left
        assert x is not y

    def test_a_conversion_through_a_wider_dtype_is_direct(self) -> None:
        b = Builder()
        x = b.input("x", 1, F32)
        y = b.astype(b.astype(x, dtype=F64), dtype=F16)
        program = drop_dead(simplify_algebra(b.finish(y, b.astype(b.astype(x, dtype=F64), dtype=F32))))
        assert names(program) == ["astype"] and program.outputs[1] == program.inputs[0].value

    def test_where(self) -> None:
        b = Builder()
        c = b.input("c", 1, BOOL)
        x = b.input("x", 1, shape=c.type.shape)
        program = simplify_algebra(b.finish(b.where(b.invert(c), x, b.exp(x)), b.where(c, x, x)))
        (where,) = [o for o in program.operations if o.op.name == "where"]
        assert where.inputs[0] == program.inputs[0].value and where.inputs[2] == program.inputs[1].value
        assert program.outputs[1] == program.inputs[1].value

    def test_an_update_of_everything_is_its_value(self) -> None:
        b = Builder()
        x, y = b.input("x", 1), b.input("y", 1, shape=(leaf("extent", 0, 0),))
        n = x.type.shape
        program = simplify_algebra(b.finish(b.slice_update(x, b.exp(y), starts=(0,), steps=(1,), sizes=n)))
        assert names(program) == ["exp"]

    def test_reading_the_box_that_was_written(self) -> None:
        b = Builder()
        x, v = b.input("x", 1), b.input("v", 1, shape=(3,))
        params = {"starts": (2,), "steps": (1,), "sizes": (3,)}
        u = b.slice_update(x, v, **params)
        program = drop_dead(simplify_algebra(b.finish(b.exp(b.emit("slice", u, **params)))))
        assert names(program) == ["exp"]


class TestLayout:
    def one(self, *views: tuple[str, dict[str, object]], shape: tuple[Operand, ...] | None = None) -> SemanticProgram:
        b = Builder()
        x = b.input("x", 2, shape=shape)  # type: ignore[arg-type]
        for name, params in views:
            x = b.emit(name, x, **params)  # type: ignore[arg-type]
        return drop_dead(simplify_layout(b.finish(b.exp(x))))

    def test_transposes_cancel(self) -> None:
        flip = ("transpose", {"axes": (1, 0)})
        assert names(self.one(flip, flip)) == ["exp"]
        assert names(self.one(flip, flip, flip)) == ["transpose", "exp"]

    def test_slices_compose(self) -> None:
        first = ("slice", {"starts": (1, 9), "steps": (2, -1), "sizes": (4, 10)})
        then = ("slice", {"starts": (1, 2), "steps": (1, 3), "sizes": (2, 2)})
        program = self.one(first, then, shape=(12, 10))  # type: ignore[arg-type]
        assert names(program) == ["slice", "exp"]
        assert dict(program.operations[0].params) == {"starts": (3, 7), "steps": (2, -3), "sizes": (2, 2)}

    def test_reshapes_compose_and_vanish(self) -> None:
        flat = ("reshape", {"shape": (12,)})
        assert names(self.one(flat, ("reshape", {"shape": (3, 4)}), shape=(3, 4))) == ["exp"]  # type: ignore[arg-type]
        assert names(self.one(flat, ("reshape", {"shape": (4, 3)}), shape=(3, 4))) == ["reshape", "exp"]  # type: ignore[arg-type]

    def test_a_reshape_that_inserts_ones_is_a_broadcast(self) -> None:
        program = self.one(("reshape", {"shape": (3, 1, 4, 1)}), shape=(3, 4))  # type: ignore[arg-type]
        assert names(program) == ["broadcast_to", "exp"]
        assert dict(program.operations[0].params) == {"shape": (3, 1, 4, 1), "axes": (0, 2)}

    def test_broadcasts_compose(self) -> None:
        wide = ("broadcast_to", {"shape": (5, 1, 4), "axes": (1, 2)})
        wider = ("broadcast_to", {"shape": (2, 5, 3, 4), "axes": (1, 2, 3)})
        program = self.one(wide, wider, shape=(1, 4))  # type: ignore[arg-type]
        assert names(program) == ["exp", "broadcast_to"]
        assert dict(program.operations[1].params) == {"shape": (2, 5, 3, 4), "axes": (2, 3)}

    def test_broadcasts_move_behind_pointwise_operations(self) -> None:
        b = Builder()
        x, y, like = b.input("x", 1), b.input("y", 1, shape=(leaf("extent", 0, 0),)), b.input("z", 2)
        like = b.broadcast_to(x, shape=(7, x.type.shape[0]), axes=(1,))
        program = drop_dead(simplify_layout(b.finish(b.exp(b.add(like, b.back(y, like))))))
        assert names(program) == ["add", "exp", "broadcast_to"]

    def test_a_broadcast_scalar_is_used_as_a_scalar(self) -> None:
        b = Builder()
        x, s = b.input("x", 2), b.input("s", 0)
        program = drop_dead(simplify_layout(b.finish(b.multiply(x, b.back(s, x)), b.add(b.back(number(2.0), x), x))))
        assert names(program) == ["multiply", "add"]

    def test_views_of_a_broadcast_scalar(self) -> None:
        b = Builder()
        zeros = b.broadcast_to(number(0.0), shape=(4, 6), axes=())
        part = b.slice(b.transpose(zeros, axes=(1, 0)), (1, 1, 2), (0, 1, 4))
        program = drop_dead(simplify_layout(b.finish(part)))
        assert names(program) == ["broadcast_to"] and program.outputs[0].type.shape == (2, 4)

    def test_views_that_outputs_share_stay(self) -> None:
        b = Builder()
        x = b.input("x", 2)
        y = b.exp(x)
        flipped = b.transpose(y, axes=(1, 0))
        back = b.transpose(flipped, axes=(1, 0))
        program = b.finish(y, flipped, back, aliases=(0, 0, 0))
        assert names(simplify(program)) == names(program)


class TestPush:
    def test_a_view_of_a_chain_goes_to_its_loads(self) -> None:
        b = Builder()
        x, y = b.input("x", 2), b.input("y", 2)
        x = b.exp(b.add(x, x))
        program = push_views(b.finish(b.sin(b.transpose(x, axes=(1, 0))), b.exp(y)))
        assert names(drop_dead(simplify_algebra(program))) == ["transpose", "transpose", "add", "exp", "sin", "exp"]

    def test_an_expensive_value_with_other_users_stays(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        e = b.exp(x)
        n = x.type.shape[0]
        program = b.finish(b.add(b.slice(e, (0, 1, n - 1)), b.slice(e, (1, 1, n - 1))))  # type: ignore[operator]
        assert push_views(program) is program

    def test_a_cheap_value_is_computed_under_each_view(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        e = b.multiply(x, number(0.3))
        n = x.type.shape[0]
        program = b.finish(b.add(b.slice(e, (0, 1, n - 1)), b.slice(e, (1, 1, n - 1))))  # type: ignore[operator]
        assert names(drop_dead(push_views(program))) == ["slice", "multiply", "slice", "multiply", "add"]

    def test_expensive_work_is_never_repeated_by_a_broadcast(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        y = b.input("y", 2, shape=(leaf("extent", 0, 0), leaf("extent", 1, 1)))
        program = b.finish(b.add(b.back(b.exp(x), y, axes=(0,)), y))
        assert push_views(program) is program

    def test_cheap_work_on_inputs_is(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        y = b.input("y", 2, shape=(leaf("extent", 0, 0), leaf("extent", 1, 1)))
        program = b.finish(b.add(b.back(b.add(x, number(1.0)), y, axes=(0,)), y))
        assert names(push_views(program)) == ["broadcast_to", "add", "add"]

    def test_results_of_reductions_are_not(self) -> None:
        program = layer_norm()
        assert push_views(program) is program

    def test_an_alternating_chain_stays_short(self) -> None:
        b = Builder()
        n = leaf("extent", 0, 0)
        x = y = b.input("x", 2, shape=(n, n))
        for _ in range(40):
            y = b.transpose(b.add(y, x), axes=(1, 0))
        program = simplify(b.finish(y))
        assert names(program).count("add") == 40 and len(program.operations) <= 42

    def test_a_reshape_goes_only_where_it_needs_no_copy(self) -> None:
        b = Builder()
        n = leaf("extent", 0, 0)
        x = b.input("x", 2, shape=(n, n))
        flat = {"shape": (n * n,)}
        good = b.reshape(b.exp(x), **flat)
        bad = b.reshape(b.exp(b.transpose(x, axes=(1, 0))), **flat)
        program = push_views(b.finish(b.sin(good), b.cos(bad)))
        assert names(program) == ["reshape", "exp", "transpose", "exp", "reshape", "sin", "cos"]

    def test_outputs_that_share_memory_stay_views(self) -> None:
        b = Builder()
        x = b.input("x", 2)
        y = b.exp(x)
        program = b.finish(y, b.transpose(y, axes=(1, 0)), aliases=(0, 0))
        assert names(simplify(program)) == ["exp", "transpose"]


class TestWindows:
    def test_a_pad_of_a_chain_pads_its_operands(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        program = push_windows(b.finish(b.pad(b.exp(b.multiply(x, number(2.0))), number(7.0), low=(1,), high=(2,))))
        assert names(program) == ["pad", "multiply", "exp", "broadcast_to", "pad", "where"]

    def test_a_chain_with_other_users_stays(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        e = b.exp(x)
        program = b.finish(b.pad(e, number(0.0), low=(1,), high=(1,)), e)
        assert push_windows(program).operations == program.operations


class TestConjugates:
    def conj(self, *chain: str) -> list[str]:
        b = Builder()
        x = b.input("x", 1, C128)
        for op in chain:
            x = b.emit(op, x)
        return names(drop_dead(sink_conjugates(b.finish(x))))

    def test_sinking(self) -> None:
        assert self.conj("conjugate", "conjugate", "sqrt") == ["sqrt"]
        assert self.conj("conjugate", "absolute") == ["absolute"]
        assert self.conj("conjugate", "real") == ["real"]
        assert self.conj("conjugate", "imag") == ["imag", "negative"]

    def test_past_a_negation(self) -> None:
        assert self.conj("negative", "conjugate") == ["conjugate", "negative"]

    def test_of_real_numbers(self) -> None:
        b = Builder()
        x = b.input("x", 1)
        assert names(drop_dead(sink_conjugates(b.finish(b.exp(b.conjugate(x)))))) == ["exp"]

    def test_sums_stay(self) -> None:
        b = Builder()
        x = b.input("x", 1, C128)
        program = b.finish(b.conjugate(b.add(x, x)))
        assert names(sink_conjugates(program)) == ["add", "conjugate"]
