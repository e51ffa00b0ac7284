"""Where workers wake: never on the core of the thread that wakes them.

Linux may place a woken worker on its waker's core although others are idle (seen on small virtual machines: every
wake-up; the worker then runs once a tick of the scheduler has moved one of the two, 3 ms later). The affinity of parked
workers therefore leaves out the core of the thread that calls regions; it changes when that thread moves to another
core, so that a usual wake-up makes no system call for it. Cores that someone else set for a worker, other than those
set here, are its base from then on. With many workers one late one is of no account, and they are left alone.
"""

from __future__ import annotations

from tenferro.engines.cpu.native_language import Global, native, stack
from tenferro.engines.cpu.native_prelude import (
    atomic_add,
    atomic_load,
    atomic_store,
    current_core,
    exchange32,
    get_affinity,
    load,
    set_affinity,
    store,
)

MASK_BYTES = 128  # 1024 cores, what glibc's cpu_set_t holds
MOST_STEERED = 7
# A worker's record: its thread, the cores that it may use, those that were set here.
THREAD, BASE, CHOSEN = 0, 64, 64 + MASK_BYTES
RECORD_BYTES = 64 + 2 * MASK_BYTES

STEERED = Global("steered", MOST_STEERED * RECORD_BYTES)
STEERED_COUNT = Global("steered_count", 64)
STEERING = Global("steering", 64)
# One more than the core that the workers leave out; 0 while they leave out none.
LEFT_OUT = Global("left_out", 64)


@native
def register_worker(thread: int) -> int:
    """Have a worker's wake-ups steered. Called once by each, before its first."""
    index = atomic_add(STEERED_COUNT, 1)
    if index < MOST_STEERED:
        atomic_store(STEERED + index * RECORD_BYTES + THREAD, thread)
        atomic_store(LEFT_OUT, 0)
    return 0


@native
def forget_workers() -> int:
    """A forked child has none."""
    record: int = STEERED
    while record < STEERED + MOST_STEERED * RECORD_BYTES:
        store(record + THREAD, 0)
        record += RECORD_BYTES
    store(STEERED_COUNT, 0)
    store(STEERING, 0)
    store(LEFT_OUT, 0)
    return 0


@native
def steer_workers() -> int:
    """Before a wake-up: let the workers leave out the core that this thread is on."""
    core = current_core()
    if atomic_load(LEFT_OUT) == core + 1 or core < 0 or core >= 8 * MASK_BYTES:
        return 0
    if atomic_load(STEERED_COUNT) > MOST_STEERED or not exchange32(STEERING, 0, 1):
        return 0
    # Before the records are read: a worker that registers meanwhile resets it behind its record.
    atomic_store(LEFT_OUT, core + 1)
    record: int = STEERED
    end = record + MOST_STEERED * RECORD_BYTES
    while record < end:
        if atomic_load(record + THREAD) != 0:
            steer_worker(record, core)
        record += RECORD_BYTES
    atomic_store(STEERING, 0)
    return 0


@native
def steer_worker(record: int, core: int) -> int:
    """Leave one core out of a worker's base, unless it is the only one."""
    mask = stack(MASK_BYTES)
    differs = 0
    left = 0
    at = 0
    while at < MASK_BYTES:
        store(mask + at, 0)
        at += 8
    if get_affinity(load(record + THREAD), MASK_BYTES, mask) < 0:
        return 0
    at = 0
    while at < MASK_BYTES:
        differs = differs | (load(mask + at) ^ load(record + CHOSEN + at))
        at += 8
    at = 0
    while at < MASK_BYTES:
        if differs:
            store(record + BASE + at, load(mask + at))
        word = load(record + BASE + at)
        if core // 64 * 8 == at:
            word = (word | 1 << core % 64) ^ 1 << core % 64
        store(mask + at, word)
        left = left | word
        at += 8
    at = 0
    while at < MASK_BYTES:
        if left == 0:
            store(mask + at, load(record + BASE + at))
        store(record + CHOSEN + at, load(mask + at))
        at += 8
    return set_affinity(load(record + THREAD), MASK_BYTES, mask)
