"""The CUDA engine: plans in, executables out that run fused kernels on a GPU.

A run looks up the plan bound to its inputs' layouts (``binding``), allocates the arena and the outputs, and submits the
actions to the engine's stream. It waits only where a kernel may have found something to report (an index out of range,
a divisor 0): then the latch is read; in a run of several engines, when the run's token is waited for (``streams``).
Everything else waits when elements are brought to the host.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import Any, assert_never

import numpy as np

from tenferro.engines.cpu.layout import Strided
from tenferro.engines.cuda.actions import Action, Call, Fill, Launch, Product, Ref
from tenferro.engines.cuda.arrays import DeviceArray
from tenferro.engines.cuda.binding import Binder, BoundPlan
from tenferro.engines.cuda.device import Block, Device, DeviceMemoryError, Memory
from tenferro.engines.cuda.graphs import told
from tenferro.engines.cuda.kernels import KernelTable
from tenferro.engines.cuda.launch import Device as Shape
from tenferro.engines.cuda.packing import pack
from tenferro.engines.cuda.prelude import module_text
from tenferro.engines.cuda.staging import Arrival, HostCopies
from tenferro.engines.cuda.streams import StreamDriver, device_failures, submission
from tenferro.engines.engine import (
    CAPABILITIES,
    NO_EXECUTORS,
    Engine,
    Executable,
    Executor,
    Replay,
    RunResult,
    executed,
)
from tenferro.engines.events import Driver
from tenferro.engines.reference import ReferenceExecutable, evaluated
from tenferro.engines.values import input_sizes, scalar_array
from tenferro.lowering.exec_program import Slot, Source
from tenferro.lowering.plan import Plan
from tenferro.tracer.errors import LoweringError, MemoryLimitError
from tenferro.tracer.op import Extension
from tenferro.tracer.program import ArrayType, DimScalar, Literal
from tenferro.tracer.records import dataclass

Array = np.ndarray[Any, Any]
BOUND_PLANS = 256
"""Layouts kept per program; the least recently used one goes."""
CLEAN = (1 << 64) - 1
WARNING = 1 << 62
WORD = 8
LISTED = 5
"""Live buffers in the text of a MemoryLimitError."""


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
        self.submitting = threading.RLock()
        self.copies = HostCopies(device, self.stream, self.submitting)
        self._driver = StreamDriver(f"tenferro-{self.id}", self.stream, self.submitting)
        self._live: weakref.WeakKeyDictionary[Memory, tuple[int, str]] = weakref.WeakKeyDictionary()
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
            memory = self.allocate(host.nbytes, "an uploaded array")
            if host.nbytes:
                self.copies.upload(memory.address, host)
        return DeviceArray(self, memory, 0, host.shape, host.strides, host.dtype)

    def fetch(self, value: Any) -> Array:
        """A device array on the host, when all before it is done. EngineFailure where some of that failed."""
        host = np.empty(value.shape, value.dtype)
        with self.told("fetch"):
            with self.submitting:
                found = value if value.is_contiguous else pack(self, value)
            if host.nbytes:
                self.copies.download(host, found.address)
        return host

    def synchronize(self) -> None:
        """Wait until everything that was submitted is done. EngineFailure where some of it failed."""
        with self.told("synchronize"):
            with self.submitting:
                event = self.stream.record()
            event.synchronize()

    def allocate(self, size: int, what: str) -> Memory:
        """A block of the pool; ``what`` it is for, in error texts. The caller is ``watched``. DeviceMemoryError."""
        memory = self.device.allocate(size, self.stream)
        if size:
            self._live[memory] = (size, what)
        return memory

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """One submission at a time; the device's errors as the runtime knows them."""
        with self.told(what), self.submitting:
            yield

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """The device's errors as the runtime knows them."""
        try:
            with device_failures(what, self.id):
                yield
        except DeviceMemoryError as error:
            pool = self.device.pool()
            limit = f"{pool.limit:,} are allowed" if pool.limit else "the device has no more"
            raise MemoryLimitError(
                f"{what}: {error}; {pool.used:,} bytes are in live arrays on {self.id}, where {limit}; largest live: "
                f"{self._largest()}"
            ) from None

    def _largest(self) -> str:
        with self.submitting:  # nobody allocates meanwhile
            live = sorted(self._live.values(), key=lambda entry: -entry[0])
        return ", ".join(f"{size:,} bytes ({what})" for size, what in live[:LISTED]) or "none"


def _products(device: Device) -> set[str]:
    return {"dot_general"} if "matmul" in device.libraries else set()


