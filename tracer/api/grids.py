"""``numpy.mgrid`` and ``ogrid`` over sizes: slices with Dims in, index arrays of the program out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer.api.creation import arange, linspace
from tenferro.tracer.dim import Dim


class Grid:
    """``numpy.mgrid``, or ``ogrid`` where it is open; NumPy's own where a key holds no Dim."""

    __slots__ = ("_is_open", "_original")

    def __init__(self, original: Any) -> None:
        self._original = original
        self._is_open = bool(original.sparse)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __getitem__(self, key: Any) -> Any:
        slices = key if isinstance(key, tuple) else (key,)
        bounds = [x for s in slices if isinstance(s, slice) for x in (s.start, s.stop, s.step)]
        if not any(type(x) is Dim for x in bounds):
            return self._original[key]
        lines = [_line(s) for s in slices]
        if not isinstance(key, tuple):
            return lines[0]
        dtype = np.result_type(*(line.dtype for line in lines))
        lines = [line.astype(dtype) for line in lines]
        if self._is_open:
            return np.meshgrid(*lines, indexing="ij", sparse=True)
        return np.stack(np.meshgrid(*lines, indexing="ij"))


def _line(s: slice) -> Any:
    """The places of one slice; a complex step is their number."""
    start = 0 if s.start is None else s.start
    if isinstance(s.step, complex):
        return linspace(start, s.stop, int(abs(s.step)))
    return arange(start, s.stop, 1 if s.step is None else s.step)
