"""Compiled kernels: a Region and a Variant go in, addresses of entries come out.

A kernel is compiled at level 0 when first needed and again at level 2 when it has run for long enough to pay for that.
Texts that are equal share one library in the process; equal texts of other processes come from
the disk cache.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, assert_never

from tenferro.engines import recording
from tenferro.engines.cpu.columns import ColumnKernel
from tenferro.engines.cpu.layout import Variant
from tenferro.engines.cpu.product import Entry
from tenferro.engines.cpu.records import RecordKernel
from tenferro.engines.cpu.rows import RowKernel
from tenferro.engines.cpu.toolchain import Library, Target, compile_text, host_target
from tenferro.engines.cpu.uninterrupted import thread_seconds
from tenferro.engines.cpu.vector_builder import ModuleText
from tenferro.engines.cpu.writer import KernelWriter, is_small
from tenferro.lowering.bodies import lowered
from tenferro.lowering.plan import Plan
from tenferro.lowering.region import Apply, Gather, Iota, Load, Reduce, Region, Store, Uniform, Valid
from tenferro.tracer.bodies import Body
from tenferro.tracer.forking import Renewed
from tenferro.tracer.op import Pointwise
from tenferro.tracer.program import Literal
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.loop_kernel import LoopKernel

FAST, GOOD = 0, 2
"""Code generation levels: quick to compile, quick to run."""
TIER_FACTOR = 5
"""Compile times of run time after which a kernel is compiled again for speed. Level 2 takes two to four times as long
to compile and level 0 up to three times as long to run: waiting longer costs a script more than it saves."""
SHORT_KERNELS = 8
"""Lengths of a short row for which a region gets a kernel of its own, in the order in which they are met; others share
the general one."""

_libraries: weakref.WeakValueDictionary[tuple[str, int, Target], Library] = weakref.WeakValueDictionary()
_expansions: dict[str, Library] = {}
_held = Renewed()
_writing = Renewed(threading.RLock)
_making: dict[Hashable, Renewed] = {}


@contextmanager
def _alone(key: Hashable) -> Iterator[None]:
    """One thread at a time makes what the key names; the next one finds it."""
    with _held.lock:
        own = _making.setdefault(key, Renewed())
    with own.lock:
        try:
            yield
        finally:
            _making.pop(key, None)


def shared_library(text: str, level: int, target: Target, symbols: Mapping[str, int] | None = None) -> Library:
    """One library per text, level and target in the process."""
    key = (text, level, target)
    with _held.lock:
        found = _libraries.get(key)
    if found is None:
        with _alone(key):
            found = _libraries.get(key)
            if found is None:
                found = compile_text(text, level, target, symbols=dict(symbols or {}))
                with _held.lock:
                    _libraries[key] = found
    return found


def expansion_address(symbol: str, text: str, target: Target) -> int:
    """Where the expansion ``symbol`` stands. Expansions are compiled once, at level 2, and stay for the process's life:
    a kernel that calls them compiles in the time of its own loop."""
    with _held.lock:
        found = _expansions.get(symbol)
    if found is None:
        with _alone(symbol):
            found = _expansions.get(symbol)
            if found is None:
                found = _expansions[symbol] = compile_text(text, GOOD, target)
    return found.address(symbol)


WRITERS: Mapping[str, type[KernelWriter]] = {"column": ColumnKernel, "record": RecordKernel}
"""By schedule; others are rows'."""


@dataclass(eq=False)
class Kernel:
    """One region under one variant. At level 0 elementary functions are calls of shared code, which compiles fastest;
    at level 2 a small region has them in place, which runs fastest. The bits are those of one expansion. ``program``:
    the one that it was made for."""

    region: Region
    variant: Variant
    axis_loops: Mapping[int, int]
    target: Target
    program: str
    writers: dict[int, KernelWriter] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    libraries: dict[int, Library] = field(default_factory=dict)
    compile_seconds: float = 0.0

    @property
    def writer(self) -> KernelWriter:
        """For what does not depend on the level: parameters and passes."""
        return self._writer(FAST)

    def _writer(self, level: int) -> KernelWriter:
        found = self.writers.get(level)
        if found is None:
            with _writing.lock:  # one alone: it knows what its text calls
                found = self.writers.get(level)
                if found is None:
                    found = self.writers[level] = self._new_writer(level)
        return found

    def _new_writer(self, level: int) -> KernelWriter:
        kind = WRITERS.get(self.variant.schedule, RowKernel)
        outline = level == FAST or not is_small(self.region, max(1, self.variant.short))
        share = f"{self.target.cpu} {self.target.features}"
        module = ModuleText(share, permutes=self.target.permutes, loads_constants=level == FAST)
        return kind(self.region, self.variant, self.axis_loops, outline, module, level == FAST)

    def text(self, level: int) -> str:
        with _writing.lock:
            found = self.texts.get(level)
            if found is None:
                try:
                    found = self.texts[level] = self._writer(level).text()
                except BaseException:  # as Ctrl-C: a writer that has begun may not begin again
                    self.writers.pop(level, None)
                    raise
            return found

    def prepare(self, level: int) -> None:
        self.text(level)

    def library(self, level: int) -> Library:
        found = self.libraries.get(level)
        if found is None:
            start, began = recording.now(), thread_seconds()
            with _writing.lock:  # of two threads the second finds the text, and what it calls, complete
                text, shared = self.text(level), dict(self._writer(level).module.shared)
            symbols = {name: expansion_address(name, body, self.target) for name, body in shared.items()}
            is_known = (text, level, self.target) in _libraries
            found = self.libraries[level] = shared_library(text, level, self.target, symbols)
            # The processor's time: what else a machine does meanwhile must not put off level 2.
            self.compile_seconds += thread_seconds() - began
            source: recording.Source = "same text" if is_known else found.source
            recording.compiled(start, self.program, self.region.name, level, source)
        return found

    def is_ready(self, level: int) -> bool:
        return level in self.libraries

    def ready(self) -> Sequence[Library]:
        return list(self.libraries.values())

    @property
    def size(self) -> int:
        return len(self.region.nodes) * (1 + len(self.region.row_axes))

    @property
    def code_bytes(self) -> int:
        return max((x.code_bytes for x in self.libraries.values()), default=0)


