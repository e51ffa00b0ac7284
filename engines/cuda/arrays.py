"""``DeviceArray``: elements in the memory of a device, as runs take and give them.

It computes nothing. Other libraries read it through ``__cuda_array_interface__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu.layout import Strided, contiguous
from tenferro.engines.cuda.device import ALIGNMENT, Memory
from tenferro.engines.remote import RemoteArray

if TYPE_CHECKING:
    from tenferro.engines.cuda.engine import CudaEngine


class DeviceArray(RemoteArray):
    """``offset``: bytes from the start of ``memory`` to the first element. Programs never write what they were given,
    so that arrays may share memory."""

    __slots__ = ("memory", "offset")
    engine: CudaEngine

    def __init__(
        self, engine: CudaEngine, memory: Memory, offset: int, shape: tuple[int, ...], strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:  # fmt: skip
        super().__init__(engine, shape, strides, dtype)
        self.memory = memory
        self.offset = offset

    @property
    def address(self) -> int:
        """Of the first element."""
        return self.memory.address + self.offset

    @property
    def alignment(self) -> int:
        """Bytes that the address is a multiple of, ``ALIGNMENT`` at most."""
        return min(ALIGNMENT, self.address & -self.address or ALIGNMENT)

    @property
    def is_contiguous(self) -> bool:
        """Whether it is C-ordered without gaps."""
        if self.size <= 1:
            return True
        plain = contiguous(self.shape, self.itemsize)
        return all(n == 1 or s == p for n, s, p in zip(self.shape, self.strides, plain, strict=True))

    @property
    def strided(self) -> Strided:
        """Its layout from its first element on."""
        return Strided(0, self.shape, self.strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. Whoever reads it waits for the engine's stream."""
        return {
            "shape": self.shape,
            "strides": None if self.is_contiguous else self.strides,
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, True),
            "version": 3,
            "stream": self.engine.stream.pointer or None,
        }
