"""First calls of a process by what another one has left on disk: a call in, its result out, without a program.

A trace that holds for a call tells what the function would do; where another process has run it on arrays of the same
layouts, the block that it ran is on disk too, and all that is needed is to load its kernels. Nothing is traced, lowered
or written as LLVM text, and the modules that would do it are not even imported, which is what takes most of the time
until a first result.

That serves a process's first calls, as long as running them takes less time than making the program ready would. Then,
and for everything else (other layouts, errors that a kernel found, looks inside), calls go the usual way.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tenferro import trace_cache
from tenferro.engines.disk_cache import RUNS, configured, entry_key
from tenferro.engines.recording import recorders
from tenferro.tracer import tree
from tenferro.tracer.capture_guards import Captures
from tenferro.tracer.config import config
from tenferro.tracer.dims import evaluate
from tenferro.tracer.program import ShapeGuard
from tenferro.tracer.records import dataclass
from tenferro.tracer.signature import BoundCall
from tenferro.tracer.stored import Reader, Writer
from tenferro.tracer.stored_result import assumed_here, holds_for

if TYPE_CHECKING:
    from tenferro.compiled import Compiled, Result
    from tenferro.engines.cpu.ready import ReadyBlock
    from tenferro.tracer.dims import Leaf

CALLS, SECONDS = 256, 0.05
"""How many calls are served so, and how long they may take in all: about as long as lowering would."""
MAX_WORDS = 1 << 16
ENGINE = "cpu:0"


@dataclass(slots=True)
class _Run:
    """A block for inputs of one layout, and the function's pytree around its outputs."""

    block: ReadyBlock
    structure: tree.TreeDef
    leaves: list[tuple[str, Any]]  # "array", "scalar" or "number" and which output, or "static" and the value

    def result(self, inputs: Sequence[Any]) -> tuple[Any] | None:
        outputs = self.block.run(inputs)
        if outputs is None:
            return None
        return (tree.unflatten(self.structure, [self._leaf(outputs, *leaf) for leaf in self.leaves]),)

    def _leaf(self, outputs: Sequence[Any], kind: str, x: Any) -> Any:
        match kind:
            case "array":
                return outputs[x]
            case "scalar":
                return outputs[x][()]
            case "number":
                return outputs[x].item()
        return x


@dataclass(slots=True)
class _Trace:
    """What must hold for a trace to serve, and its blocks by the layouts that they are bound to."""

    key: Hashable
    identity: str
    captures: Captures
    guards: list[ShapeGuard]
    load_ms: float
    operations: int = 0
    calls: int = 0
    runs: dict[str, _Run | None] | None = None


class ReadyCalls:
    """The calls of one jitted function that are served so. ``seconds`` counts what they have taken."""

    def __init__(self, function: Any, around: Any) -> None:
        self.calls = 0
        self.seconds = 0.0
        self.traces: list[_Trace] = []
        self._function = function
        self._around = around

    engine = ENGINE

    @property
    def used(self) -> list[_Trace]:
        """Traces that have served."""
        return [t for t in self.traces if t.calls]

    def serve(self, call: BoundCall) -> tuple[Any] | None:
        """The result, in a tuple; None where there is nothing on disk for it, or time is up."""
        if self.calls >= CALLS or self.seconds >= SECONDS or recorders:
            return None
        with suppress(Exception):  # whatever is wrong with what is there, the usual way needs none of it
            for trace in self._known(call):
                inputs = _inputs(trace, call)
                run = None if inputs is None else self._run(trace, inputs)
                if run is None or inputs is None:
                    continue
                start = time.perf_counter()
                found = run.result(inputs)
                self.seconds += time.perf_counter() - start
                self.calls += found is not None
                trace.calls += found is not None
                return found
        return None

    def _known(self, call: BoundCall) -> list[_Trace]:
        """Traces of the call's key that are known here, or one from disk that fits it."""
        known = [t for t in self.traces if t.key == call.key]
        if not any(_inputs(t, call) is not None for t in known):
            known += self._from_disk(call)
        return known

    def _from_disk(self, call: BoundCall) -> list[_Trace]:
        start = time.perf_counter()
        entry = trace_cache.entry(self._function, self._around, call, (call.key, ENGINE))
        for texts in entry.texts():
            with suppress(Exception):
                found = assumed_here(texts.assumed, self._function, call)
                if found is not None:
                    took = (time.perf_counter() - start) * 1e3
                    self.traces.append(_Trace(call.key, entry.identity(texts), *found, took, runs={}))
                    return self.traces[-1:]
        return []

    def _run(self, trace: _Trace, inputs: Sequence[Any]) -> _Run | None:
        from tenferro.engines.cpu.ready import ReadyBlock, layout_text

        layout = layout_text(inputs)
        store = configured(RUNS)
        assert trace.runs is not None
        if layout is None or store is None:
            return None
        if layout not in trace.runs:
            trace.runs[layout] = None
            payload = store.load(_key(trace.identity, layout))
            if payload is not None:
                found = json.loads(payload)
                structure = Reader(found["tables"]).value(found["structure"])
                leaves = [(kind, Reader(found["tables"]).value(x)) for kind, x in found["leaves"]]
                trace.operations = int(found["operations"])
                trace.runs[layout] = _Run(ReadyBlock(found["block"]), structure, leaves)
        return trace.runs[layout]


