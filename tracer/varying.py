"""Values that are being differentiated: an operand in, whether it varies with what a derivative is taken of.

Where a function's elements are known while it runs, Python and NumPy's own code can use them as numbers. Of a value
that is being differentiated that would lose its slope without a word, and is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Constant
from tenferro.tracer.program import Operand, Value
from tenferro.tracer.trace import Trace


def varies(trace: Trace, operand: Operand) -> bool:
    """Whether the operand is made of arguments of a function that a derivative is being taken of."""
    if not trace.varying or not isinstance(operand, Value):
        return False
    seen, waiting = set[int](), [operand.id]
    while waiting:
        number = waiting.pop()
        if number in trace.varying:
            return True
        operation = trace.producer(number) if number not in seen else None
        seen.add(number)
        if operation is None or isinstance(operation.op.jvp, Constant):
            continue
        waiting += [x.id for x in operation.inputs if isinstance(x, Value) and x.type.dtype.kind in "fc"]
    return False


def keep_slope(trace: Trace, operand: Operand, what: str, cure: str = "") -> None:
    """DerivativeError where ``what`` would take a value that is being differentiated for a number. ``cure``: what else
    may be done, ``"; …"``."""
    if operand.type.dtype.kind in "fc" and varies(trace, operand):
        raise DerivativeError(
            f"{what}: of a value that is being differentiated, whose slope would be lost; tn.stop_gradient(x) holds it "
            f"constant{cure}{at(user_line())}"
        )


def keep_slopes(trace: Trace, found: Any, given: Any, name: str, cure: str) -> None:
    """The same of a function that NumPy has computed of present elements: what is no number of its results has no
    slope anyway."""
    if not trace.varying or not _has_slopes(found):
        return
    kind = type(given)
    if kind in (tuple, list):
        for part in given:
            keep_slopes(trace, found, part, name, cure)
    elif kind is dict:
        keep_slopes(trace, found, list(given.values()), name, cure)
    elif hasattr(kind, "live_trace") and given._cell.known is None:
        keep_slope(trace, given.read(), name, cure)


def _has_slopes(found: Any) -> bool:
    """Whether a result, or one of several, could have a slope."""
    if isinstance(found, tuple | list):
        return any(map(_has_slopes, found))
    return np.asarray(found).dtype.kind in "fcO"
