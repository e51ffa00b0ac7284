"""``tn.debug.nans``: inside, calls find where the NaNs in their results were born.

A program runs operation by operation, on NumPy arrays, by the references of the rows. Each value with a NaN knows the
operation that gave the first NaN of none, its *birth*; where one reaches a result, the error tells it. So NaNs that
``where`` discards do not count, nor those that came in with the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from tenferro.tracer import switches
from tenferro.tracer.errors import NanError
from tenferro.tracer.lines import at, user_line

if TYPE_CHECKING:
    from tenferro.compiled import Compiled
    from tenferro.engines.engine import RunResult
    from tenferro.lowering.exec_program import ExecProgram

_on: ContextVar[bool] = ContextVar("tenferro_nans", default=False)
_staged: WeakKeyDictionary[Any, ExecProgram] = WeakKeyDictionary()


@contextmanager
def nans(find: bool = True) -> Iterator[None]:
    """Raise NanError, which is a FloatingPointError, where a NaN is born that reaches a result of a call.

    The text names the operation, the first such element with what it was made of, and the user's line; for a derivative
    the line of the function that it is of. Loops, choices, gradients and operations on ``tn.Array`` are looked into.
    Calls are as slow as NumPy, and the last bits of elementary functions are NumPy's. ``find=False`` inside turns it
    off again."""
    token = _on.set(find)
    switches.pause()  # native calls ask nobody
    try:
        yield
    finally:
        switches.resume()
        _on.reset(token)


def is_on() -> bool:
    """Whether calls in this context look for NaNs."""
    return _on.get()


def run(compiled: Compiled, inputs: Sequence[Any]) -> RunResult:
    """A call's results. NanError where one has a NaN that was born in it."""
    from tenferro.lowering.stage import stage
    from tenferro.nan_search import GIVEN, NanExecutable

    program = _staged.get(compiled)
    if program is None:
        program = _staged[compiled] = stage(compiled.program)
    given = [x if isinstance(x, int | np.ndarray) else x.numpy() for x in inputs]
    executable = NanExecutable(program)
    result = executable.run(given)
    birth = next((b for b in executable.outcomes if b is not None and b is not GIVEN), None)
    if birth is not None:
        raise NanError(f"{birth.text}{at(birth.line or user_line())}")
    return result
