"""Copies between pageable and device memory by way of pinned buffers, piece by piece.

The driver copies pageable memory by way of pinned memory of its own, one piece after the other; here the processor
fills or empties one buffer while the device works on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.engines.cuda.device import Event

Array = np.ndarray[Any, Any]
Copy = Callable[[int, Array], Event]
"""Submit a copy between an offset in device memory and pinned bytes; the event is after it."""


class Staging:
    """``buffers``: pinned bytes, of one size. Not thread-safe."""

    def __init__(self, buffers: Sequence[Array]) -> None:
        self._buffers = list(buffers)
        self._busy: list[Event | None] = [None] * len(buffers)

    def upload(self, data: Array, copy: Copy) -> None:
        """``data``: bytes; they may be written again when this returns."""
        step = self._buffers[0].size
        for turn, start in enumerate(range(0, data.size, step)):
            k = turn % len(self._buffers)
            self._wait(k)
            piece = data[start : start + step]
            pinned = self._buffers[k][: piece.size]
            np.copyto(pinned, piece)
            self._busy[k] = copy(start, pinned)

    def download(self, out: Array, copy: Copy) -> None:
        """Fill the bytes ``out``; returns when they are there."""
        step = self._buffers[0].size
        pieces: list[tuple[int, Array]] = [(0, out[:0])] * len(self._buffers)
        for turn, start in enumerate(range(0, out.size, step)):
            k = turn % len(self._buffers)
            self._empty(k, pieces)
            piece = out[start : start + step]
            self._wait(k)  # an upload's
            self._busy[k] = copy(start, self._buffers[k][: piece.size])
            pieces[k] = (turn, piece)
        for _, k in sorted((turn, k) for k, (turn, _) in enumerate(pieces)):
            self._empty(k, pieces)

    def _empty(self, k: int, pieces: list[tuple[int, Array]]) -> None:
        turn, piece = pieces[k]
        if piece.size:
            self._wait(k)
            np.copyto(piece, self._buffers[k][: piece.size])
            pieces[k] = (turn, piece[:0])

    def _wait(self, k: int) -> None:
        event, self._busy[k] = self._busy[k], None
        if event is not None:
            event.synchronize()
