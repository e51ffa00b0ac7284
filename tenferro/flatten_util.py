"""``ravel_pytree``: the arrays of a pytree as one vector, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

from tenferro import numpy as tnp, tree
from tenferro.array import any_array
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The leaves one behind another, in the dtype that they promote to, and a function that makes the pytree of such
    a vector, each leaf in its own dtype."""
    leaves, treedef = tree.flatten(pytree)
    arrays = [any_array(x) for x in leaves]
    shapes, dtypes = [x.shape for x in arrays], [x.dtype for x in arrays]
    flat = tnp.concatenate([x.ravel() for x in arrays]) if arrays else tnp.zeros(0)
    ends = list(accumulate((math.prod(shape) for shape in shapes), initial=0))

    def unravel(vector: Any) -> Any:
        if vector.ndim != 1 or vector.shape[0] != ends[-1]:
            raise ShapeError(
                f"unravel: an array of shape {vector.shape}; ({ends[-1]},) is needed, that of the vector that "
                f"ravel_pytree gave{at(user_line())}"
            )
        parts = [
            vector[start:end].reshape(shape).astype(dtype)
            for (start, end), shape, dtype in zip(pairwise(ends), shapes, dtypes, strict=True)
        ]
        return tree.unflatten(treedef, parts)

    return flat, unravel