def likeness(region: Region) -> tuple[Hashable, ...]:
    """What the text of a region's kernel depends on. Slots, index maps and sizes are parameters, so that the steps of
    an unrolled loop share one kernel; the operation's number is text where it may be reported."""
    nodes: list[Hashable] = []
    for node in region.nodes:
        match node:
            case Load(windows=windows, dtype=dtype, outer=outer):
                nodes.append(("load", tuple((w.axis, w.step) for w in windows), dtype, outer))
            case Valid(windows=windows):
                nodes.append(("valid", tuple((w.axis, w.step) for w in windows)))
            case Gather(axis=axis, index=index, index_rank=rank, dtype=dtype, operation=operation):
                nodes.append(("gather", axis, index, rank, dtype, operation))
            case Iota(axis=axis, outer=outer):
                nodes.append(("iota", axis, outer))
            case Uniform(operand=operand):
                nodes.append(("uniform", operand if isinstance(operand, Literal) else operand.dtype))
            case Apply(op=op, params=params, args=args, dtype=dtype, mask=mask, operation=operation):
                is_checked = isinstance(op.form, Pointwise) and op.form.check is not None
                nodes.append((op, params, args, dtype, mask, operation if is_checked else -1))
            case Reduce(kind=kind, arg=arg, dtype=dtype):
                nodes.append(("reduce", kind, arg, dtype))
            case _:
                assert_never(node)
    stores = [("store", s.node, bool(s.views), _read_there(region, s)) for s in region.stores]
    return (len(region.space), region.row_axes, *nodes, *stores)


def _read_there(region: Region, store: Store) -> tuple[int, ...]:
    """The loads of what lies where the store writes: they decide what a row may keep there between its passes."""
    if store.over is None or not region.row_axes:
        return ()
    return tuple([k for k, n in enumerate(region.nodes) if isinstance(n, Load) and n.access.slot == store.over])


class KernelTable:
    """The kernels of one executable and of its bodies, by what their texts depend on. Thread-safe."""

    def __init__(self, target: Target | None = None, program: str = "") -> None:
        self._target = target
        self._program = program
        self._kernels: dict[tuple[Hashable, Variant, tuple[tuple[int, int], ...]], Kernel] = {}
        self._likenesses: dict[int, tuple[Region, Hashable]] = {}
        self.products: dict[Entry, None] = {}  # kernels of matrix products, in order
        self.plans: dict[Body, Plan] = {}
        self.loops: dict[Hashable, LoopKernel | None] = {}
        self._held = Renewed(threading.RLock)

    @property
    def target(self) -> Target:
        return self._target or host_target()

    def kernel(self, region: Region, variant: Variant, axis_loops: Mapping[int, int]) -> Kernel:
        with self._held.lock:
            key = (self._likeness(region), variant, tuple(sorted(axis_loops.items())))
            found = self._kernels.get(key)
            if found is None:
                found = self._kernels[key] = Kernel(region, variant, axis_loops, self.target, self._program)
            return found

    def short_kernel(self, region: Region, variant: Variant, axis_loops: Mapping[int, int]) -> Kernel | None:
        """The kernel for this length of row, unless the region has as many of them as it may."""
        with self._held.lock:
            general, key = replace(variant, short=0), (self._likeness(region), tuple(sorted(axis_loops.items())))
            known = {v.short for r, v, a in self._kernels if (r, a) == key and replace(v, short=0) == general}
            if len(known - {variant.short, 0}) >= SHORT_KERNELS:
                return None
            return self.kernel(region, variant, axis_loops)

    def _likeness(self, region: Region) -> Hashable:
        """Computed once per region; the region is kept, so that its id stays its own."""
        known = self._likenesses.get(id(region))
        if known is None:
            known = self._likenesses[id(region)] = (region, likeness(region))
        return known[1]

    def loop(self, kind: str, params: Mapping[str, Any]) -> LoopKernel | None:
        """The kernel of a loop whose bodies are elementwise; None for others."""
        from tenferro.engines.cpu.loop_kernel import loop_kernel

        names = ("body", "condition", "carry", "walked", "lanes")
        key = (kind, *(params.get(name) for name in names))
        with self._held.lock:
            if key not in self.loops:
                self.loops[key] = loop_kernel(kind, params, self.target, self._program)
            return self.loops[key]

    def body_plan(self, body: Body) -> Plan:
        """The plan of a body, whose kernels stand in this table too."""
        with self._held.lock:
            if body not in self.plans:
                self.plans[body] = lowered(body)
            return self.plans[body]

    def kernels(self) -> list[Kernel]:
        with self._held.lock:
            return list(self._kernels.values())

    def fused_loops(self) -> list[LoopKernel]:
        """The loops that are kernels of their own."""
        with self._held.lock:
            return [k for k in self.loops.values() if k is not None and k.libraries]

    def compiled(self) -> list[Kernel | LoopKernel]:
        """All of them."""
        return [*self.kernels(), *self.fused_loops()]

    def named(self) -> list[tuple[str, Kernel]]:
        """Kernels under the name of the first region that they served."""
        return [(k.region.name, k) for k in self.kernels()]
