"""Replays: a bound plan whose addresses come back is captured as a CUDA graph and launched as one thing.

A graph holds addresses. It is kept under its *signature*, the addresses of all bases of the run that it was captured
in, and replayed for a run of just these; no other run can reach it, so that none is stale. Memory comes back at the
same addresses in a loop, since the pool hands out what was let go of. What cannot be captured is declined once, with
the reason.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tenferro.engines.cuda.device import Device, DeviceError, Graph, Stream

if TYPE_CHECKING:
    from tenferro.engines.cuda.binding import Action

WORTH_IT = 3
"""Launches from which on a replay takes less time than they do one by one."""
MOST = 8
"""Graphs kept for a plan; the least recently used one goes."""
SEEN = 64
Signature = tuple[int, ...]


@dataclass
class Replays:
    """Of one bound plan. ``declined``: why it is never captured; empty where it may be."""

    declined: str
    captured: int = 0
    replayed: int = 0
    _seen: OrderedDict[Signature, None] = field(default_factory=OrderedDict)
    _graphs: OrderedDict[Signature, Graph] = field(default_factory=OrderedDict)

    def submit(self, device: Device, stream: Stream, signature: Signature, eager: Callable[[], None]) -> None:
        """Do what ``eager`` submits: by a graph where one was captured, captured where the signature is seen again."""
        graph = self._graphs.get(signature)
        if graph is None and not self.declined and self._comes_back(signature):
            graph = self._captured(device, stream, signature, eager)
        if graph is None:
            eager()
            return
        self._graphs.move_to_end(signature)
        self.replayed += 1
        graph.launch(stream)

    def _comes_back(self, signature: Signature) -> bool:
        if signature in self._seen:
            return True
        self._seen[signature] = None
        if len(self._seen) > SEEN:
            self._seen.popitem(last=False)
        return False

    def _captured(
        self, device: Device, stream: Stream, signature: Signature, eager: Callable[[], None]
    ) -> Graph | None:
        """The graph; None where recording failed: the plan is quarantined, and the run goes on without."""
        device.begin_capture(stream)
        try:
            eager()
        except DeviceError as error:
            self.declined = f"recording failed: {error}"
        finally:
            try:
                graph = device.end_capture(stream)  # always: a stream left recording runs nothing
            except DeviceError as error:
                self.declined = self.declined or f"recording failed: {error}"
        if self.declined:
            return None
        self.captured += 1
        self._graphs[signature] = graph
        while len(self._graphs) > MOST:
            self._graphs.popitem(last=False)
        return graph


def reason(device: Device, actions: Sequence[Action]) -> str:
    """Why a plan of these actions is not captured; "" where it may be."""
    from tenferro.engines.cuda.binding import Call, Launch, Product

    if not device.captures:
        return "the device captures no graphs"
    launches = [a for a in actions if isinstance(a, Launch)]
    if any(isinstance(a, Call) for a in actions):
        return "an extension's executor runs in between"
    if any(isinstance(a, Product) for a in actions):
        return "a library call takes memory of its own"
    if any(a.table is not None for a in launches):
        return "a kernel's words are copied from the host at each run"
    if len(launches) < WORTH_IT:
        return f"{len(launches)} launches are no fewer than a graph's"
    return ""
