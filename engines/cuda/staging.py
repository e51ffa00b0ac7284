"""Copies between the host's pageable memory and a device's, by way of page-locked pieces, in the order of a stream.

The device copies page-locked memory while the processor does other things: nothing here waits for the stream, but for
a download's own bytes and for the pieces of uploads that are MOST_BUSY behind.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tenferro.engines.cuda.device import Device, Event, Stream

Array = np.ndarray[Any, Any]
SIZES = (64, 64 << 10, 4 << 20)
"""Bytes of a piece: for single words, for small arrays, and for large ones, which go piece by piece."""
BLOCK = 4 << 10
"""Bytes that are page-locked at once, at least: the driver locks whole pages."""
MOST_BUSY = 4
"""Pieces of one size that wait for their uploads; the next upload waits for the oldest."""
PAGEABLE = 64 << 10
"""Bytes up to which an upload takes no piece: the driver copies so few at once, without waiting for the stream."""
AHEAD = 2
"""Pieces of a download that the device fills while the host empties another."""


class Piece:
    """Page-locked bytes. They go back when nobody holds this any more, and are used again after ``event``."""

    __slots__ = ("_returned", "bytes", "event")

    def __init__(self, found: Array, returned: Callable[[Array, Event | None], None]) -> None:
        self.bytes = found
        self.event: Event | None = None
        self._returned = returned

    def __del__(self) -> None:
        self._returned(self.bytes, self.event)


class Pieces:
    """Page-locked pieces of one size; made when first needed, and kept. Thread-safe."""

    def __init__(self, size: int, make: Callable[[int], Array]) -> None:
        self.size = size
        self._make = make
        self._free: deque[Array] = deque()
        self._busy: deque[tuple[Event, Array]] = deque()
        self._lock = threading.Lock()

    def take(self) -> Piece:
        """A piece that nobody uses. DeviceError where an upload that it waits for has failed."""
        with self._lock:
            return Piece(self._found(), self._return)

    def _found(self) -> Array:
        if self._free:
            return self._free.pop()
        if self._busy and (len(self._busy) >= MOST_BUSY or self._busy[0][0].is_done):
            event, found = self._busy.popleft()
            event.synchronize()
            return found
        block = self._make(max(self.size, BLOCK))
        first, *others = [block[i : i + self.size] for i in range(0, block.size, self.size)]
        self._free.extend(others)
        return first

    def _return(self, found: Array, event: Event | None) -> None:
        # A finalizer, which may run inside ``take`` of the same thread: no lock.
        if event is None:
            self._free.append(found)
        else:
            self._busy.append((event, found))


class Arrival:
    """A word, or some, on the way from the device."""

    def __init__(self, piece: Piece, size: int, event: Event) -> None:
        self._piece, self._size, self._event = piece, size, event
        piece.event = event  # what is given up early is written to all the same

    def wait(self) -> Array:
        """The bytes when they are there; theirs is the memory of this object. DeviceError."""
        self._event.synchronize()
        self._piece.event = None
        return self._piece.bytes[: self._size]


class HostCopies:
    """Of one device and stream. ``submitting`` is held while something is put into the stream, and not while the bytes
    of a download are waited for. ``sizes`` and ``pageable`` as above."""

    def __init__(
        self, device: Device, stream: Stream, submitting: AbstractContextManager[Any],
        sizes: Sequence[int] = SIZES, pageable: int = PAGEABLE,
    ) -> None:  # fmt: skip
        self._device, self._stream, self._submitting = device, stream, submitting
        self._pieces = [Pieces(size, device.pinned) for size in sizes]
        self._pageable = pageable

    def upload(self, address: int, data: Array) -> None:
        """Copy a C-ordered array there. ``data`` may be written again when this returns. DeviceError."""
        device, stream, given = self._device, self._stream, _bytes(data)
        with self._submitting:
            if given.size <= self._pageable:
                device.upload(address, given, stream)
                return
            pieces = self._of_size(given.size)
            for start in range(0, given.size, pieces.size):
                part = given[start : start + pieces.size]
                piece = pieces.take()
                here = piece.bytes[: part.size]
                np.copyto(here, part)
                device.upload(address + start, here, stream)
                piece.event = stream.record()

    def download(self, out: Array, address: int) -> None:
        """Copy what is there into a C-ordered array, and wait for it. DeviceError where work before it failed."""
        wanted = _bytes(out)
        pieces = self._of_size(wanted.size)
        coming: deque[tuple[Array, Arrival]] = deque()
        for start in range(0, wanted.size, pieces.size):
            part = wanted[start : start + pieces.size]
            coming.append((part, self._begun(pieces, address + start, part.size)))
            if len(coming) > AHEAD:
                _empty(coming)
        while coming:
            _empty(coming)

    def begin(self, address: int, size: int) -> Arrival:
        """Submit the copy of at most ``sizes[-1]`` bytes to the host."""
        return self._begun(self._of_size(size), address, size)

    def _begun(self, pieces: Pieces, address: int, size: int) -> Arrival:
        piece = pieces.take()
        with self._submitting:
            self._device.download(piece.bytes[:size], address, self._stream)
            return Arrival(piece, size, self._stream.record())

    def _of_size(self, size: int) -> Pieces:
        return next((p for p in self._pieces if size <= p.size), self._pieces[-1])


def _empty(coming: deque[tuple[Array, Arrival]]) -> None:
    part, arrival = coming.popleft()
    np.copyto(part, arrival.wait())


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
