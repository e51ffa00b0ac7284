"""Numbers made of sizes alone: an operand in, its value in this call out, with every size that it reads pinned.

``int(n / 2)`` and ``if n / m > 1.5`` ask for a number that the trace can know; the program then serves only these
sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer.op import Pointwise
from tenferro.tracer.ops import library
from tenferro.tracer.program import DimScalar, Literal, Operand, Operation
from tenferro.tracer.trace import Trace

MAX_OPERATIONS = 64  # scalar formulas are short; a longer chain is a computation


def pinned_value(trace: Trace, operand: Operand) -> Any:
    """The number, or None where an array takes part."""
    if trace.spread is not None and trace.spread.differs(operand):
        return None
    needed = _operations(trace, operand)
    if needed is None:
        return None
    values: dict[int, Any] = {}

    def value(x: Operand) -> Any:
        match x:
            case Literal(value=number, dtype=dtype):
                return np.asarray(number, dtype)
            case DimScalar(expr=expr, dtype=dtype):
                return np.asarray(trace.concrete(expr, "a number made of sizes"), dtype)
            case _:
                return values[x.id]

    for operation in needed:
        with np.errstate(all="ignore"):
            operands = [value(i) for i in operation.inputs]
            values[operation.outputs[0].id] = library.computed(operation.op, operands, operation.params, operation.line)
    return np.asarray(value(operand))[()]


def _is_scalar_formula(operation: Operation) -> bool:
    """A row, or a ufunc without one (``numpy.ceil``), on numbers."""
    is_elementwise = isinstance(operation.op.form, Pointwise) or operation.op is library.numpy_call
    return is_elementwise and not operation.outputs[0].type.shape


def _operations(trace: Trace, operand: Operand) -> list[Operation] | None:
    """What computes the operand from sizes and constants, in order; None where anything else takes part."""
    if isinstance(operand, Literal | DimScalar):
        return []
    found: dict[int, Operation] = {}
    waiting = [operand.id]
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        operation = trace.producer(number)
        if operation is None or not _is_scalar_formula(operation) or len(found) == MAX_OPERATIONS:
            return None
        found[number] = operation
        waiting += [i.id for i in operation.inputs if not isinstance(i, Literal | DimScalar)]
    return [found[number] for number in sorted(found)]
