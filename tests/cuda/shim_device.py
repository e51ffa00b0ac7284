"""A device without a GPU: host memory stands for a device's, kernels run as C++ (``tests.cuda.shim``).

A stream is a queue. ``eager``: it is worked off at once; else when somebody waits, as late as a real device might.
Fresh memory is poisoned, and the bytes behind each block are watched: ``faults`` lists what was overwritten.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

import tenferro as tn
from tenferro.engines.cuda.device import (
    ALIGNMENT,
    Block,
    Device,
    DeviceError,
    DeviceMemoryError,
    Event,
    Graph,
    LibraryName,
    Memory,
    PoolStats,
    Stream,
)
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.engines.cuda.prelude import KernelText, module_text
from tenferro.engines.disk_cache import DiskCache
from tests.cuda.running import SHIM, SMALL

Array = np.ndarray[Any, Any]
POISON, CANARY = 0xA5, 0xC3
_one_at_a_time = threading.RLock()  # the shim's fibers are global


class ShimMemory(Memory):
    """A block of the pool; ``buffer`` is longer than what was asked for by a watched tail."""

    __slots__ = ("_address", "_device", "buffer", "size")

    def __init__(self, device: ShimDevice, size: int, buffer: Array) -> None:
        self._device, self.size, self.buffer = device, size, buffer
        self._address = buffer.ctypes.data

    @property
    def address(self) -> int:
        return self._address

    def __del__(self) -> None:
        self._device.release(self.size, self.buffer)


class ShimEvent(Event):
    def __init__(self, stream: ShimStream, position: int) -> None:
        self._stream, self._position = stream, position

    def synchronize(self) -> None:
        self._stream.work_off(self._position)

    @property
    def is_done(self) -> bool:
        return self._stream.done >= self._position


class ShimStream(Stream):
    """Work is put in by one thread while another works it off."""

    def __init__(self, eager: bool) -> None:
        self.done = self.submitted = 0
        self._eager = eager
        self._queue: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()
        self._failure = ""
        self.recording: list[Callable[[], None]] | None = None

    def submit(self, work: Callable[[], Any], is_recorded: bool = True) -> None:
        if self._failure:
            raise DeviceError(self._failure)
        with self._lock:
            if self.recording is not None and is_recorded:
                self.recording.append(work)
                return
            self._queue.append(work)
            self.submitted += 1
        if self._eager:
            self.synchronize()

    def work_off(self, position: int) -> None:
        with _one_at_a_time:
            while self.done < position:
                work = self._queue.popleft()
                try:
                    if not self._failure:
                        work()
                except DeviceError as failure:  # a device is lost from its first failure on
                    self._failure = str(failure)
                finally:
                    self.done += 1
        if self._failure:
            raise DeviceError(self._failure)

    @property
    def failed(self) -> bool:
        return bool(self._failure)

    def record(self) -> Event:
        if self._failure:
            raise DeviceError(self._failure)
        assert self.recording is None
        return ShimEvent(self, self.submitted)

    def wait(self, event: Event) -> None:
        def work() -> None:
            with suppress(DeviceError):  # another device's failure is not this one's
                event.synchronize()

        self.submit(work)

    def synchronize(self) -> None:
        assert self.recording is None
        self.work_off(self.submitted)

    @property
    def pointer(self) -> int:
        return 0


class ShimGraph(Graph):
    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work = work

    def launch(self, stream: Stream) -> None:
        assert isinstance(stream, ShimStream)
        for one in self.work:
            stream.submit(one)


def view(address: int, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Array:
    """Host memory at an address as an array."""
    interface = {
        "data": (address, False), "shape": tuple(shape), "strides": tuple(strides), "typestr": np.dtype(dtype).str,
        "version": 3,
    }  # fmt: skip

    class Holder:
        __array_interface__ = interface

    return np.asarray(Holder())


class ShimDevice(Device):
    """``fail``: a text makes the next launch fail with it: at once with ``fail_late`` false, else when it runs."""

    def __init__(
        self, eager: bool = False, libraries: Iterable[LibraryName] = ("matmul",), cache: DiskCache | None = None
    ) -> None:
        super().__init__(cache)
        self.compiled = 0
        self.fail, self.fail_late = "", False
        self.faults: list[str] = []
        self.launches: list[str] = []
        self.calls = 0
        self.copied = {"up": 0, "down": 0}
        self._eager = eager
        self._libraries = frozenset(libraries)
        self._used = self._held = self._limit = 0
        self._kept: dict[int, list[Array]] = {}
        self._pinned: list[tuple[int, int]] = []
        self._locked: list[Array] = []
        self._lock = threading.RLock()
        self._stream = ShimStream(eager)

    name = "shim"  # type: ignore[assignment]
    processors = 1  # type: ignore[assignment]
    capability = (9, 0)  # type: ignore[assignment]

    # Memory.

    def allocate(self, size: int, stream: Stream) -> ShimMemory:
        wanted = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        with self._lock:
            kept = self._kept.get(wanted)
            buffer = kept.pop() if kept else None
            if buffer is None and self._limit and self._held + wanted > self._limit:
                self._kept.clear()
                self._held = self._used
            if buffer is None and self._limit and self._held + wanted > self._limit:
                raise DeviceMemoryError(f"{size:,} bytes of device memory cannot be had")
            if buffer is None:
                self._held += wanted
                buffer = _aligned(wanted + ALIGNMENT)
            self._used += wanted
        self._submit(stream, lambda: _poison(buffer, size))
        return ShimMemory(self, size, buffer)

    def release(self, size: int, buffer: Array) -> None:
        with self._lock:
            if not self._stream.failed:
                self._stream.submit(lambda: self._check(size, buffer), is_recorded=False)  # whoever records just now
            wanted = buffer.size - ALIGNMENT
            self._used -= wanted
            self._kept.setdefault(wanted, []).append(buffer)

    def _check(self, size: int, buffer: Array) -> None:
        if (buffer[size:] != CANARY).any():
            self.faults.append(f"a block of {size} bytes was written beyond its end")

    def pool(self) -> PoolStats:
        return PoolStats(self._used, self._held, self._limit)

    def limit(self, size: int) -> None:
        self._limit = size

    def trim(self) -> None:
        self._stream.synchronize()
        with self._lock:
            self._kept.clear()
            self._held = self._used

    def pinned(self, size: int) -> Array:
        block = np.full(size, POISON, np.uint8)
        self._locked.append(block)  # addresses must not be those of other memory later
        self._pinned.append((block.ctypes.data, block.ctypes.data + size))
        return block

    @property
    def pinned_bytes(self) -> int:
        return sum(stop - start for start, stop in self._pinned)

    def _is_pinned(self, data: Array) -> bool:
        return any(start <= data.ctypes.data < stop for start, stop in self._pinned)

    def upload(self, address: int, data: Array, stream: Stream) -> None:
        # Page-locked memory is read when its turn comes.
        size, kept = data.nbytes, data if self._is_pinned(data) else data.copy()
        self.copied["up"] += size
        self._submit(stream, lambda: ctypes.memmove(address, kept.ctypes.data, size))

    def download(self, out: Array, address: int, stream: Stream) -> None:
        assert self._is_pinned(out)
        self.copied["down"] += out.nbytes
        self._submit(stream, lambda: ctypes.memmove(out.ctypes.data, address, out.nbytes))

    def fill(self, address: int, byte: int, size: int, stream: Stream) -> None:
        self._submit(stream, lambda: ctypes.memset(address, byte, size))

    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        self._submit(stream, lambda: ctypes.memmove(target, source, size))

    # Kernels.

    toolchain: tuple[str, ...] = ("compute capability 9.0", "shim 1")  # type: ignore[assignment]

    def compile(self, kernels: Sequence[KernelText]) -> bytes:
        self.compiled += 1
        with _one_at_a_time:
            SHIM.add(kernels)
        return _image(kernels)

    def load(self, image: bytes, kernels: Sequence[KernelText]) -> Mapping[str, Any]:
        if image != _image(kernels):
            raise DeviceError(f"an image of {len(image)} bytes that is not of these kernels")
        return {name: (kernel, entry) for kernel in kernels for entry, name in kernel.entries.items()}

    def launch(
        self, function: Any, grid: int, block: tuple[int, int], shared: int, argument: Array | int, stream: Stream
    ) -> None:
        fail, self.fail = self.fail, ""
        if fail and not self.fail_late:
            raise DeviceError(fail)
        kernel, entry = function
        self.launches.append(entry)
        words = argument if isinstance(argument, int) else argument.copy()

        def work() -> None:
            if fail:
                raise DeviceError(fail)
            given = view(words, (kernel.words,), (8,), np.int64) if isinstance(words, int) else words
            SHIM.run(kernel, entry, given, grid, block)

        self._submit(stream, work)

    # Graphs. ``refuse_capture`` makes recording fail.

    refuse_capture = ""

    @property
    def captures(self) -> bool:
        return True

    def begin_capture(self, stream: Stream) -> None:
        assert self._stream.recording is None
        self._stream.recording = []

    def end_capture(self, stream: Stream) -> Graph:
        work, self._stream.recording = self._stream.recording, None
        assert work is not None
        if self.refuse_capture:
            raise DeviceError(self.refuse_capture)
        return ShimGraph(work)

    # Streams and libraries.

    def stream(self) -> ShimStream:
        return self._stream

    @property
    def libraries(self) -> frozenset[LibraryName]:
        return self._libraries

    def call(self, name: LibraryName, out: Block, operands: tuple[Block, ...], stream: Stream) -> None:
        def work() -> None:
            arrays = [view(o.address, o.shape, o.strides, o.dtype) for o in operands]
            np.matmul(*arrays, out=view(out.address, out.shape, out.strides, out.dtype))

        if self._stream.recording is not None:
            raise NotImplementedError("a library call while recording")  # as CuPy
        self.calls += 1
        self._submit(stream, work)

    def _submit(self, stream: Stream, work: Callable[[], Any]) -> None:
        assert stream is self._stream, "one engine, one stream"
        self._stream.submit(work)


def _image(kernels: Sequence[KernelText]) -> bytes:
    """What stands for machine code: a text as long as a module's, of which every byte counts."""
    return b"shim image\n" + module_text(kernels).encode()[::-1]


