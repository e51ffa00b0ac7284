"""The buffer pool: a shape and a dtype in, a fresh array out whose memory comes back to the pool when the array dies.

The array owns its memory through tenferro's NumPy memory handler, so views, ``resize``, copies and pickles behave as
ever; the handler is set on the array alone, never installed for NumPy. The allocator itself is ``native_memory``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.engines.cpu import native
from tenferro.tracer.errors import MemoryLimitError
from tenferro.tracer.forking import Renewed
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.records import dataclass

LISTED = 5
MOST_LIVE = 4096
HANDLER_NAME = "tenferro"

_tags: dict[SourceLine, int] = {}
_lines: list[SourceLine | None] = [None]
_writing_tags = Renewed()
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

    tag: of the user's line, from ``line_tag``, for the text of a MemoryLimitError. Raises ShapeError, DtypeError for
    dtypes that are not numeric, and MemoryLimitError."""
    if not isinstance(dtype, np.dtype):
        dtype = np.dtype(dtype)
    array: np.ndarray[Any, Any] | None = (_empty_array or _start())(shape, dtype, tag)
    if array is None:
        raise limit_error(shape, dtype, tag)
    return array


def _start() -> Callable[..., Any]:
    """The native entry, kept at hand for the next calls."""
    global _empty_array
    _empty_array = native.module().empty_array
    return _empty_array


def enter(block: native.Block, address: int, threads: int, *arrays: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Run a sealed block: (latch, outputs …). Raises MemoryLimitError, about the largest of the outputs."""
    return checked(block, native.module().enter(address, threads, *arrays))


def checked(block: native.Block, found: Any) -> tuple[Any, ...]:
    """What ``native.enter`` gave for a block, always a tuple. Raises MemoryLimitError where it gave nothing."""
    if found is None:
        raise block_error(block)
    return found if block.outputs else (found,)


def block_error(block: native.Block) -> MemoryLimitError:
    """For a block whose outputs could not be had: about the largest of them."""
    return limit_error(*max(block.described(), key=lambda o: o[1].itemsize * math.prod(o[0])))


def line_tag(line: SourceLine | None) -> int:
    """The number that stands for a user's line in the table of live buffers."""
    if line is None:
        return 0
    with _writing_tags.lock:
        found = _tags.get(line)
        if found is None:
            found = len(_lines)
            _lines.append(line)
            _tags[line] = found
        return found


def tagged_line(tag: int) -> SourceLine | None:
    """The line that a number stands for."""
    return _lines[tag]


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
    words = np.zeros(8, dtype=np.int64)
    native.function("read_state")(words.ctypes.data)
    live, dead, dead_small, bound, limit, handed_out, reused, mapped = (int(w) for w in words)
    return PoolStats(live, dead + dead_small, dead_small, bound, limit, handed_out, reused, mapped)


def trim(bound: int = 0) -> None:
    """Give dead buffers back to the system until at most ``bound`` bytes of large ones are kept."""
    native.function("trim", release_gil=True)(bound)


def set_bounds(pool_bytes: int, memory_limit: int) -> None:
    """Keep at most ``pool_bytes`` of dead large buffers; refuse a buffer with which more than ``memory_limit`` bytes
    live."""
    native.function("set_bounds")(pool_bytes, memory_limit)


def default_bounds() -> tuple[int, int]:
    """Bytes of dead and of live large buffers: ``TENFERRO_POOL_BYTES`` or an eighth of the memory,
    ``TENFERRO_MEMORY_LIMIT`` or all of it."""
    return native.memory_bounds()


def limit_error(shape: tuple[int, ...], dtype: np.dtype[Any], tag: int = 0) -> MemoryLimitError:
    """The error for an array that cannot be had, with the largest live buffers and their lines."""
    wanted = dtype.itemsize * math.prod(shape)
    now = stats()
    largest = ", ".join(f"{size:,} bytes{f' ({line})' if line else ''}" for size, line in live_buffers()[:LISTED])
    line = _lines[tag]
    return MemoryLimitError(
        f"empty: {dtype} of shape {shape} is {wanted:,} bytes, where {now.live:,} of {now.limit:,} are in live "
        f"buffers; needed free memory; largest live: {largest or 'none'}" + (f" (at {line})" if line else "")
    )
