"""The NumPy-level functions, all of them: the families beside this file in, one dict by NumPy's name out.

``tn.Array``'s operations and ``tenferro.numpy`` are made from it.
"""

from __future__ import annotations

import numpy as np

from tenferro.tracer.api import (
    assembling,
    calculus,
    casting,
    choosing,
    covariance,
    creation,
    decompositions,
    editing,
    einsum,
    elementwise,
    filling,
    fixed,
    indexing,
    joining,
    layout,
    least_squares,
    library,
    linalg,
    matrices,
    nan_statistics,
    padding,
    parts,
    places,
    polynomials,
    reductions,
    running,
    sets,
    sets_of_two,
    statistics,
    tapers,
    variance,
    vocabulary,
    writes,
)
from tenferro.tracer.api.record import API, ApiFunction

FAMILIES = (
    elementwise, vocabulary, reductions, variance, layout, joining, creation, casting, indexing, writes, padding,
    linalg, einsum, library, fixed, nan_statistics, statistics, calculus, choosing, assembling, decompositions,
    sets, covariance, polynomials, running, places, filling, parts,
    sets_of_two, least_squares, matrices, editing, tapers,
)  # fmt: skip

for _family in FAMILIES:
    API.update((f.name, f) for f in _family.FUNCTIONS)

for _record in API.values():  # Python's own TypeErrors name the function as NumPy's user knows it
    if _record.function.__qualname__ not in API:
        _record.function.__name__ = _record.function.__qualname__ = _record.name

# Further names of the same functions in NumPy, and the array API's.
ALIASES: dict[str, str] = {
    "true_divide": "divide",
    "abs": "absolute",
    "amax": "max",
    "amin": "min",
    "concat": "concatenate",
    "permute_dims": "transpose",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "conj": "conjugate",
    "mod": "remainder",
    "bitwise_not": "invert",
    "bitwise_invert": "invert",
    "around": "round",
    "pow": "power",
}
API.update((alias, API[name]) for alias, name in ALIASES.items())

LINALG: dict[str, ApiFunction] = {
    f.name.removeprefix("linalg."): f for family in (decompositions, least_squares, matrices) for f in family.FUNCTIONS
} | {name: API[name] for name in ("matmul", "tensordot", "vecdot", "matrix_transpose")}
"""By NumPy's name in ``numpy.linalg``, and three functions that only SciPy and JAX have."""

BY_NUMPY: dict[object, ApiFunction] = {
    getattr(np, name): f for name, f in API.items() if getattr(np, name, None) is not None
}
BY_NUMPY.update((getattr(np.linalg, name), f) for name, f in LINALG.items() if hasattr(np.linalg, name))
BY_NUMPY[np.lib.stride_tricks.sliding_window_view] = API["sliding_window_view"]
"""By the NumPy function itself, for dispatch."""
