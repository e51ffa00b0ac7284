"""The checker names the pass, the operation and its neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenferro import lowering
from tenferro.lowering.checker import check
from tenferro.tracer.errors import CheckError
from tenferro.tracer.program import ArrayType, Operation, Params, SemanticProgram, Value
from tests.lowering.programs import F32, Builder, heat, layer_norm, number, softmax


class Checking:
    check = True


def broken_at(program: SemanticProgram, number: int, **changes: object) -> SemanticProgram:
    operations = list(program.operations)
    operations[number] = replace(operations[number], **changes)  # type: ignore[arg-type]
    return replace(program, operations=tuple(operations))


@pytest.mark.parametrize("make", [softmax, layer_norm, heat])
def test_traced_programs_pass(make) -> None:
    check(make())


def test_a_wrong_type_is_shown_with_five_neighbours_each_side() -> None:
    program = layer_norm()
    bad = program.operations[7]
    out = Value(bad.outputs[0].id, ArrayType(F32, bad.outputs[0].type.shape))
    with pytest.raises(CheckError) as error:
        check(broken_at(program, 7, outputs=(out,)), after="test pass")
    lines = str(error.value).splitlines()
    assert "after test pass" in lines[0] and "stated as float32" in lines[0] and "derived as float64" in lines[0]
    assert [line.split(":")[0].split()[-1] for line in lines[1:]] == [str(k) for k in range(2, 13)]
    assert [line for line in lines if line.startswith("->")] == [
        f"-> 7: {broken_at(program, 7, outputs=(out,)).operations[7]}  # user.py:8"
    ]


def test_reading_before_definition() -> None:
    program = softmax()
    late = program.operations[-1].outputs[0]
    with pytest.raises(CheckError, match="%7 is read before it is defined"):
        check(broken_at(program, 2, inputs=(program.inputs[0].value, late)))


def test_reading_under_another_type() -> None:
    program = softmax()
    x = program.inputs[0].value
    with pytest.raises(CheckError, match="is read as float32"):
        check(broken_at(program, 2, inputs=(Value(0, ArrayType(F32, x.type.shape)), program.operations[1].outputs[0])))


def test_ids_must_be_dense() -> None:
    program = softmax()
    out = program.operations[3].outputs[0]
    with pytest.raises(CheckError, match="%99 is defined; %4 is next"):
        check(broken_at(program, 3, outputs=(Value(99, out.type),)))


def test_operands_that_the_row_refuses() -> None:
    program = softmax()
    with pytest.raises(CheckError, match="its type cannot be derived"):
        check(broken_at(program, 2, inputs=(program.inputs[0].value, number(1.0, F32))))


def test_a_broadcast_must_stretch_axes_of_size_1_only() -> None:
    b = Builder()
    x = b.input("x", 1)
    program = b.finish(b.broadcast_to(x, shape=(3, x.type.shape[0]), axes=(1,)))
    params = Params(shape=(3, 7), axes=(1,))
    out = Value(1, ArrayType(x.type.dtype, (3, 7)))
    broken = replace(broken_at(program, 0, params=params, outputs=(out,)), outputs=(out,))
    with pytest.raises(CheckError, match="size d0_0 does not stretch to 7"):
        check(broken)


def test_outputs_and_aliases() -> None:
    program = softmax()
    with pytest.raises(CheckError, match="2 aliases for 1 outputs"):
        check(replace(program, aliases=(0, 1)))
    with pytest.raises(CheckError, match="aliases input 3, which does not exist"):
        check(replace(program, aliases=(-4,)))
    with pytest.raises(CheckError, match="output %55"):
        check(replace(program, outputs=(Value(55, program.outputs[0].type),)))


def test_simplify_blames_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_first(program: SemanticProgram) -> SemanticProgram:
        kept: tuple[Operation, ...] = program.operations[1:]
        return replace(program, operations=kept)

    monkeypatch.setattr(
        lowering, "PASSES", [*lowering.PASSES[:2], ("lose the first", lose_first), *lowering.PASSES[2:]]
    )
    with pytest.raises(CheckError, match="malformed after lose the first"):
        lowering.simplify(softmax(), Checking())


def test_simplify_checks_what_it_is_given_and_every_order_of_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that were derived before a pass hold for operations that are still the same; their order is checked."""
    program = softmax()
    late = (program.inputs[0].value, program.operations[-1].outputs[0])
    with pytest.raises(CheckError, match="malformed after tracing"):
        lowering.simplify(broken_at(program, 2, inputs=late), Checking())

    def turn(program: SemanticProgram) -> SemanticProgram:
        return replace(program, operations=program.operations[::-1])

    monkeypatch.setattr(lowering, "PASSES", [("turn", turn)])
    with pytest.raises(CheckError, match="malformed after turn: .* is read before it is defined"):
        lowering.simplify(softmax(), Checking())


def test_an_operation_that_a_pass_makes_is_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(program: SemanticProgram) -> SemanticProgram:
        (out,) = program.operations[3].outputs
        return broken_at(program, 3, outputs=(Value(out.id, ArrayType(F32, out.type.shape)),))

    monkeypatch.setattr(lowering, "PASSES", [("keep", lambda program: program), ("narrow", narrow)])
    with pytest.raises(CheckError, match="malformed after narrow: .* stated as float32"):
        lowering.simplify(softmax(), Checking())
