"""What JAX's programs say of where arrays are: ``block_until_ready``, ``device_get``, ``device_put``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro import tree
from tenferro.array import Array, asarray
from tenferro.tracer.trace import current_trace


def block_until_ready(x: Any) -> Any:
    """``x`` itself: results are ready when a call returns."""
    return x


def device_get(x: Any) -> Any:
    """The pytree with NumPy's arrays for its leaves, of the same memory where that is the host's."""
    return tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, x)


def device_put(x: Any, device: Any = None) -> Any:
    """The pytree with ``tn.Array``s for its leaves, copies of them on the engine; the first where none is named.

    In a traced function it is ``x``: ``tn.on`` says there where operations run."""
    if current_trace() is not None:
        return x
    return tree.map(lambda leaf: asarray(np.array(leaf), engine=device), x)
