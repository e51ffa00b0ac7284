"""A run's inputs: what the caller gives and what the program keeps go in, one array or int per program input comes out.

None given: every input is its default. As many as the program has: they are taken as they are. Fewer: they fill the
inputs that have no default, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenferro.engines.errors import GuardError, InputError
from tenferro.tracer.errors import DtypeError, RangeError, ShapeError
from tenferro.tracer.program import ProgramInput, SemanticProgram

_MIN, _MAX = -(2**63), 2**63 - 1


def resolve(program: SemanticProgram, defaults: Mapping[int, Any], given: Sequence[Any]) -> list[Any]:
    """One value per program input. InputError for too many, for too few, and for an input that nobody gave."""
    wanted = len(program.inputs)
    if len(given) == wanted:
        return list(given)
    free = [k for k in range(wanted) if k not in defaults]
    if len(given) > wanted or (given and len(given) != len(free)):
        raise InputError(
            f"run: {len(given)} inputs; {program.name} has {wanted}, {len(free)} of them without a default"
        )
    if not given and free:
        raise InputError(f"run: input {program.inputs[free[0]].name} is unbound; it has no default and must be given")
    filled = dict(zip(free, given, strict=True))
    return [defaults[k] if k in defaults else filled[k] for k in range(wanted)]


def checked(declared: ProgramInput, value: Any) -> Any:
    """The value, if it is what the program was prepared for. InputError, DtypeError, ShapeError otherwise."""
    kind = declared.value.type
    if declared.kind == "int":
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InputError(f"run: input {declared.name} is a {type(value).__name__}; an int is needed")
        if not _MIN <= value <= _MAX:
            raise RangeError(f"run: input {declared.name} is {value}; an int of 64 bits is needed")
        return int(value)
    if type(value) is not np.ndarray:
        raise InputError(f"run: input {declared.name} is a {type(value).__name__}; an ndarray is needed")
    if value.dtype != kind.dtype or not value.dtype.isnative:
        raise DtypeError(f"run: input {declared.name} of dtype {value.dtype}; {kind.dtype} is needed")
    if value.ndim != kind.rank:
        raise ShapeError(f"run: input {declared.name} of rank {value.ndim}; rank {kind.rank} is needed")
    for axis, (found, needed) in enumerate(zip(value.shape, kind.shape, strict=True)):
        if isinstance(needed, int) and found != needed:
            raise ShapeError(f"run: input {declared.name} has {found} along axis {axis}; {needed} is needed")
    return value if value.flags.aligned else value.copy()


def checked_all(program: SemanticProgram, values: Sequence[Any]) -> list[Any]:
    """All of them, and the sizes that the program was traced for. GuardError names the guard that does not hold."""
    from tenferro.guards import environment, holds, in_words

    found = [checked(i, v) for i, v in zip(program.inputs, values, strict=True)]
    if program.guards:
        env = environment(program, found)
        for guard in program.guards:
            if not holds(guard, env):
                where = f" (at {guard.line})" if guard.line else ""
                raise GuardError(f"run: {in_words(str(guard), program)} does not hold for these inputs{where}")
    return found