def _aligned(size: int) -> Array:
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def _poison(buffer: Array, size: int) -> None:
    buffer[:size], buffer[size:] = POISON, CANARY


def shim_engine(number: int = 0, eager: bool = False, memory_limit: int = 0) -> CudaEngine:
    """A CUDA engine whose GPU is the CPU."""
    return CudaEngine(number, ShimDevice(eager), memory_limit, SMALL)


def device(engine: CudaEngine) -> ShimDevice:
    """The engine's device."""
    assert isinstance(engine.device, ShimDevice)
    return engine.device


@contextmanager
def registered(engine: CudaEngine) -> Iterator[None]:
    """The engine in the default runtime."""
    tn.default_runtime().reconfigure(lambda c: c.register_engine(engine))
    yield
    tn.default_runtime().reconfigure(lambda c: c.remove_engine(engine.id))


class DryDevice(ShimDevice):
    """Notes the kernels that it is asked for and runs none."""

    def __init__(self) -> None:
        super().__init__(eager=True)
        self.kernels: list[KernelText] = []

    def compile(self, kernels: Sequence[KernelText]) -> bytes:
        self.kernels += kernels
        return b""

    def load(self, image: bytes, kernels: Sequence[KernelText]) -> Mapping[str, Any]:
        return {name: None for kernel in kernels for name in kernel.entries.values()}

    def launch(
        self, function: Any, grid: int, block: tuple[int, int], shared: int, argument: Array | int, stream: Stream
    ) -> None:
        pass

    def call(self, name: LibraryName, out: Block, operands: tuple[Block, ...], stream: Stream) -> None:
        pass