@dataclass(slots=True)
class _Run:
    """The memory of one run: the addresses of its bases, and what keeps each alive. ``effects``: what ordered
    operations gave. ``told``: what the latch had when it was looked at last."""

    bases: list[int]
    holders: list[Any]
    effects: list[tuple[Any, ...]] = field(default_factory=list)
    told: int = CLEAN

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
        self.table = KernelTable(engine.device, engine.shape, plan.program.name)
        self._calls = any(isinstance(i.op.form, Extension) for i in plan.program.instructions)
        self._bound: OrderedDict[Any, BoundPlan] = OrderedDict()

    def run(self, inputs: Sequence[Any]) -> RunResult:
        within = submission()
        engine, name = self.engine, self.plan.program.name
        if within is not None and self._calls:
            within.admit()  # what an executor does cannot be taken back
        with engine.told(name):
            with engine.submitting:
                bound = self._find(inputs)
                run = self._begin(bound, inputs)
                reached = self._advance(bound, 0, run)
            while reached < len(bound.segments):  # an executor may wait for others, who submit
                if bound.latch:  # it is not called with what an error has left
                    self._look(self._latch(run), run, inputs)
                self._call(bound.segments[reached].actions[0], run, inputs)
                with engine.submitting:
                    reached = self._advance(bound, reached + 1, run)
            with engine.submitting:
                outputs = [self._output(o, run, inputs) for o in bound.outputs]
            latch = self._latch(run) if bound.latch else None
        if latch is None:
            return RunResult(outputs)
        if within is None:
            self._look(latch, run, inputs)
        else:
            within.checks.append(partial(contextvars.copy_context().run, self._look, latch, run, inputs))
        return RunResult(outputs)

    def _advance(self, bound: BoundPlan, start: int, run: _Run) -> int:
        """Submit the segments from ``start`` up to one that calls an executor; its number, that of the end for none."""
        device, stream = self.engine.device, self.engine.stream
        for k in range(start, len(bound.segments)):
            segment = bound.segments[k]
            if segment.is_call:
                return k
            eager = partial(self._submit, segment.actions, bound, run)
            segment.replays.submit(device, stream, tuple([run.bases[b] for b in segment.bases]), eager)
        return len(bound.segments)

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
        allocate = self.engine.allocate
        made = [allocate(o.size, o.what) if o.size >= 0 else None for o in bound.owned]
        made.insert(0, allocate(bound.arena, f"temporaries of {self.plan.program.name}"))
        addresses = [0 if isinstance(x, int) else x.address for x in inputs]
        return _Run([*addresses, *(m.address if m else 0 for m in made)], [*inputs, *made])

    def _submit(self, actions: Sequence[Action], bound: BoundPlan, run: _Run) -> None:
        device, stream = self.engine.device, self.engine.stream
        for action in actions:
            match action:
                case Launch():
                    self._launch(action, bound, run)
                case Fill(base=base, offset=offset, byte=byte, size=size):
                    device.fill(run.bases[base] + offset, byte, size, stream)
                case Product(out=out, operands=operands):
                    device.call("matmul", run.block(out), tuple(run.block(o) for o in operands), stream)
                case Call():
                    raise AssertionError("calls are segments of their own")
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
            self.engine.copies.upload(argument, words)
        function = bound.kernels[launch.kernel].functions[launch.entry]
        device.launch(function, launch.grid, launch.block, launch.shared, argument, stream)

    def _call(self, call: Action, run: _Run, inputs: Sequence[Any]) -> None:
        assert isinstance(call, Call)
        sizes = input_sizes(inputs)
        operands = [self._value(o, run, inputs) for o in call.operands]
        params = {k: evaluated(v, sizes) for k, v in call.instruction.params.items()}
        results = executed(call.instruction, operands, params, self.executors, sizes)
        if call.instruction.op.is_ordered(call.instruction.params):
            run.effects.append(results)
        for base, result in zip(call.made, results, strict=True):
            mine = result if self.engine.holds(result) else self.engine.receive(np.asarray(result))
            if not mine.is_contiguous:
                with self.engine.watched(call.instruction.op.name):
                    mine = pack(self.engine, mine)
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

    def _latch(self, run: _Run) -> Arrival:
        return self.engine.copies.begin(run.bases[len(self.plan.program.inputs)], WORD)

    def _look(self, latch: Arrival, run: _Run, inputs: Sequence[Any]) -> None:
        """What the kernels have found, when they are done. The same is told once."""
        with self.engine.told(self.plan.program.name):
            (found,) = map(int, latch.wait().view(np.uint64))
        if found != run.told:
            self._report(found, run, inputs)
            run.told = found

    def _report(self, latch: int, run: _Run, inputs: Sequence[Any]) -> None:
        """Say what a kernel found. The reference engine runs the same program on the same inputs: it raises or warns
        with the op, the argument, the value and the user's line."""
        is_warning = bool(latch & WARNING)
        if is_warning and np.geterr()["divide"] == "ignore":
            return
        effects = [tuple(self._on_host(x) for x in results) for results in run.effects]
        again = ReferenceExecutable(self.plan.program, Replay({}, effects))
        again.run([self._on_host(x) for x in inputs])
        if not is_warning:
            raise LoweringError(f"a kernel recorded {latch:#x}, which the reference engine does not find")

    def _on_host(self, value: Any) -> Any:
        return self.engine.fetch(value) if self.engine.holds(value) else value

    # Looking inside.

    def graphs(self) -> list[str]:
        """For each layout seen, and each segment between seams: its graphs, or why there are none."""
        return [told(b.segments) for b in list(self._bound.values())]

    def notes(self) -> Sequence[str]:
        return [f"graphs: {text}" for text in self.graphs()]

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
