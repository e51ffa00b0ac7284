"""The thread pool's native half: a parallel region in, chunks run by the caller and by workers, each exactly once.

A region is a record in one of ``SLOTS`` fixed slots. Its state word says how many workers are inside, how many may be,
and whether it is open; a worker enters by a compare-and-exchange on that word, so a late one can only enter a region
that is open now, and the fields it then reads stay put until it has left: the caller closes the region and waits for
the last one to leave. The caller always works on its own region, and runs it alone if no slot or worker is free; so
nesting cannot deadlock.
"""

from __future__ import annotations

from tenferro.engines.cpu.native_language import Foreign, Global, call_address, native
from tenferro.engines.cpu.native_prelude import (
    FLOAT_CONTROL,
    atomic_add,
    atomic_add32,
    atomic_and32,
    atomic_load,
    atomic_load32,
    atomic_or32,
    atomic_store,
    atomic_store32,
    exchange32,
    futex_wait,
    futex_wake,
    load,
    monotonic_ns,
    pause,
    read_float_control,
    store,
    write_float_control,
)
from tenferro.engines.cpu.native_steering import forget_workers, register_worker, steer_workers

SLOTS = 32
SLOT_BYTES = 128
# Fields of a slot. NEXT has a cache line of its own: everybody adds to it.
STATE, FUNCTION, PARAMS, TOTAL, GRAIN, CHUNKS, STOPPED, NEXT = 0, 8, 16, 24, 32, 40, 48, 64
# The state word: users in bits 0 to 11, the most users in bits 12 to 23, then flags.
USERS, LIMIT_SHIFT = 0xFFF, 12
OPEN, TAKEN, AWAITED = 1 << 24, 1 << 25, 1 << 26
MAX_WORKERS = 0xFFF

# About 40 µs of pauses: longer than the gap between two regions of one call, far shorter than a time slice.
SPINS = 2000
POLL_NS = 20_000_000
# Values of a region's ``thread_state`` beside a CPython thread state: the caller holds the GIL; nobody may be asked.
GIL_HELD, NO_POLL = 0, -1

POOL_SLOTS = Global("pool_slots", SLOTS * SLOT_BYTES)
# One cache line each: the epoch word, which is the futex of parked workers; how many are parked; the stop flag.
POOL_EPOCH = Global("pool_epoch", 64)
POOL_PARKED = Global("pool_parked", 64)
POOL_STOPPED = Global("pool_stopped", 64)
# Raised in a forked child: a region that was running in the parent is lost there.
POOL_FORKS = Global("pool_forks", 64)
MAIN_THREAD = Global("main_thread", 64)
# The floating-point control word that kernels run under.
FLOAT_STATE = Global("float_state", 64)

PyEval_SaveThread = Foreign("PyEval_SaveThread", "ptr", ())
PyEval_RestoreThread = Foreign("PyEval_RestoreThread", "void", ("ptr",))
PyErr_CheckSignals = Foreign("PyErr_CheckSignals", "i32", ())
PyThread_get_thread_ident = Foreign("PyThread_get_thread_ident", "i64", ())


@native
def interrupted(thread_state: int) -> int:
    """Run pending signal handlers; 1 where one of them raised. Only the main thread runs any."""
    if thread_state == NO_POLL or PyThread_get_thread_ident() != atomic_load(MAIN_THREAD):
        return 0
    if thread_state == GIL_HELD:
        return handle_signals()
    PyEval_RestoreThread(thread_state)
    raised = handle_signals()
    PyEval_SaveThread()
    return raised


@native
def handle_signals() -> int:
    """Run handlers, under the floating-point control word of ordinary programs; 1 where one of them raised."""
    control = read_float_control()
    write_float_control(FLOAT_CONTROL)
    raised = PyErr_CheckSignals()
    write_float_control(control)
    return raised != 0


@native
def run_alone(function: int, params: int, total: int, grain: int, thread_state: int) -> int:
    """All chunks in order on this thread. 1 where a signal handler raised."""
    begin = 0
    polled = monotonic_ns()
    while begin < total:
        end = begin + grain
        if end > total:
            end = total
        call_address(function, params, begin, end)
        begin = end
        now = monotonic_ns()
        if now - polled > POLL_NS:
            polled = now
            if interrupted(thread_state):
                return 1
    return 0


@native
def take_slot() -> int:
    """A free slot, now taken; 0 where all are in use."""
    slot: int = POOL_SLOTS
    end = slot + SLOTS * SLOT_BYTES
    while slot < end:
        if atomic_load32(slot + STATE) == 0 and exchange32(slot + STATE, 0, TAKEN):
            return slot
        slot += SLOT_BYTES
    return 0


@native
def run_chunk(slot: int) -> int:
    """Claim and run one chunk; 0 where none is left."""
    if atomic_load(slot + STOPPED):
        return 0
    chunk = atomic_add(slot + NEXT, 1)
    if chunk >= load(slot + CHUNKS):
        return 0
    begin = chunk * load(slot + GRAIN)
    end = begin + load(slot + GRAIN)
    if end > load(slot + TOTAL):
        end = load(slot + TOTAL)
    function = load(slot + FUNCTION)
    call_address(function, load(slot + PARAMS), begin, end)
    return 1