def _inputs(trace: _Trace, call: BoundCall) -> list[Any] | None:
    """The inputs of the program, where all that it assumes holds."""
    arrays = trace.captures.read(call.receiver)
    if arrays is None:
        return None
    inputs = [*(leaf.value for leaf in call.dynamic), *arrays]
    return inputs if holds_for(trace.guards, dict(enumerate(inputs))) else None


def is_open(settings: tuple[Any, ...], call: BoundCall) -> bool:
    """Whether such calls may be served so: on the default engine, with NumPy arrays and numbers."""
    _, is_eager, engines, _ = settings
    used = config()
    made = sys.modules.get("tenferro.runtime.default")
    return (
        not is_eager
        and engines in ((), (ENGINE,))
        and not call.wrapped
        and not any(leaf.donated for leaf in call.dynamic)
        and used.cache and used.cache_traces and used.engine == "cpu" and used.cpu_engines == 1
        and not used.show and not used.check
        and (made is None or made._default.runtime is None)  # whoever has made one may have changed its engines
    )  # fmt: skip


def keep(identity: str, compiled: Compiled, inputs: Sequence[Any]) -> None:
    """Keep the block that has just run for these inputs, where it is all that there was to run."""
    with suppress(Exception):  # it only saves time
        _keep(identity, compiled, inputs)


def _keep(identity: str, compiled: Compiled, inputs: Sequence[Any]) -> None:
    from tenferro.engines.cpu.engine import CpuExecutable
    from tenferro.engines.cpu.ready import layout_text, written
    from tenferro.guards import environment

    store, unit, layout = configured(RUNS), compiled.prepared.flat, layout_text(inputs)
    if store is None or layout is None or not isinstance(unit, CpuExecutable):
        return
    leaves = compiled.leaves
    if leaves is None or compiled.engines[0].id != ENGINE or (key := _key(identity, layout)) in store:
        return
    block = written(unit, inputs)
    if block is None or len(block[0]) > MAX_WORDS:
        return
    writer = Writer()
    sizes = environment(compiled.program, inputs)
    found = {
        "structure": writer.value(compiled.treedef),
        "leaves": [_written_leaf(writer, r, sizes) for r in leaves],
        "operations": len(compiled.program.operations),
        "block": block,
        "tables": writer.tables,
    }
    store.store(key, json.dumps(found, separators=(",", ":")).encode())


def _written_leaf(writer: Writer, x: Result, sizes: Mapping[Leaf, int]) -> list[Any]:
    """Sizes are numbers for a call of these layouts."""
    if x.source == "output":
        return [x.kind, int(x.value)]
    return ["static", writer.value(evaluate(x.value, sizes) if x.source == "size" else x.value)]


def _key(identity: str, layout: str) -> str:
    """Where a block is kept: by its trace, the layouts, the machine, the settings and the sources of the engine."""
    from tenferro.engines.cpu.toolchain import host, host_target

    return entry_key(
        identity, layout, trace_cache.engine_state(), repr(host_target()), host().llvm_version, repr(config())
    )
