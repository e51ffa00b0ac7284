"""``tn.on``: operations of a traced function on an engine of one's choice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tenferro.naming import engine_name
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import Trace, current_trace

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine


def on(engine: Engine | str) -> AbstractContextManager[None]:
    """``with tn.on("cpu:1"):`` operations traced inside run on that engine; the values they need are brought there.

    Results do not depend on it. Outside a traced function TraceError: ``jit(engine=…)`` and ``x.to(engine)`` say there
    where things run; so it is inside ``shard_map``, whose mesh says it. UnknownEngineError for an engine that is not
    registered."""
    _trace()
    from tenferro.runtime import default_runtime

    name = engine_name("on", engine)
    default_runtime().engine(name, "on")  # refuses a name that is none
    return _On(name)


def _trace() -> Trace:
    """The trace whose operations may be placed."""
    trace = current_trace()
    if trace is None:
        raise TraceError(
            f"on: no function is being traced here; jit(engine=...) or x.to(engine) are needed{at(user_line())}"
        )
    if trace.spread is not None:
        raise TraceError(f"on: inside shard_map, whose mesh says where operations run{at(user_line())}")
    return trace


class _On(AbstractContextManager[None]):
    """What ``on`` gives; it may be entered again, and inside itself."""

    __slots__ = ("_before", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._before: list[tuple[Trace, str]] = []

    def __enter__(self) -> None:
        trace = _trace()
        self._before.append((trace, trace.place))
        trace.place = self._name

    def __exit__(self, *error: object) -> None:
        trace, place = self._before.pop()
        trace.place = place
