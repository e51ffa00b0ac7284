"""The memory plan of a run's temporaries: sizes and last uses go in, offsets in one block of memory come out."""

from __future__ import annotations

from tenferro.engines.cuda.device import ALIGNMENT


class Arena:
    """Offsets are handed out first-fit, and again after ``free``. ``size``: the block that all of it needs."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # (offset, bytes), by offset; no two touch

    def allocate(self, size: int) -> int:
        """An offset of ``size`` bytes that nobody else has."""
        wanted = _rounded(size)
        for k, (offset, available) in enumerate(self._free):
            if available >= wanted:
                self._free[k : k + 1] = [(offset + wanted, available - wanted)] if available > wanted else []
                return offset
        offset = self.size
        if self._free and sum(self._free[-1]) == self.size:  # the last hole grows
            offset = self._free.pop()[0]
        self.size = offset + wanted
        return offset

    def free(self, offset: int, size: int) -> None:
        """What ``allocate(size)`` gave is dead."""
        start, stop = offset, offset + _rounded(size)
        kept = []
        for other, available in self._free:
            if other + available == start:
                start = other
            elif other == stop:
                stop = other + available
            else:
                kept.append((other, available))
        if stop > start:
            kept.append((start, stop - start))
        self._free = sorted(kept)


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
