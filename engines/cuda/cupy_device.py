"""A GPU through CuPy: its memory pool, NVRTC, streams and cuBLAS. CuPy is imported when a device is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenferro.engines.cuda.device import (
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
from tenferro.engines.cuda.prelude import OPTIONS, KernelText, module_text
from tenferro.engines.disk_cache import CUDA_IMAGES, configured
from tenferro.engines.errors import ConfigurationError
from tenferro.tracer.errors import LoweringError

Array = np.ndarray[Any, Any]
OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, which CuPy has no name for: page-locked memory is used up."""


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"cuda: CuPy cannot be imported ({error}); it is needed for GPUs: "
            f"python -m pip install 'tenferro[cuda13]', or 'tenferro[cuda12]' for drivers of CUDA 12"
        ) from error
    return cupy


def architecture(nvrtc: Any, capability: tuple[int, int]) -> str:
    """What NVRTC compiles for: the GPU's own instructions, or PTX for a GPU that is newer than this NVRTC."""
    wanted, known = 10 * capability[0] + capability[1], sorted(map(int, nvrtc.getSupportedArchs()))
    if wanted in known:
        return f"sm_{wanted}"
    older = [k for k in known if k < wanted]
    if not older:
        raise LoweringError(
            f"cuda: a GPU of compute capability {capability[0]}.{capability[1]}; this NVRTC needs {known[0] / 10}"
        )
    return f"compute_{older[-1]}"


def toolchain(nvrtc: Any, capability: tuple[int, int]) -> tuple[str, ...]:
    """What machine code depends on beside the text."""
    version = ".".join(map(str, nvrtc.getVersion()))
    return (f"compute capability {capability[0]}.{capability[1]}", f"NVRTC {version}", *OPTIONS)


