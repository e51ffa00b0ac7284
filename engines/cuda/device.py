"""A GPU as the engine sees it: memory from a pool, copies, modules of kernels, launches, streams, library calls.

``Device`` is abstract and imports no library: ``tenferro.engines.cuda.cupy_device`` is a real one. Everything that is
asked of a device happens in the order of one stream, also the reuse of memory: what was let go of may be handed out
again at once, since whoever gets it comes later in the stream.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tenferro.engines.cuda.prelude import KernelText, module_text
from tenferro.engines.disk_cache import DiskCache, entry_key
from tenferro.tracer.records import dataclass

Array = np.ndarray[Any, Any]
ALIGNMENT = 256
"""Bytes that the address of every block of device memory is a multiple of."""

LibraryName: TypeAlias = Literal["matmul"]


class DeviceError(Exception):
    """The device, its driver or a library on it failed: what runs there is lost."""


class DeviceMemoryError(MemoryError):
    """A block of memory cannot be had: the pool's limit, the device's memory, or what can be page-locked is used up."""


class Memory(ABC):
    """A block of device memory. It goes back to its pool when nobody holds it any more."""

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def address(self) -> int:
        """A multiple of ``ALIGNMENT``; 0 for a block of no bytes."""


class Event(ABC):
    """A place in a stream."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work before it is done. DeviceError where some of it failed."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether all work before it is done."""


class Stream(ABC):
    """Work that happens in order."""

    @abstractmethod
    def record(self) -> Event:
        """An event after all work submitted so far."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """What is submitted from now on happens after ``event``; the caller does not wait."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work is done. DeviceError where some of it failed."""

    @property
    @abstractmethod
    def pointer(self) -> int:
        """The driver's handle, for other libraries."""


class Graph(ABC):
    """Recorded work of a stream."""

    @abstractmethod
    def launch(self, stream: Stream) -> None:
        """Submit all of it."""


@dataclass(frozen=True, slots=True)
class Block:
    """``shape``, byte ``strides`` and ``dtype`` of elements at a device address, as library calls take them."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Bytes of now. ``used``: in blocks that somebody holds; ``held``: these and what is kept for reuse; ``limit``: 0
    for none."""

    used: int
    held: int
    limit: int


class Device(ABC):
    """One GPU. Making it allocates nothing on it; every method may be called by any thread. ``cache``: where machine
    code is kept from one process to the next."""

    def __init__(self, cache: DiskCache | None = None) -> None:
        self.cache = cache
        self.modules = 0
        self._functions: dict[str, Mapping[str, Any]] = {}
        self._loading = threading.Lock()

    @property
    @abstractmethod
    def name(self) -> str:
        """What the maker calls it."""

    @property
    @abstractmethod
    def processors(self) -> int:
        """Multiprocessors."""

    @property
    @abstractmethod
    def capability(self) -> tuple[int, int]:
        """Compute capability."""

    # Memory.

    @abstractmethod
    def allocate(self, size: int, stream: Stream) -> Memory:
        """``size`` bytes of unspecified contents. DeviceMemoryError."""

    @abstractmethod
    def pool(self) -> PoolStats:
        """The pool's counters."""

    @abstractmethod
    def limit(self, size: int) -> None:
        """Refuse a block with which more than ``size`` bytes would be held; 0 for no limit."""

    @abstractmethod
    def trim(self) -> None:
        """Give what is kept for reuse back to the driver."""

    @abstractmethod
    def pinned(self, size: int) -> Array:
        """Page-locked bytes of the host. DeviceMemoryError."""

    @abstractmethod
    def upload(self, address: int, data: Array, stream: Stream) -> None:
        """Submit a copy of a C-ordered array to there. Page-locked memory is read when its turn in the stream comes;
        other memory has been read when this returns."""

    @abstractmethod
    def download(self, out: Array, address: int, stream: Stream) -> None:
        """Submit a copy of what is there into page-locked bytes."""

    @abstractmethod
    def fill(self, address: int, byte: int, size: int, stream: Stream) -> None:
        """Set ``size`` bytes."""

    @abstractmethod
    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        """Copy ``size`` bytes on the device."""

    # Kernels.

    @property
    @abstractmethod
    def toolchain(self) -> tuple[str, ...]:
        """What machine code depends on beside the text: compute capability, the compiler's version, its options."""

    @abstractmethod
    def compile(self, kernels: Sequence[KernelText]) -> bytes:
        """The machine code of one module of these kernels. LoweringError for a text that is refused."""

    @abstractmethod
    def load(self, image: bytes, kernels: Sequence[KernelText]) -> Mapping[str, Any]:
        """The functions in what ``compile`` made of these kernels, by name."""

    @abstractmethod
    def launch(
        self, function: Any, grid: int, block: tuple[int, int], shared: int, argument: Array | int, stream: Stream
    ) -> None:
        """Submit one launch. ``argument``: the parameter words, by value, or their device address."""

    def functions(self, kernels: Iterable[KernelText]) -> list[Mapping[str, Any]]:
        """For each kernel its functions, by entry. Those not seen before make one module."""
        wanted = list(kernels)
        with self._loading:
            new = {k.body: k for k in wanted if k.body not in self._functions}
            if new:
                texts = list(new.values())
                found = self.load(self._image(texts), texts)
                self.modules += 1
                self._functions.update(
                    (body, {entry: found[name] for entry, name in k.entries.items()}) for body, k in new.items()
                )
            return [self._functions[k.body] for k in wanted]

    def _image(self, kernels: Sequence[KernelText]) -> bytes:
        """Machine code from the disk, or compiled and put there."""
        if self.cache is None:
            return self.compile(kernels)
        key = entry_key(module_text(kernels), *self.toolchain)
        found = self.cache.load(key)
        if found is None:
            found = self.compile(kernels)
            self.cache.store(key, found)
        return found

    # Streams and libraries.

    @abstractmethod
    def stream(self) -> Stream:
        """A new stream."""

    @property
    def captures(self) -> bool:
        """Whether ``begin_capture`` and ``end_capture`` record work."""
        return False

    def begin_capture(self, stream: Stream) -> None:
        """Record what is submitted from now on instead of doing it."""
        raise DeviceError("this device captures no graphs")

    def end_capture(self, stream: Stream) -> Graph:
        """What was recorded. DeviceError where it cannot be replayed."""
        raise DeviceError("this device captures no graphs")

    @property
    @abstractmethod
    def libraries(self) -> frozenset[LibraryName]:
        """The calls that ``call`` knows."""

    @abstractmethod
    def call(self, name: LibraryName, out: Block, operands: tuple[Block, ...], stream: Stream) -> None:
        """Have a library compute ``out``, which is C-ordered. ``matmul``: (batched) matrix product of two operands of
        at least rank 2 and any strides."""


__all__ = [
    "ALIGNMENT", "Block", "Device", "DeviceError", "DeviceMemoryError", "Event", "Graph", "LibraryName", "Memory",
    "PoolStats", "Stream",
]  # fmt: skip
