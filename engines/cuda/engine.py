"""The CUDA engine: plans in, executables out that run fused kernels on a GPU.

A run looks up the plan bound to its inputs' layouts (``binding``), allocates the arena and the outputs, and submits the
actions to the engine's stream. It waits only where a kernel may have found something to report (an index out of range,
a divisor 0): then the latch is read. Everything else waits when elements are brought to the host.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import numpy as np

from tenferro.engines.cpu.layout import Strided
from tenferro.engines.cuda.arrays import DeviceArray
from tenferro.engines.cuda.binding import Action, Binder, BoundPlan, Call, Fill, Launch, Product, Ref
from tenferro.engines.cuda.device import Block, Device, DeviceError, DeviceMemoryError, Memory
from tenferro.engines.cuda.kernels import KernelTable
from tenferro.engines.cuda.launch import Device as Shape
from tenferro.engines.cuda.packing import pack
from tenferro.engines.cuda.prelude import module_text
from tenferro.engines.engine import CAPABILITIES, NO_EXECUTORS, Engine, Executable, Executor, RunResult, executed
from tenferro.engines.errors import EngineFailure
from tenferro.engines.events import Driver, WorkerDriver
from tenferro.engines.reference import ReferenceExecutable, evaluated
from tenferro.engines.values import input_sizes, scalar_array
from tenferro.lowering.exec_program import Slot, Source
from tenferro.lowering.plan import Plan
from tenferro.tracer.errors import LoweringError, MemoryLimitError
from tenferro.tracer.program import ArrayType, DimScalar, Literal

Array = np.ndarray[Any, Any]
BOUND_PLANS = 256
"""Layouts kept per program; the least recently used one goes."""
CLEAN = (1 << 64) - 1
WARNING = 1 << 62


class CudaEngine(Engine):
    """A GPU. ``device``: what stands for it; by default GPU ``number`` through CuPy, which must be installed.
    ``memory_limit``: bytes of its memory that this engine may hold, 0 for all. ``shape`` overrides what schedules are
    chosen by (for tests)."""

    hardware = "cuda"
    storage_classes = ("device",)

    def __init__(
        self, number: int = 0, device: Device | None = None, memory_limit: int = 0, shape: Shape | None = None
    ) -> None:
        if device is None:
            from tenferro.engines.cuda.cupy_device import CupyDevice

            device = CupyDevice(number)
        self.id = f"cuda:{number}"
        self.device = device
        self.shape = shape
        self.capabilities = CAPABILITIES - {"library"} - ({"dot_general"} - _products(device))
        self.stream = device.stream()
        self.running = threading.RLock()
        self._driver = WorkerDriver(f"tenferro-{self.id}")
        device.limit(memory_limit)

    def compile(self, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> Executable:
        return CudaExecutable(self, plan, executors)

    def driver(self) -> Driver:
        return self._driver

    def accepts(self, kind: ArrayType) -> bool:
        return False  # a caller's array lies on the host

    def holds(self, value: Any) -> bool:
        return isinstance(value, DeviceArray) and value.engine is self

    @property
    def runs_on_caller(self) -> bool:
        return True  # what is launched runs beside the caller anyhow

    @property
    def carries(self) -> bool:
        return True

    def limit_memory(self, size: int) -> None:
        self.device.limit(size)

    def receive(self, value: Any) -> Any:
        """A host array on the device. MemoryLimitError; EngineFailure."""
        host = np.array(value, copy=None, order="C")
        with self.watched("receive"):
            memory = self.device.allocate(host.nbytes, self.stream)
            if host.nbytes:
                self.device.upload(memory.address, host, self.stream)
        return DeviceArray(self, memory, 0, host.shape, host.strides, host.dtype)

    def fetch(self, value: Any) -> Array:
        """A device array on the host, when all before it is done. EngineFailure where some of that failed."""
        host = np.empty(value.shape, value.dtype)
        with self.watched("fetch"):
            found = value if value.is_contiguous else pack(self, value)
            if host.nbytes:
                self.device.download(host, found.address, self.stream)
        return host

    def synchronize(self) -> None:
        """Wait until everything that was submitted is done. EngineFailure where some of it failed."""
        with self.watched("synchronize"):
            self.stream.synchronize()

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """One submission at a time; the device's errors as the runtime knows them."""
        with self.running:
            try:
                yield
            except DeviceMemoryError as error:
                pool = self.device.pool()
                limit = f"{pool.limit:,} are allowed" if pool.limit else "the device has no more"
                raise MemoryLimitError(
                    f"{what}: {error}; {pool.used:,} bytes are in live arrays on {self.id}, where {limit}"
                ) from None
            except DeviceError as error:
                raise EngineFailure(f"{what}: {error}", self.id) from error


