"""The errors that users meet. Each derives from the built-in that a NumPy user expects.

The text of every one of them is one sentence: ``<op>: <argument> <found>; <needed> (at file:line)``.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TypeVar

import numpy as np


class TenferroError(Exception):
    """Base of all errors raised on purpose by tenferro."""


class ShapeError(TenferroError, ValueError):
    """Shapes, axes or sizes do not fit the operation."""


class DtypeError(TenferroError, TypeError):
    """A dtype is unsupported or does not fit the operation."""


REFUSALS: ContextVar[list[TenferroError] | None] = ContextVar("tenferro_refusals", default=None)
"""What has been refused, though NumPy does it, since the running trace began; None where none runs."""

Refused = TypeVar("Refused", bound=TenferroError)


def noted(error: Refused) -> Refused:
    """The error, which the trace remembers: a function that catches it is not the one that NumPy would run."""
    refusals = REFUSALS.get()
    if refusals is not None:
        refusals.append(error)
    return error


class TraceError(TenferroError, TypeError):
    """Python asked a traced value for something that only a concrete value has."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        noted(self)


class LeakError(TraceError):
    """A traced value or Dim is used after its trace has ended."""


class MutationError(TenferroError, ValueError):
    """A write would reach memory that the traced function does not own."""


class BoundsError(TenferroError, IndexError):
    """An index is out of range, found while tracing or at run time."""


class AxisError(ShapeError, BoundsError, np.exceptions.AxisError):
    """An axis that the array does not have, and so NumPy's error for that; ``axis`` and ``ndim`` are as there."""

    def __init__(self, text: str, axis: int | None = None, ndim: int | None = None) -> None:
        super().__init__(text)
        self.axis, self.ndim = axis, ndim

    def __str__(self) -> str:
        return str(self.args[0])


class DerivativeError(TenferroError, TypeError):
    """A derivative is asked for that does not exist, or by arguments that have none."""


class BatchError(TenferroError, ValueError):
    """What a function does cannot be done for every lane of an axis at once, or its axes do not fit."""


class LinAlgError(TenferroError, np.linalg.LinAlgError):
    """A matrix is singular, or not positive definite, or an iteration did not converge."""


class RangeError(TenferroError, OverflowError):
    """An integer that no int64 holds."""


class DivisionError(TenferroError, FloatingPointError, ZeroDivisionError):
    """Integer division by zero under ``np.errstate(divide="raise")``."""


class ExponentError(TenferroError, ValueError):
    """An integer to a negative integer power."""


class MemoryLimitError(TenferroError, MemoryError):
    """A buffer cannot be had; the text lists the largest live buffers with their lines."""


class RecompileError(TenferroError, RuntimeError):
    """``jit(max_compiles=…)`` is exhausted."""


class LoweringError(TenferroError, RuntimeError):
    """A program cannot be lowered or run by the engine that was asked."""


class CallbackError(TenferroError, TypeError):
    """A callback gave something else than it was declared to give."""


class FailedCheckError(TenferroError, AssertionError):
    """What ``tn.check`` was told to hold does not."""


class NanError(TenferroError, FloatingPointError):
    """A NaN is born under ``tn.debug.nans``."""


class CheckError(TenferroError, AssertionError):
    """A stage produced something malformed: a bug in tenferro, never in the user's code."""


class RecompileWarning(UserWarning):
    """A function was traced many times; the text names the guard that failed and its line."""


class UnrolledLoopWarning(UserWarning):
    """A Python loop traced very many operations from one line."""
