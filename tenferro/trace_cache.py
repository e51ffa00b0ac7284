"""Traced programs on disk: a function and a call in, the trace that another process made of them out.

An entry is found by the function's code and that of the functions which it holds, by what the lookup key of the call
says (structure, dtypes, ranks, static values), the engine, and by the versions and sources of all that takes part in
tracing. It holds several traces, the latest first: those of other sizes, other captured numbers. One serves where every
assumption holds that a program in memory would be asked for, and where the source files are those that were traced.

Whatever cannot be read counts as absent. What is not certain to mean the same in another process is not kept; the
reason is told by ``explain()``.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.disk_cache import TRACES, DiskCache, configured, entry_key
from tenferro.engines.sources import state_of
from tenferro.tracer.capture_guards import Captures
from tenferro.tracer.config import config
from tenferro.tracer.digests import callable_key, maker_key
from tenferro.tracer.records import dataclass
from tenferro.tracer.result import TraceResult
from tenferro.tracer.signature import BoundCall
from tenferro.tracer.stored import NotStored, Writer
from tenferro.tracer.stored_result import Texts, assumed_here, is_current, result_of, written

if TYPE_CHECKING:
    from tenferro.tracer.stored_result import Outside

MAX_TRACES = 16
"""Of one entry; the oldest go."""
MAX_BYTES = 4 << 20
"""Of one entry."""
_LENGTH = 8  # bytes that say how long a text is


@dataclass(frozen=True, slots=True)
class Loaded:
    """A trace from disk, and what it reads from outside in this process."""

    result: TraceResult
    captures: Captures
    identity: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The name of a trace that is on disk now, or the reason why it is not; both are empty where the cache is off."""

    identity: str
    unkept: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Where the traces of one function for calls of one key are kept; ``key`` None where they are not, with the
    ``reason``, which is empty where the cache is off."""

    function: Callable[..., Any]
    key: str | None
    reason: str = ""

    def texts(self) -> Sequence[Texts]:
        """The traces that are there."""
        store = trace_cache() if self.key is not None else None
        return () if store is None or self.key is None else _split(store.load(self.key))

    def identity(self, texts: Texts) -> str:
        """The name of one of them."""
        return f"{self.key} {sha256(texts.assumed).hexdigest()}"

    def load(self, call: BoundCall) -> Loaded | None:
        """The first trace whose assumptions hold now."""
        from tenferro.lowering.checker import check

        for texts in self.texts():
            with suppress(Exception):  # damaged, or something stands no longer where it stood
                found = assumed_here(texts.assumed, self.function, call)
                if found is None:
                    continue
                captures, guards = found
                result = result_of(texts.program, guards, captures.read(call.receiver) or ())
                check(result.program, after="reading it from disk")
                return Loaded(result, captures, self.identity(texts))
        return None

    def store(self, call: BoundCall, result: TraceResult, captures: Captures, outside: Outside) -> Kept:
        """Keep a trace."""
        store = trace_cache() if self.key is not None else None
        if store is None or self.key is None:
            return Kept("", self.reason)
        try:
            texts = written(self.function, call, result, captures, outside)
        except NotStored as reason:
            return Kept("", str(reason))
        except Exception as error:  # of a class of the user's own that does not let itself be looked at
            return Kept("", f"{type(error).__name__}: {error}")
        kept = [texts, *(t for t in _split(store.load(self.key)) if t.assumed != texts.assumed and _is_current(t))]
        payload = b""
        for one in kept[:MAX_TRACES]:
            more = _joined(one)
            if len(payload) + len(more) > MAX_BYTES:
                break
            payload += more
        if not payload:
            return Kept("", f"it would take {len(_joined(texts))} bytes")
        store.store(self.key, payload)
        return Kept(self.identity(texts), "")


def entry(function: Callable[..., Any], around: object, call: BoundCall, key: Hashable) -> Entry:
    """Where the traces of this function are kept for such calls. ``around``: what makes of it what is traced in its
    place, None for itself; ``key``: what programs in memory are found by."""
    if trace_cache() is None:
        return Entry(function, None)
    stamp = _sources()
    if stamp is None:
        return Entry(function, None, "this package's own sources cannot be read")
    try:
        donated = [leaf.donated for leaf in call.dynamic]
        parts = json.dumps([callable_key(function), maker_key(around), Writer().value(key), donated])
    except NotStored as reason:
        return Entry(function, None, str(reason))
    except Exception as error:  # of an object of the user's own that does not let itself be looked at
        return Entry(function, None, f"{type(error).__name__}: {error}")
    return Entry(function, entry_key(stamp, parts))


@cache
def trace_cache() -> DiskCache | None:
    """The process's cache, None where the settings turn it off."""
    return configured(TRACES) if config().cache_traces else None


@cache
def _sources() -> str | None:
    """A text of all that tracing depends on besides the function: versions, settings, and the state of this package's
    source files; None where these cannot be looked at."""
    import tenferro
    from tenferro import tracer

    state = state_of(os.path.dirname(__file__), os.path.dirname(tracer.__file__ or ""))
    if state is None:
        return None
    settings = config()
    parts = (
        state, tenferro.__version__, np.__version__, sys.version, sys.platform, platform.machine(), sys.byteorder,
        repr((settings.wrap_numpy, settings.code_key())), repr(np.dtype(np.intp)),
    )  # fmt: skip
    return "\n".join(parts)


@cache
def engine_state() -> str:
    """A text of all that lowering and the CPU engine depend on besides a program and the machine."""
    # Where they are is asked without loading them.
    specs = [find_spec(f"tenferro.{name}") for name in ("engines", "lowering")]
    folders = [folder for s in specs if s is not None for folder in s.submodule_search_locations or ()]
    return f"{state_of(*folders)} {_sources()}"


def _is_current(texts: Texts) -> bool:
    with suppress(Exception):
        return is_current(texts.assumed)
    return False


def _joined(texts: Texts) -> bytes:
    parts = (texts.assumed, texts.program)
    return b"".join([len(p).to_bytes(_LENGTH, "little") + p for p in parts])


def _split(payload: bytes | None) -> Sequence[Texts]:
    """The traces of an entry; none where it is cut off."""
    found: list[bytes] = []
    data, start = payload or b"", 0
    while start < len(data):
        stop = start + _LENGTH + int.from_bytes(data[start : start + _LENGTH], "little")
        if stop > len(data):
            return ()
        found.append(data[start + _LENGTH : stop])
        start = stop
    return [Texts(*found[k : k + 2]) for k in range(0, len(found) - 1, 2)]