def _products(device: Device) -> set[str]:
    return {"dot_general"} if "matmul" in device.libraries else set()


@dataclass(slots=True)
class _Run:
    """The memory of one run: the addresses of its bases, and what keeps each alive."""

    bases: list[int]
    holders: list[Any]

    def at(self, ref: Ref) -> int:
        return self.bases[ref.base] + ref.strided.offset

    def block(self, ref: Ref) -> Block:
        return Block(self.at(ref), ref.strided.shape, ref.strided.strides, ref.dtype)


class CudaExecutable(Executable):
    """A plan with its kernels, and the bindings to the layouts seen so far."""

    def __init__(self, engine: CudaEngine, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> None:
        self.engine = engine
        self.plan = plan
        self.executors = executors
        self.table = KernelTable(engine.device, engine.shape)
        self._bound: OrderedDict[Any, BoundPlan] = OrderedDict()

    def run(self, inputs: Sequence[Any]) -> RunResult:
        with self.engine.watched(self.plan.program.name):
            bound = self._find(inputs)
            run = self._begin(bound, inputs)
            eager = partial(self._submit, bound, run, inputs)
            bound.replays.submit(self.engine.device, self.engine.stream, tuple(run.bases), eager)
            outputs = [self._output(o, run, inputs) for o in bound.outputs]
            found = self._latch(bound, run)
        if found != CLEAN:
            self._report(found, inputs)
        return RunResult(outputs)

    # Binding.

    def _find(self, inputs: Sequence[Any]) -> BoundPlan:
        key = tuple([x if type(x) is int else (x.shape, x.strides, x.alignment) for x in inputs])
        found = self._bound.get(key)
        if found is None:
            layouts = [_NOWHERE if isinstance(x, int) else (x.strided, x.alignment) for x in inputs]
            binder = Binder(self.plan, self.table, input_sizes(inputs), layouts, self.executors)
            found = self._bound[key] = binder.bind()
            while len(self._bound) > BOUND_PLANS:
                self._bound.popitem(last=False)
        return found

    # Running.

    def _begin(self, bound: BoundPlan, inputs: Sequence[Any]) -> _Run:
        device, stream = self.engine.device, self.engine.stream
        made: list[Memory | None] = [
            device.allocate(size, stream) if size >= 0 else None for size in (bound.arena, *bound.owned)
        ]
        addresses = [0 if isinstance(x, int) else x.address for x in inputs]
        return _Run([*addresses, *(m.address if m else 0 for m in made)], [*inputs, *made])

    def _submit(self, bound: BoundPlan, run: _Run, inputs: Sequence[Any]) -> None:
        for action in bound.actions:
            self._act(action, bound, run, inputs)

    def _act(self, action: Action, bound: BoundPlan, run: _Run, inputs: Sequence[Any]) -> None:
        device, stream = self.engine.device, self.engine.stream
        match action:
            case Launch():
                self._launch(action, bound, run)
            case Fill(base=base, offset=offset, byte=byte, size=size):
                device.fill(run.bases[base] + offset, byte, size, stream)
            case Product(out=out, operands=operands):
                device.call("matmul", run.block(out), tuple(run.block(o) for o in operands), stream)
            case Call():
                self._call(action, run, inputs)
            case _:
                assert_never(action)

    def _launch(self, launch: Launch, bound: BoundPlan, run: _Run) -> None:
        device, stream = self.engine.device, self.engine.stream
        words = launch.words.copy()
        for word, base, offset in launch.pointers:
            words[word] = run.bases[base] + offset
        argument: Array | int = words
        if launch.table is not None:
            base, offset = launch.table
            argument = run.bases[base] + offset
            device.upload(argument, words, stream)
        function = bound.kernels[launch.kernel].functions[launch.entry]
        device.launch(function, launch.grid, launch.block, launch.shared, argument, stream)

    def _call(self, call: Call, run: _Run, inputs: Sequence[Any]) -> None:
        sizes = input_sizes(inputs)
        operands = [self._value(o, run, inputs) for o in call.operands]
        params = {k: evaluated(v, sizes) for k, v in call.instruction.params.items()}
        results = executed(call.instruction, operands, params, self.executors, sizes)
        for base, result in zip(call.made, results, strict=True):
            mine = result if self.engine.holds(result) else self.engine.receive(np.asarray(result))
            mine = mine if mine.is_contiguous else pack(self.engine, mine)
            run.bases[base], run.holders[base] = mine.address, mine

    def _output(self, source: Ref | Source, run: _Run, inputs: Sequence[Any]) -> Any:
        value = self._value(source, run, inputs)
        return value if isinstance(value, DeviceArray) else self.engine.receive(value)

    def _value(self, source: Ref | Source, run: _Run, inputs: Sequence[Any]) -> Any:
        """A device array on the run's memory; a rank-0 array on the host for a literal or a size."""
        match source:
            case Ref(base=base, strided=at, dtype=dtype):
                holder = run.holders[base]
                if isinstance(holder, int):
                    return np.asarray(holder, dtype)
                memory = holder.memory if isinstance(holder, DeviceArray) else holder
                offset = run.bases[base] - memory.address + at.offset
                return DeviceArray(self.engine, memory, offset, at.shape, at.strides, dtype)
            case Literal() | DimScalar():
                return scalar_array(source, input_sizes(inputs))
            case Slot():
                raise AssertionError("slots have places")
            case _:
                assert_never(source)

    def _latch(self, bound: BoundPlan, run: _Run) -> int:
        """What the kernels have found, when they are done; ``CLEAN`` without waiting where they look for nothing."""
        if not bound.latch:
            return CLEAN
        word = np.zeros(1, np.uint64)
        self.engine.device.download(word, run.bases[len(self.plan.program.inputs)], self.engine.stream)
        return int(word[0])

    def _report(self, latch: int, inputs: Sequence[Any]) -> None:
        """Say what a kernel found. The reference engine runs the same program on the same inputs: it raises or warns
        with the op, the argument, the value and the user's line."""
        is_warning = bool(latch & WARNING)
        if is_warning and np.geterr()["divide"] == "ignore":
            return
        ReferenceExecutable(self.plan.program).run([x if isinstance(x, int) else self.engine.fetch(x) for x in inputs])
        if not is_warning:
            raise LoweringError(f"a kernel recorded {latch:#x}, which the reference engine does not find")

    # Looking inside.

    def graphs(self) -> list[str]:
        """For each layout seen: the graphs captured and replayed, or why there are none."""
        told = [b.replays for b in list(self._bound.values())]
        return [r.declined or f"{r.captured} captured, {r.replayed} replays" for r in told]

    def kernel_texts(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for name, text in self.table.named():
            while name in found:
                name += "'"
            found[name] = {"cuda": module_text([text])}
        return found

    @property
    def kernels(self) -> int:
        return len(self.table.named())

    @property
    def kernel_bytes(self) -> int:
        return 0  # the driver does not tell

    @property
    def compile_seconds(self) -> float:
        return self.table.seconds


_NOWHERE = (Strided(0, (), ()), 1)
"""The layout of an int among the inputs: sizes alone read it."""