@native
def wake_workers(wanted: int) -> int:
    """Tell the workers that there is work; a system call only where some are parked."""
    atomic_add32(POOL_EPOCH, 1)
    if atomic_load32(POOL_PARKED) > 0:
        steer_workers()
        futex_wake(POOL_EPOCH, wanted)
    return 0


@native
def close_slot(slot: int) -> int:
    """Let nobody enter any more, wait until nobody is inside, and free the slot."""
    atomic_and32(slot + STATE, 0xFFFFFFFF - OPEN)
    spins = 0
    while atomic_load32(slot + STATE) & USERS:
        pause()
        spins += 1
        if spins > SPINS:
            state = atomic_or32(slot + STATE, AWAITED) | AWAITED
            if state & USERS:
                futex_wait(slot + STATE, state)
    atomic_store32(slot + STATE, 0)
    return 0


@native
def region(function: int, params: int, total: int, grain: int, threads: int, thread_state: int) -> int:
    """``function(params, begin, end)`` over [0, total) in chunks of ``grain``, on up to ``threads`` threads.

    Returns 0; 1 where a signal handler raised, with the exception set and some chunks not run; 2 in a child forked by
    one."""
    if total <= grain:
        if total > 0:
            call_address(function, params, 0, total)
        return 0
    slot = 0
    if threads > 1:
        slot = take_slot()
    if slot == 0:
        return run_alone(function, params, total, grain, thread_state)
    chunks = (total + grain - 1) // grain
    helpers = threads - 1
    if helpers > chunks - 1:
        helpers = chunks - 1
    if helpers > MAX_WORKERS:
        helpers = MAX_WORKERS
    store(slot + FUNCTION, function)
    store(slot + PARAMS, params)
    store(slot + TOTAL, total)
    store(slot + GRAIN, grain)
    atomic_store(slot + CHUNKS, chunks)
    atomic_store(slot + STOPPED, 0)
    atomic_store(slot + NEXT, 0)
    atomic_store32(slot + STATE, TAKEN | OPEN | (helpers << LIMIT_SHIFT))
    wake_workers(helpers)
    return work_on_own(slot, thread_state)


@native
def work_on_own(slot: int, thread_state: int) -> int:
    """The caller's part of a region that it has opened."""
    forks = atomic_load(POOL_FORKS)
    result = 0
    polled = monotonic_ns()
    while run_chunk(slot):
        now = monotonic_ns()
        if now - polled > POLL_NS:
            polled = now
            result = interrupted(thread_state)
            if atomic_load(POOL_FORKS) != forks:
                return 2
            if result:
                atomic_store(slot + STOPPED, 1)
    close_slot(slot)
    return result


@native
def help_slot(slot: int) -> int:
    """A worker's part of a region, if it may enter; 1 where it has been inside."""
    state = atomic_load32(slot + STATE)
    if not state & OPEN or state & USERS >= (state >> LIMIT_SHIFT) & USERS:
        return 0
    if atomic_load(slot + NEXT) >= atomic_load(slot + CHUNKS) or atomic_load(slot + STOPPED):
        return 0
    if not exchange32(slot + STATE, state, state + 1):
        return 0
    while run_chunk(slot):
        pass
    before = atomic_add32(slot + STATE, -1)
    if before & AWAITED and before & USERS == 1:
        futex_wake(slot + STATE, 1)
    return 1


@native
def help_any() -> int:
    """One round over all slots; 1 where some region had work."""
    slot: int = POOL_SLOTS
    end = slot + SLOTS * SLOT_BYTES
    helped = 0
    while slot < end:
        helped = helped | help_slot(slot)
        slot += SLOT_BYTES
    return helped


@native
def set_float_state(control: int) -> int:
    """Before the first worker starts."""
    store(FLOAT_STATE, control)
    return 0


@native
def worker(thread: int) -> int:
    """A worker's life: look for work, spin, park. Returns when the pool is stopped. ``thread``: the system's number."""
    register_worker(thread)
    write_float_control(load(FLOAT_STATE))
    while atomic_load32(POOL_STOPPED) == 0:
        seen = atomic_load32(POOL_EPOCH)
        if help_any():
            continue
        spins = 0
        while spins < SPINS and atomic_load32(POOL_EPOCH) == seen:
            pause()
            spins += 1
        if spins == SPINS and atomic_load32(POOL_STOPPED) == 0:
            atomic_add32(POOL_PARKED, 1)
            futex_wait(POOL_EPOCH, seen)
            atomic_add32(POOL_PARKED, -1)
    return 0


@native
def stop_workers() -> int:
    """Make every worker return."""
    atomic_store32(POOL_STOPPED, 1)
    atomic_add32(POOL_EPOCH, 1)
    futex_wake(POOL_EPOCH, 0x7FFFFFFF)
    return 0


@native
def reset_pool() -> int:
    """The pool as at the start, with this thread as the main one: for a forked child, which has no workers."""
    slot: int = POOL_SLOTS
    end = slot + SLOTS * SLOT_BYTES
    while slot < end:
        atomic_store32(slot + STATE, 0)
        slot += SLOT_BYTES
    atomic_store32(POOL_PARKED, 0)
    atomic_store32(POOL_STOPPED, 0)
    forget_workers()
    atomic_add(POOL_FORKS, 1)
    atomic_store(MAIN_THREAD, PyThread_get_thread_ident())
    return 0


@native
def set_main_thread(identity: int) -> int:
    atomic_store(MAIN_THREAD, identity)
    return 0
