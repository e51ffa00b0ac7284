"""Run-time checks: what an engine found goes in (instruction, value), the error or warning for the user comes out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenferro.lowering.exec_program import Instruction
from tenferro.tracer.errors import BoundsError, DivisionError, ExponentError, ShapeError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import SourceLine, at, user_line
from tenferro.tracer.ops import library
from tenferro.tracer.ops.layout import start_and_axis


def _line(instruction: Instruction) -> SourceLine | None:
    """The line in the traced function; an eager operation has none of its own, but its caller's stands on the stack."""
    return instruction.line or user_line()


def called(instruction: Instruction, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """What the row's function on NumPy arrays gives; what it raises, or warns of, has the user's line."""
    try:
        return library.computed(instruction.op, operands, params, _line(instruction))
    except NUMPY_ERRORS as error:
        raise _call_error(instruction, operands, params, error) from None


def _call_error(
    instruction: Instruction, operands: Sequence[Any], params: Mapping[str, Any], error: Exception
) -> Exception:  # fmt: skip
    if instruction.op is library.scatter and isinstance(error, IndexError):
        base, places, _ = operands
        size = base.shape[instruction.params["axis"]]
        bad = places[(places < -size) | (places >= size)]
        return bounds_error(instruction, int(bad.reshape(-1)[0]), size, params)
    if instruction.op is library.mask_update and isinstance(error, ValueError) and operands[2].ndim == 1:
        return ShapeError(
            f"mask_update: {operands[2].size} values for {np.count_nonzero(operands[1])} elements under the mask; as "
            f"many, or one, are needed{at(_line(instruction))}"
        )
    return as_own(instruction.params.get("function", instruction.op.name), error, _line(instruction))


def bounds_error(instruction: Instruction, value: int, size: int, params: Mapping[str, Any]) -> BoundsError:
    """For an index ``value`` into an axis of ``size`` elements; ``params``: with their sizes as numbers."""
    axis = instruction.params["axis"]
    if params.get("windows"):
        name, shape, sizes, *more = params["windows"]
        value = value - more[0] * (1 if value >= 0 else -1) if more else value
        if name:
            return _window_error(instruction, value, name, shape, sizes)
        value, k = start_and_axis(value) if len(shape) > 1 else (value, 0)
        size, axis = shape[k], sizes[k]
    return BoundsError(
        f"{instruction.op.name}: indices contain {value}; axis {axis} has {size} elements, "
        f"so [{-size}, {size}) is needed{at(_line(instruction))}"
    )


def _window_error(
    instruction: Instruction, code: int, name: str, shape: Sequence[int], sizes: Sequence[int]
) -> BoundsError:  # fmt: skip
    """For a window that is not wholly inside an array; ``code`` stands for its place."""
    start, axis = start_and_axis(code)
    needed = f"a start in [0, {shape[axis] - sizes[axis]}] is needed" if shape[axis] >= sizes[axis] else "none fits"
    return BoundsError(
        f"{name}: a window of size {sizes[axis]} starts at {start} on axis {axis}, which has {shape[axis]} elements; "
        f"{needed}{at(_line(instruction))}"
    )


def empty_error(instruction: Instruction) -> ShapeError:
    """For a largest or smallest element of no elements, where the size was known only at run time."""
    return ShapeError(
        f"{instruction.op.name}: zero-size array to a reduction which has no identity; a size of at least 1 is "
        f"needed{at(instruction.line)}"
    )


def unmet_error(instruction: Instruction) -> Exception:
    """For what a function asks of elements and did not find: the place of a largest or smallest of NaNs alone, an
    average under weights whose sum is 0, a place that no array of the shape has."""
    kind, text = _UNMET[instruction.params["reason"]]
    return kind(f"{instruction.params['name']}: {text}{at(_line(instruction))}")


_UNMET: dict[str, tuple[type[Exception], str]] = {
    "weights": (DivisionError, "weights sum to zero, which can't be normalized; another sum is needed"),
    "NaN": (ShapeError, "All-NaN slice encountered; a number in each row is needed"),
    "place": (ShapeError, "an index is out of bounds for an array of that shape; a place inside of it is needed"),
}


def exponent_error(instruction: Instruction, exponent: Any) -> ExponentError:
    """For integers to a negative integer power."""
    return ExponentError(
        f"{instruction.op.name}: integers to the exponent {exponent}; integers to negative integer powers are not "
        f"allowed, x.astype(float) is needed{at(_line(instruction))}"
    )


def report_division(instruction: Instruction, dividend: Any) -> None:
    """An integer was divided by zero: warn, raise DivisionError, or stay silent, as ``np.errstate(divide=…)`` says."""
    text = (
        f"{instruction.op.name}: divisor 0 under the dividend {dividend}; "
        f"a divisor other than 0 is needed{at(_line(instruction))}"
    )
    match np.geterr()["divide"]:
        case "ignore":
            return
        case "raise":
            raise DivisionError(text)
        case "print":
            print(f"Warning: {text}")
        case "call" | "log":
            _call(text)
        case _:
            _warn(text, instruction)


def _call(text: str) -> None:
    """NumPy's own way: a function called with the kind and a flag, or an object with ``write``."""
    handler = np.geterrcall()
    if handler is None:
        return
    if callable(handler):
        handler("divide by zero", 1)
    else:
        handler.write(f"Warning: {text}\n")


def _warn(text: str, instruction: Instruction) -> None:
    line = _line(instruction)
    if line is None:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, RuntimeWarning, line.file, line.line)
