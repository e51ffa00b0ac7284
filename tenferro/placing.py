"""``tn.on``: operations on an engine of one's choice, traced ones and those of ``tn.Array``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tenferro.naming import engine_name
from tenferro.tracer import switches
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import Trace, current_trace

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine

PLACE: ContextVar[Engine | None] = ContextVar("tenferro_place", default=None)
"""The engine that operations of ``tn.Array`` run on now, outside traces; None: where their arrays are."""

_NOTHING: AbstractContextManager[None] = nullcontext()


def on(engine: Engine | str) -> AbstractContextManager[None]:
    """``with tn.on("cpu:1"):`` operations inside run on that engine; the values they need are brought there.

    Inside a traced function these are the operations traced; elsewhere those of ``tn.Array`` and of ``tenferro.numpy``
    and ``.lax``, whose results lie there. Views stay where their memory is, and what is written (``x += y``, ``out=``)
    where the target is; jitted functions run where ``jit(engine=…)`` or their arguments say. Results do not depend on
    it. TraceError inside ``shard_map``, whose mesh says it; UnknownEngineError for an engine that is not registered."""
    _refuse_mesh(current_trace())
    from tenferro.runtime import default_runtime

    name = engine_name("on", engine)
    return _On(default_runtime().engine(name, "on"))  # which refuses a name that is none


def _refuse_mesh(trace: Trace | None) -> None:
    if trace is not None and trace.spread is not None:
        raise TraceError(f"on: inside shard_map, whose mesh says where operations run{at(user_line())}")


class _On(AbstractContextManager[None]):
    """What ``on`` gives; it may be entered again, and inside itself."""

    __slots__ = ("_engine", "_entered")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._entered: list[ExitStack] = []

    def __enter__(self) -> None:
        trace = current_trace()
        _refuse_mesh(trace)
        entered = ExitStack()
        entered.enter_context(_placed(self._engine) if trace is None else _traced(trace, self._engine.id))
        self._entered.append(entered)

    def __exit__(self, *error: object) -> None:
        self._entered.pop().close()


@contextmanager
def _traced(trace: Trace, name: str) -> Iterator[None]:
    before, trace.place = trace.place, name
    try:
        yield
    finally:
        trace.place = before


@contextmanager
def _placed(engine: Engine | None) -> Iterator[None]:
    token = PLACE.set(engine)
    try:
        with switches.paused():  # native calls of operators would stay where their arrays are
            yield
    finally:
        PLACE.reset(token)


def at_home() -> AbstractContextManager[None]:
    """Operations run where their arrays are, whatever ``on`` says: what is written stays where it is."""
    return _placed(None) if PLACE.get() is not None else _NOTHING
