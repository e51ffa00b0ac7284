"""Sizes and numbers that outgrow 64 bits in one call: its program and sizes in, the error that names the line out.

A trace needs no guard against them: whatever runs a program refuses a number that no int64 holds, and what it was is
looked for afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenferro.guards import in_words
from tenferro.tracer.dims import Environment, Extent, evaluate, extents_in
from tenferro.tracer.errors import RangeError, ShapeError, TenferroError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, DimScalar, Operation, SemanticProgram

_MIN, _MAX = -(2**63), 2**63 - 1


def error_for(program: SemanticProgram, env: Environment) -> TenferroError | None:
    """A ShapeError or a RangeError for the first size or number beyond int64; None where there is none."""
    for operation in program.operations:
        for result in operation.outputs:
            shape = _outgrown_shape(result.type, env)
            if shape is not None:
                return ShapeError(
                    f"{operation.op.name}: a {result.type.dtype.name} array of shape {shape}, which is larger than any "
                    f"memory; at most 2**63 - 1 bytes are needed{at(operation.line or user_line())}"
                )
        for extent in _numbers(operation):
            if (value := _outgrown(extent, env)) is not None:
                return _range_error(operation.op.name, extent, value, program, at(operation.line or user_line()))
    for output in program.outputs:
        if isinstance(output, DimScalar) and (value := _outgrown(output.expr, env)) is not None:
            return _range_error(program.name, output.expr, value, program, at(user_line()))
    return None


def _range_error(name: str, extent: Extent, value: int, program: SemanticProgram, where: str) -> RangeError:
    return RangeError(
        f"{name}: {in_words(str(extent), program)} is {value}; an int between -2**63 and 2**63 - 1 is needed; "
        f"float(n) has a wider range{where}"
    )


def _numbers(operation: Operation) -> Iterator[Extent]:
    """The sizes that the operation reads as numbers."""
    for operand in operation.inputs:
        if isinstance(operand, DimScalar):
            yield operand.expr
    for parameter in operation.params.values():
        yield from extents_in(parameter)


def _outgrown(extent: Extent, env: Environment) -> int | None:
    """The value where it is beyond int64."""
    try:
        value = evaluate(extent, env)
    except KeyError:  # a size known only when the program has run: it counts elements that exist
        return None
    return None if _MIN <= value <= _MAX else value


def _outgrown_shape(type_: ArrayType, env: Environment) -> tuple[int, ...] | None:
    """The shape where its bytes are beyond int64."""
    try:
        shape = tuple(evaluate(n, env) for n in type_.shape)
    except KeyError:
        return None
    size = type_.dtype.itemsize
    for n in shape:
        size *= n or 1  # as NumPy counts: an axis of no elements hides no other
    return shape if size > _MAX else None
