"""The buffer pool: a shape and a dtype in, a fresh array out whose memory comes back to the pool when the array dies.

The array owns its memory through tenferro's NumPy memory handler, so views, ``resize``, copies and pickles behave as ever; the
handler is set on the array alone, never installed for NumPy. The allocator itself is ``native_memory``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenferro.engines.cpu import native
from tenferro.engines.cpu.native_memory import LARGE_BYTES
from tenferro.tracer.config import config
from tenferro.tracer.errors import MemoryLimitError
from tenferro.tracer.lines import SourceLine

LISTED = 5
MOST_LIVE = 4096
HANDLER_NAME = "tenferro"

_tags: dict[SourceLine, int] = {}
_lines: list[SourceLine | None] = [None]
_tags_lock = threading.Lock()
_start_lock = threading.Lock()
_empty_array: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Bytes and counts of now. ``live``: large buffers (128 kB and more) in arrays; ``dead``: kept for reuse, of them
    ``dead_small`` in small ones; ``handed_out`` large buffers since the start, ``reused`` of them without mapping."""

    live: int
    dead: int
    dead_small: int
    bound: int
    limit: int
    handed_out: int
    reused: int
    mapped: int


def empty(shape: tuple[int, ...], dtype: Any, tag: int = 0) -> np.ndarray[Any, Any]:
    """A C-ordered, writeable array of unspecified contents that owns pooled memory.

    tag: of the user's line, from ``line_tag``, for the text of a MemoryLimitError. Raises ShapeError, DtypeError for dtypes
    that are not numeric, and MemoryLimitError."""
    if not isinstance(dtype, np.dtype):
        dtype = np.dtype(dtype)
    array: np.ndarray[Any, Any] | None = (_empty_array or _start())(shape, dtype, tag)
    if array is None:
        raise _limit_error(shape, dtype, tag)
    return array


def _start() -> Callable[..., Any]:
    """The native entry, with the pool's bounds set at the first call."""
    global _empty_array
    with _start_lock:
        if _empty_array is None:
            set_bounds(*default_bounds())
            _empty_array = native.module().empty_array
        return _empty_array


def line_tag(line: SourceLine | None) -> int:
    """The number that stands for a user's line in the table of live buffers."""
    if line is None:
        return 0
    with _tags_lock:
        found = _tags.get(line)
        if found is None:
            found = len(_lines)
            _lines.append(line)
            _tags[line] = found
        return found


def _renew_locks() -> None:
    global _tags_lock, _start_lock
    _tags_lock, _start_lock = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def is_pooled(array: np.ndarray[Any, Any]) -> bool:
    """Whether the array itself owns memory of the pool (a view does not)."""
    return bool(array.flags.owndata) and np._core.multiarray.get_handler_name(array) == HANDLER_NAME  # type: ignore[attr-defined]


def tag(array: np.ndarray[Any, Any], line: SourceLine | None) -> None:
    """Note which line an array was made for. Does nothing for arrays that own no memory of the pool."""
    if is_pooled(array):
        native.function("set_tag")(array.ctypes.data, line_tag(line))


def live_buffers() -> list[tuple[int, SourceLine | None]]:
    """Bytes and line of the live large buffers, largest first (of the newest 4096)."""
    pairs = np.zeros((MOST_LIVE, 2), dtype=np.int64)
    found = native.function("live_blocks")(pairs.ctypes.data, MOST_LIVE)
    return sorted(((int(size), _lines[int(t)]) for size, t in pairs[:found]), key=lambda pair: -pair[0])


def stats() -> PoolStats:
    """The pool's counters."""
    _start()
    words = np.zeros(8, dtype=np.int64)
    native.function("read_state")(words.ctypes.data)
    live, dead, dead_small, bound, limit, handed_out, reused, mapped = (int(w) for w in words)
    return PoolStats(live, dead + dead_small, dead_small, bound, limit, handed_out, reused, mapped)


def trim(bound: int = 0) -> None:
    """Give dead buffers back to the system until at most ``bound`` bytes of large ones are kept."""
    _start()
    native.function("trim", release_gil=True)(bound)


def set_bounds(pool_bytes: int, memory_limit: int) -> None:
    """Keep at most ``pool_bytes`` of dead large buffers; refuse a buffer with which more than ``memory_limit`` bytes live."""
    native.function("set_bounds")(pool_bytes, memory_limit)


def default_bounds() -> tuple[int, int]:
    """``TENFERRO_POOL_BYTES`` or an eighth of the memory, ``TENFERRO_MEMORY_LIMIT`` or all of it (the cgroup's, if less)."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        memory = min(memory, int(text)) if text.isdigit() else memory
    settings = config()
    pool = memory // 8 if settings.pool_bytes is None else settings.pool_bytes
    return pool, memory if settings.memory_limit is None else settings.memory_limit


def _limit_error(shape: tuple[int, ...], dtype: np.dtype[Any], tag: int) -> MemoryLimitError:
    wanted = dtype.itemsize * int(np.prod(shape, dtype=object))
    now = stats()
    largest = ", ".join(f"{size:,} bytes{f' ({line})' if line else ''}" for size, line in live_buffers()[:LISTED])
    line = _lines[tag]
    return MemoryLimitError(
        f"empty: {dtype} of shape {shape} is {wanted:,} bytes, where {now.live:,} of {now.limit:,} are in live buffers; "
        f"needed free memory; largest live: {largest or 'none'}" + (f" (at {line})" if line else "")
    )


__all__ = [
    "LARGE_BYTES", "PoolStats", "default_bounds", "empty", "is_pooled", "line_tag", "live_buffers", "set_bounds", "stats", "tag",
    "trim",
]  # fmt: skip
