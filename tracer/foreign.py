"""NumPy's own complaints in this package's form: what NumPy raised in, the error of the same kind with the user's line
out."""

from __future__ import annotations

import numpy as np

from tenferro.tracer.errors import (
    AxisError,
    BoundsError,
    DtypeError,
    LinAlgError,
    MemoryLimitError,
    MutationError,
    ShapeError,
    TenferroError,
)
from tenferro.tracer.lines import SourceLine, at, user_line

NUMPY_ERRORS = (IndexError, ValueError, TypeError, MemoryError)
_KINDS: tuple[tuple[type[Exception], type[TenferroError]], ...] = (
    (MemoryError, MemoryLimitError),
    (IndexError, BoundsError),
    (np.linalg.LinAlgError, LinAlgError),
    (ValueError, ShapeError),
    (TypeError, DtypeError),
)


def as_own(name: str, error: Exception, line: SourceLine | None = None) -> Exception:
    """The error that NumPy's ``error`` in the operation ``name`` is to the user; another's own class stays as it is."""
    module = type(error).__module__
    if isinstance(error, TenferroError) or not (module == "builtins" or module.split(".")[0] == "numpy"):
        return error
    if isinstance(error, ValueError) and "read-only" in str(error):
        return MutationError(f"{name}: {error}{at(line or user_line())}")
    if isinstance(error, np.exceptions.AxisError):
        return AxisError(f"{name}: {error}{at(line or user_line())}", error.axis, error.ndim)
    own = next((kind for foreign, kind in _KINDS if isinstance(error, foreign)), None)
    return error if own is None else own(f"{name}: {error}{at(line or user_line())}")
