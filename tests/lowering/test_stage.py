"""Staging: slots, last uses, extents, and copies exactly where outputs would share memory that they must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tenferro.engines.reference import ReferenceEngine
from tenferro.lowering import lower
from tenferro.lowering.exec_program import ExecProgram, ExtentKind, Instruction, Slot
from tenferro.lowering.stage import stage
from tenferro.tracer.dims import leaf
from tenferro.tracer.errors import CheckError
from tenferro.tracer.program import SemanticProgram
from tests.lowering.programs import F64, Builder, heat, layer_norm, number, size, softmax


def ops(program: ExecProgram) -> list[str]:
    return [i.op.name for i in program.instructions]


def run(program: SemanticProgram, *inputs: np.ndarray) -> list[np.ndarray]:
    return ReferenceEngine().compile(lower(program)).run(inputs).outputs


@pytest.mark.parametrize("make", [softmax, layer_norm, heat])
def test_last_uses_tell_the_truth(make) -> None:
    program = stage(make())
    for k, instruction in enumerate(program.instructions):
        for source, last in zip(instruction.inputs, instruction.last_use, strict=True):
            later = [s for i in program.instructions[k + 1 :] for s in i.inputs]
            is_over = isinstance(source, Slot) and source not in later and source not in program.outputs
            assert last is is_over


def test_an_input_returned_as_itself_needs_no_copy() -> None:
    b = Builder()
    x = b.input("x", 2)
    program = stage(b.finish(x, b.transpose(x, axes=(1, 0)), aliases=(-1, -1)))
    assert ops(program) == ["transpose"]


def test_a_fresh_output_that_became_an_input_is_copied() -> None:
    b = Builder()
    x = b.input("x", 1)
    y = b.multiply(x, number(1.0))
    (out,) = run(b.finish(y), given := np.arange(3.0))
    assert np.array_equal(out, given) and not np.shares_memory(out, given)


def test_equal_outputs_are_two_arrays() -> None:
    b = Builder()
    x = b.input("x", 1)
    program = b.finish(b.add(x, number(1.0)), b.add(x, number(1.0)))
    first, second = run(program, np.arange(3.0))
    assert np.array_equal(first, second) and not np.shares_memory(first, second)


def test_one_array_returned_twice_is_one_array() -> None:
    b = Builder()
    x = b.input("x", 2)
    y = b.exp(x)
    program = b.finish(y, b.transpose(y, axes=(1, 0)), y, aliases=(0, 0, 0))
    first, second, third = run(program, np.ones((2, 3)))
    assert np.shares_memory(first, second) and first is third


def test_two_groups_of_one_value_are_kept_apart() -> None:
    b = Builder()
    x = b.input("x", 2)
    y, z = b.exp(x), b.exp(x)
    program = b.finish(y, b.transpose(y, axes=(1, 0)), z, b.transpose(z, axes=(1, 0)), aliases=(0, 0, 1, 1))
    outs = run(program, np.ones((2, 3)))
    assert np.shares_memory(outs[0], outs[1]) and np.shares_memory(outs[2], outs[3])
    assert not np.shares_memory(outs[0], outs[2])


def test_a_group_over_an_input_is_copied_once_and_its_views_follow() -> None:
    b = Builder()
    x = b.input("x", 1)
    y = b.copy(x)
    program = b.finish(y, b.slice(y, (1, 1, x.type.shape[0] - 1)), aliases=(0, 0))  # type: ignore[operator]
    given = np.arange(4.0)
    whole, part = run(program, given)
    assert np.shares_memory(whole, part) and not np.shares_memory(whole, given)
    assert np.array_equal(part, given[1:])


def test_views_of_a_filled_array() -> None:
    b = Builder()
    zeros = b.broadcast_to(number(0.0), shape=(4,), axes=())
    program = b.finish(zeros, b.slice(zeros, (1, 1, 2)), aliases=(0, 0))
    whole, part = run(program)
    assert np.shares_memory(whole, part) and whole.flags.writeable and whole.shape == (4,) and part.shape == (2,)


def test_fresh_outputs_are_c_ordered_writeable_and_owned() -> None:
    b = Builder()
    x = b.input("x", 2)
    y = b.matmul(x, b.transpose(x, axes=(1, 0)))
    ones = b.broadcast_to(number(1.0), shape=(2, 2), axes=())
    program = b.finish(b.transpose(y, axes=(1, 0)), b.transpose(b.exp(x), axes=(1, 0)), ones, b.real(x))
    given = np.ones((2, 3))
    for out in run(program, given):
        assert out.flags.c_contiguous and out.flags.writeable and not np.shares_memory(out, given)


def test_a_reshape_of_a_fresh_array_is_fresh() -> None:
    b = Builder()
    x = b.input("x", 2)
    n, m = x.type.shape
    y = b.reshape(b.matmul(x, x), shape=(n * m,))  # type: ignore[operator]
    assert ops(stage(b.finish(y))) == ["matmul", "reshape"]


def test_literals_and_sizes_are_outputs() -> None:
    b = Builder()
    x = b.input("x", 1)
    program = b.finish(number(2.5), size(x.type.shape[0]), x, aliases=(0, 1, -1))
    two, n, same = run(program, given := np.ones(5))
    assert two == 2.5 and n == 5.0 and n.dtype == F64 and n.shape == () and same is given


def test_a_run_time_extent_is_an_upper_bound() -> None:
    b = Builder()
    x = b.input("x", 2)
    mask = b.less(x, number(0.0))
    picked = b.mask_select(b.reshape(x, shape=(x.type.shape[0] * x.type.shape[1],)),  # type: ignore[operator]
                           b.reshape(mask, shape=(x.type.shape[0] * x.type.shape[1],)), extent=leaf("runtime", 3, 0))  # type: ignore[operator]  # fmt: skip
    program = stage(b.finish(b.exp(picked)))
    kinds = {i.op.name: i.extents[0] for i in program.instructions}
    assert kinds["mask_select"] == kinds["exp"] == (ExtentKind.UPPER_BOUND,)
    assert kinds["less"] == (ExtentKind.EXACT, ExtentKind.EXACT)


def test_counts_have_no_bound() -> None:
    b = Builder()
    x = b.input("x", 1, np.dtype(np.int64))
    program = stage(b.finish(b.exp(b.astype(b.bincount(x, minlength=3, extent=leaf("runtime", 0, 0)), dtype=F64))))
    assert {i.extents[0] for i in program.instructions} == {(ExtentKind.UNKNOWN,)}


class TestValidation:
    def program(self) -> ExecProgram:
        return stage(softmax())

    def changed(self, number: int, **changes: object) -> None:
        program = self.program()
        instructions = list(program.instructions)
        instructions[number] = replace(instructions[number], **changes)  # type: ignore[arg-type]
        replace(program, instructions=tuple(instructions))

    def test_read_before_written(self) -> None:
        with pytest.raises(CheckError, match=r"instruction 0 \(max\): s7 is read before it is written"):
            self.changed(0, inputs=(Slot(7),))

    def test_written_twice(self) -> None:
        with pytest.raises(CheckError, match="s1 is written twice"):
            self.changed(1, outputs=(Slot(1),))

    def test_out_of_range(self) -> None:
        with pytest.raises(CheckError, match="s70 is not below 8"):
            self.changed(1, outputs=(Slot(70),))

    def test_read_after_its_last_use(self) -> None:
        with pytest.raises(CheckError, match="s0 is read after its last use"):
            self.changed(0, last_use=(True,))

    def test_arities(self) -> None:
        with pytest.raises(CheckError, match="last_use and inputs differ"):
            self.changed(0, last_use=(True, True))
        with pytest.raises(CheckError, match="outputs, types and extents differ"):
            self.changed(0, types=())

    def test_outputs(self) -> None:
        with pytest.raises(CheckError, match="s9 is never written"):
            replace(self.program(), outputs=(Slot(9),))
        with pytest.raises(CheckError, match="s7 is an output and cannot end here"):
            program = self.program()
            last = program.instructions[-1]
            extra = Instruction(
                last.op, (Slot(7), Slot(7)), last.params, (Slot(8),), last.types, last.extents, (True, True), -1
            )
            replace(program, instructions=(*program.instructions, extra), n_slots=9)
