"""Replays: a segment of a plan whose addresses come back is captured as a CUDA graph and launched as one thing.

A plan is cut at its *seams*, actions that no graph can hold; what lies between two of them is a segment. A graph holds
addresses. It is kept under its *signature*, the addresses of the bases that its segment uses in the run that it was
captured in, and replayed for a run of just these; no other run can reach it, so that none is stale. Memory comes back
at the same addresses in a loop, since the pool hands out what was let go of. What cannot be captured is declined once,
with the reason.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field

from tenferro.engines.cuda.actions import Action, Call, Launch, Product, bases
from tenferro.engines.cuda.device import Device, DeviceError, Graph, Stream
from tenferro.tracer.records import dataclass

WORTH_IT = 3
"""Launches from which on a replay takes less time than they do one by one."""
MOST = 8
"""Graphs kept for a segment; the least recently used one goes."""
SEEN = 64
Signature = tuple[int, ...]


@dataclass
class Replays:
    """Of one segment. ``declined``: why it is never captured; empty where it may be."""

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
        """The graph; None where recording failed: the segment is quarantined, and the run goes on without."""
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

    def __str__(self) -> str:
        return self.declined or f"{self.captured} captured, {self.replayed} replays"


@dataclass(frozen=True)
class Segment:
    """Actions between two seams, or that of a seam. ``bases``: those whose addresses make the signature."""

    actions: tuple[Action, ...]
    bases: tuple[int, ...]
    replays: Replays

    @property
    def is_call(self) -> bool:
        """Whether code that is not the engine's runs here."""
        return isinstance(self.actions[0], Call)


def segments(device: Device, actions: Sequence[Action]) -> tuple[Segment, ...]:
    """The actions cut at the seams."""
    groups: list[tuple[list[Action], str]] = []
    for action in actions:
        why = seam(action)
        if why or not groups or groups[-1][1]:
            groups.append(([action], why))
        else:
            groups[-1][0].append(action)
    return tuple(_segment(device, group, why) for group, why in groups)


def _segment(device: Device, actions: Sequence[Action], why: str) -> Segment:
    launches = sum(isinstance(a, Launch) for a in actions)
    if not why and launches < WORTH_IT:
        why = f"too few launches for a graph: {launches}"
    if not device.captures:
        why = "the device captures no graphs"
    used = set[int]().union(*map(bases, actions))
    return Segment(tuple(actions), tuple(sorted(used)), Replays(why))


def seam(action: Action) -> str:
    """Why no graph can hold this action; "" where one can."""
    match action:
        case Call(instruction=instruction):
            return f"{instruction.op.name}: an extension's executor is called at each run"
        case Product():
            return "matmul: a library call is not recorded"
        case Launch(table=(_, _)):
            return "a kernel's words are copied from the host at each run"
        case _:
            return ""


def told(plan: Sequence[Segment]) -> str:
    """For each segment its graphs, or why there are none; the same text once."""
    found = Counter(str(s.replays) for s in plan)
    return "; ".join(f"{text} ({n} segments)" if n > 1 else text for text, n in found.items()) or "nothing is launched"
