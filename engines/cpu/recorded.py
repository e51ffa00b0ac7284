"""Runs of the CPU engine while a profile is on: a block or an action in, the same effect and an event of each out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenferro.engines import recording
from tenferro.engines.cpu import native
from tenferro.engines.cpu.binding import Action, Call, Select
from tenferro.engines.cpu.native import Block
from tenferro.engines.cpu.native_entry import RECORD_WORDS
from tenferro.engines.recording import Launch, MemorySample
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class Recorded:
    """Who runs: for events."""

    engine: str
    program: str

    def enter(self, block: Block, address: int, threads: int, arrays: Sequence[Any]) -> Any:
        """``native.enter``, with a launch event for each launch that ran."""
        origins = block.origins
        times = np.zeros((len(origins), RECORD_WORDS), np.int64)
        here, thread, program = recording.callers_line(), recording.thread(), recording.running(self.program)
        line = () if here is None else (here,)
        try:
            return native.module().enter_recorded(address, threads, times.ctypes.data, *arrays)
        finally:
            for origin, (start, end, live) in zip(origins, times.tolist(), strict=True):
                if origin is None or not end:  # an interrupt may have come before it
                    continue
                lines, traffic = origin.lines or line, origin.traffic
                recording.emit(Launch(
                    start, end, thread, program, self.engine, origin.name, origin.entry, origin.part, lines,
                    traffic.read, traffic.written, threads,
                ))  # fmt: skip
                recording.sample(MemorySample(start, live))

    @contextmanager
    def seam(self, action: Action, arrays: list[Any]) -> Iterator[None]:
        """Around an action in Python: a call. Views take no time worth an event."""
        match action:
            case Call(instruction=instruction, sources=sources, outputs=outputs):
                read = [arrays[s] for s in sources if isinstance(s, int)]
                name, line = str(instruction.params.get("function", instruction.op.name)), instruction.line
            case Select(instruction=instruction, source=source, mask=mask, output=output):
                read, outputs = [arrays[source], arrays[mask]], (output,)
                name, line = instruction.op.name, instruction.line
            case _:
                yield
                return
        start = recording.now()
        recording.sample()
        try:
            yield
        finally:
            recording.called(start, self.program, self.engine, name, line, read, [arrays[p] for p in outputs])
            recording.sample()
