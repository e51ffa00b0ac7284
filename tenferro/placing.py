"""``tn.on``: operations of a traced function on an engine of one's choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

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
    trace = current_trace()
    if trace is None:
        raise TraceError(
            f"on: no function is being traced here; jit(engine=...) or x.to(engine) are needed{at(user_line())}"
        )
    if trace.spread is not None:
        raise TraceError(f"on: inside shard_map, whose mesh says where operations run{at(user_line())}")
    from tenferro.runtime import default_runtime

    name = engine if isinstance(engine, str) else engine.id
    default_runtime().engine(name)  # refuses a name that is none
    return _placed(trace, name)


@contextmanager
def _placed(trace: Trace, name: str) -> Iterator[None]:
    before, trace.place = trace.place, name
    try:
        yield
    finally:
        trace.place = before