def compiled(nvrtc: Any, text: str, capability: tuple[int, int]) -> bytes:
    """The machine code of a module, or its PTX for a GPU that is newer than this NVRTC. LoweringError with its log.

    CuPy's own RawModule will not do: it adds -ftz=true, under which subnormal numbers of float32 are lost."""
    arch = architecture(nvrtc, capability)
    program = nvrtc.createProgram(text, "kernels.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"--gpu-architecture={arch}"))
        image = nvrtc.getCUBIN(program) if arch.startswith("sm_") else nvrtc.getPTX(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise LoweringError(f"cuda: NVRTC refuses the text of a kernel: {error}\n{log}") from error
    finally:
        nvrtc.destroyProgram(program)
    return image if isinstance(image, bytes) else str(image).encode()


class CupyMemory(Memory):
    """A block of CuPy's pool."""

    __slots__ = ("pointer",)

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer

    @property
    def address(self) -> int:
        return int(self.pointer.ptr)


class CupyEvent(Event):
    def __init__(self, device: CupyDevice, event: Any) -> None:
        self._device, self.event = device, event

    def synchronize(self) -> None:
        with self._device.watched():
            self.event.synchronize()

    @property
    def is_done(self) -> bool:
        with self._device.watched():
            return bool(self.event.done)


class CupyStream(Stream):
    def __init__(self, device: CupyDevice, stream: Any) -> None:
        self._device, self.stream = device, stream

    def record(self) -> Event:
        with self._device.watched(self):
            event = self._device.cupy.cuda.Event(disable_timing=True)
            event.record(self.stream)
            return CupyEvent(self._device, event)

    def wait(self, event: Event) -> None:
        assert isinstance(event, CupyEvent)
        with self._device.watched(self):
            self.stream.wait_event(event.event)

    def synchronize(self) -> None:
        with self._device.watched():
            self.stream.synchronize()

    @property
    def pointer(self) -> int:
        return int(self.stream.ptr)


class CupyGraph(Graph):
    def __init__(self, device: CupyDevice, graph: Any) -> None:
        self._device, self.graph = device, graph

    def launch(self, stream: Stream) -> None:
        own = _own(stream)
        with self._device.watched():
            self.graph.launch(own.stream)


class CupyDevice(Device):
    """GPU ``number``. ImportError without CuPy; ConfigurationError without such a GPU."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(configured(CUDA_IMAGES))
        self.cupy = cupy = _import_cupy()
        self._errors: tuple[type[Exception], ...] = (
            cupy.cuda.runtime.CUDARuntimeError,
            cupy.cuda.driver.CUDADriverError,
        )
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except self._errors as error:
            raise ConfigurationError(f"cuda:{number}: {error}; a GPU with its driver is needed") from error
        if not 0 <= number < count:
            raise ConfigurationError(f"cuda:{number}: the machine has {count} GPUs; a number below that is needed")
        self.number = number
        self._device = cupy.cuda.Device(number)
        self._properties = cupy.cuda.runtime.getDeviceProperties(number)
        self._pool = cupy.cuda.MemoryPool()
        self._libraries = self._found_libraries()

    @contextmanager
    def watched(self, stream: CupyStream | None = None) -> Iterator[None]:
        """This GPU and stream are CuPy's current ones; its errors as the engine knows them."""
        try:
            with self._device:
                if stream is None:
                    yield
                    return
                with stream.stream:
                    yield
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(str(error)) from None
        except self._errors as error:
            if getattr(error, "status", None) == OUT_OF_MEMORY:
                raise DeviceMemoryError(str(error)) from None
            raise DeviceError(f"{type(error).__name__}: {error}") from error

    @property
    def name(self) -> str:
        return str(self._properties["name"].decode())

    @property
    def processors(self) -> int:
        return int(self._properties["multiProcessorCount"])

    @property
    def capability(self) -> tuple[int, int]:
        return int(self._properties["major"]), int(self._properties["minor"])

    # Memory.

    def allocate(self, size: int, stream: Stream) -> Memory:
        with self.watched(_own(stream)):
            return CupyMemory(self._pool.malloc(size))

    def pool(self) -> PoolStats:
        with self.watched():
            return PoolStats(self._pool.used_bytes(), self._pool.total_bytes(), self._pool.get_limit())

    def limit(self, size: int) -> None:
        with self.watched():
            self._pool.set_limit(size=size)

    def trim(self) -> None:
        with self.watched():
            self._pool.free_all_blocks()

    def pinned(self, size: int) -> Array:
        with self.watched():
            return np.frombuffer(self.cupy.cuda.alloc_pinned_memory(size), np.uint8, size)

    def upload(self, address: int, data: Array, stream: Stream) -> None:
        runtime = self.cupy.cuda.runtime
        with self.watched():
            runtime.memcpyAsync(address, data.ctypes.data, data.nbytes, runtime.memcpyHostToDevice, stream.pointer)

    def download(self, out: Array, address: int, stream: Stream) -> None:
        runtime = self.cupy.cuda.runtime
        with self.watched():
            runtime.memcpyAsync(out.ctypes.data, address, out.nbytes, runtime.memcpyDeviceToHost, stream.pointer)

    def fill(self, address: int, byte: int, size: int, stream: Stream) -> None:
        with self.watched():
            self.cupy.cuda.runtime.memsetAsync(address, byte, size, stream.pointer)

    def copy(self, target: int, source: int, size: int, stream: Stream) -> None:
        runtime = self.cupy.cuda.runtime
        with self.watched():
            runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, stream.pointer)

    # Kernels.

    @property
    def toolchain(self) -> tuple[str, ...]:
        return toolchain(self.cupy.cuda.nvrtc, self.capability)

    def compile(self, kernels: Sequence[KernelText]) -> bytes:
        return compiled(self.cupy.cuda.nvrtc, module_text(kernels), self.capability)

    def load(self, image: bytes, kernels: Sequence[KernelText]) -> Mapping[str, Any]:
        with self.watched():
            module = self.cupy.cuda.function.Module()
            module.load(image)
            return {name: module.get_function(name) for k in kernels for name in k.entries.values()}

    def launch(
        self, function: Any, grid: int, block: tuple[int, int], shared: int, argument: Array | int, stream: Stream
    ) -> None:
        # CuPy passes an array of one element by value; an address is a number of 64 bits.
        given = np.int64(argument) if isinstance(argument, int) else argument.view(np.dtype((np.void, argument.nbytes)))
        own = _own(stream)
        with self.watched():
            function((grid,), block, (given,), shared_mem=shared, stream=own.stream)

    # Streams and libraries.

    def stream(self) -> Stream:
        with self.watched():
            return CupyStream(self, self.cupy.cuda.Stream(non_blocking=True))

    @property
    def captures(self) -> bool:
        return True

    def begin_capture(self, stream: Stream) -> None:
        own = _own(stream)
        with self.watched():
            own.stream.begin_capture()

    def end_capture(self, stream: Stream) -> Graph:
        own = _own(stream)
        with self.watched():
            return CupyGraph(self, own.stream.end_capture())

    def _found_libraries(self) -> frozenset[LibraryName]:
        """cuBLAS comes with CUDA, or with wheels of its own, which may not be there."""
        try:
            self._errors += (self.cupy.cuda.cublas.CUBLASError,)
        except ImportError:
            return frozenset()
        return frozenset(("matmul",))

    @property
    def libraries(self) -> frozenset[LibraryName]:
        return self._libraries

    def call(self, name: LibraryName, out: Block, operands: tuple[Block, ...], stream: Stream) -> None:
        # What CuPy copies on the way comes from this pool too.
        with self.watched(_own(stream)), self.cupy.cuda.using_allocator(self._pool.malloc):
            self.cupy.matmul(*map(self._view, operands), out=self._view(out))

    def _view(self, block: Block) -> Any:
        """CuPy's array on memory that the caller keeps alive."""
        starts = [min(0, (n - 1) * s) for n, s in zip(block.shape, block.strides, strict=True)]
        stops = [max(0, (n - 1) * s) for n, s in zip(block.shape, block.strides, strict=True)]
        low, high = block.address + sum(starts), block.address + sum(stops) + block.dtype.itemsize
        memory = self.cupy.cuda.UnownedMemory(low, high - low, self, self.number)
        pointer = self.cupy.cuda.MemoryPointer(memory, block.address - low)
        return self.cupy.ndarray(block.shape, block.dtype, pointer, block.strides)


def _own(stream: Stream) -> CupyStream:
    assert isinstance(stream, CupyStream)
    return stream
