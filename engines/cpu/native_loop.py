"""Loops of blocks: a body's block, entered once a turn without Python, and a condition's block before it.

In: the address of a loop's words and how to poll. The arrays of a block differ from turn to turn: each has an *entry*
in the block's table, from which its address at a turn follows. ``tenferro.engines.cpu.loops`` fills both.
"""

from __future__ import annotations

from tenferro.engines.cpu.native_entry import (
    LATCH,
    TURNS_BETWEEN_POLLS,
    WARNING_BIT,
    patch_turn,
    run_launches,
)
from tenferro.engines.cpu.native_language import native
from tenferro.engines.cpu.native_pool import (
    GIL_HELD,
    POLL_NS,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    interrupted,
)
from tenferro.engines.cpu.native_prelude import atomic_load, load, load32, monotonic_ns, store

# Words of a loop: the body's block and the address of its table's entry 0, the condition's block (0: none) and table
# and where its answer lies, threads, the turn to begin with and the one to end before, whether the GIL is released;
# then what is told: the turn that was come to, whether the condition ended it.
BODY, BODY_TABLE, CONDITION, CONDITION_TABLE, ANSWER, THREADS, TURN, TURNS, IS_LONG, ENDED, LOOP_WORDS = range(11)


@native
def run_turns(loop: int, thread_state: int) -> int:
    """The turns, one after the other, until the last one, the condition's no, or the find of a check that raises; as
    ``region`` returns."""
    body = load(loop + 8 * BODY)
    table = load(loop + 8 * BODY_TABLE)
    condition = load(loop + 8 * CONDITION)
    asked = load(loop + 8 * CONDITION_TABLE)
    answer = load(loop + 8 * ANSWER)
    threads = load(loop + 8 * THREADS)
    turn = load(loop + 8 * TURN)
    turns = load(loop + 8 * TURNS)
    polled = monotonic_ns()
    result = 0
    while result == 0:
        if condition:
            patch_turn(condition, asked, turn)
            result = run_launches(condition, threads, thread_state)
            if result:
                break
            if load32(answer) & 0xFF == 0:
                store(loop + 8 * ENDED, 1)
                break
        if turn >= turns:
            break
        patch_turn(body, table, turn)
        result = run_launches(body, threads, thread_state)
        turn += 1
        if atomic_load(body + 8 * LATCH) < WARNING_BIT:
            break
        if turn % TURNS_BETWEEN_POLLS == 0:
            now = monotonic_ns()
            if now - polled > POLL_NS:
                polled = now
                result = interrupted(thread_state)
    store(loop + 8 * TURN, turn)
    return result


@native
def run_loop(loop: int) -> int:
    """``run_turns``, without the GIL where the loop is long. 1 where a signal handler raised, with the exception
    set."""
    thread_state: int = GIL_HELD
    if load(loop + 8 * IS_LONG):
        thread_state = PyEval_SaveThread()
    result = run_turns(loop, thread_state)
    if load(loop + 8 * IS_LONG):
        PyEval_RestoreThread(thread_state)
    return result
