"""Chains: blocks with selections between them in, arrays out whose sizes only the run tells, in one native call.

A chain's *frame* is a block without launches whose outputs are the chain's arrays: those at *positions*, as in a bound
plan with the operands first, then the results. So results and what is dropped at a run's end are a block's. Behind it
lie the addresses of the positions' data, the *extents* that selections have measured so far, and *stages*: what is done
before the first selection, between two, and after the last one. A stage is a list of operations; where it leads on, the
next one is the first whose formula (``native_sizes``) serves the extents, which brings the stage's words to them.
``tenferro.engines.cpu.chains`` writes frames.
"""

from __future__ import annotations

from tenferro.engines.cpu.native_entry import (
    DATA_AT,
    FIXED_WORDS,
    LATCH,
    NOTHING_FOUND,
    OUTPUTS,
    OUTPUTS_AT,
    Py_DecRef,
    Py_IncRef,
    drop_outputs,
    ended,
    make_outputs,
    own_array,
    run_block,
)
from tenferro.engines.cpu.native_language import inlined, native, stack
from tenferro.engines.cpu.native_match import VALUE_BYTES
from tenferro.engines.cpu.native_memory import handler_free, memcpy, take
from tenferro.engines.cpu.native_pool import GIL_HELD, PyEval_SaveThread, region
from tenferro.engines.cpu.native_prelude import atomic_load, load, store
from tenferro.engines.cpu.native_results import view_of
from tenferro.engines.cpu.native_sizes import NUMBER_BYTES, follow

# A frame, in bytes behind the words of every block: where the addresses are, where the extents are, operands, results;
# operands that are needed as arrays, and where there is of each its position and the number of its value.
ADDRESSES, EXTENTS, OPERANDS, RESULTS, HELD, HELD_AT = range(8 * FIXED_WORDS, 8 * FIXED_WORDS + 48, 8)
EXTRA_WORDS = 6
# An operation, in bytes: its length, its kind, its words.
OPERATION_KIND, OPERATION_WORDS = 8, 16
BLOCK_RUN, SELECT, VIEW, NUMBER, DROP, FOLLOW, RETURN = range(7)
# Of a block: where it is, in bytes from the operation; how many arrays it takes and makes; then their positions.
BLOCK_AT, TAKEN, MADE, BLOCK_POSITIONS = range(16, 48, 8)
# Of a selection: positions of the array, the mask and the result; which extent it measures; elements of the mask, bytes
# of a row and to the next one; the result's dtype and tag; the two functions of ``tenferro.engines.cpu.select``; the
# result's rank and sizes.
OF, MASK, TO, EXTENT, ROWS, ROW_BYTES, STRIDE, DESCRIPTOR, TAG, COUNT, COPY, RANK, SIZES = range(16, 120, 8)
# Of a selection's launches: the words of their parameters (CHANGED: where a 1 is written if the mask selects fewer than
# were counted), rows of a work item.
LENGTH_WORD, MASK_WORD, SOURCE_WORD, COUNTS_WORD, TARGET_WORD, ROW_WORD, STRIDE_WORD, CHANGED_WORD = range(1, 9)
SELECT_WORDS = 9
ITEM_ROWS = 1 << 12
FEW_ITEMS = 63
"""Work items whose counts, with their sum behind them, lie on the stack."""
COUNTS_BYTES, PARAMS_BYTES = 8 + 8 * FEW_ITEMS, 8 + 8 * SELECT_WORDS
DONE, FAILED, MISSED = 1, 0, -1
"""What an operation gives: it is done; an exception is set; Python is to do all of the call."""


@inlined
def put(frame: int, position: int, array: int) -> int:
    """Let the frame take over an array."""
    store(frame + 8 * (load(frame + 8 * OUTPUTS_AT) + position), array)
    store(frame + load(frame + ADDRESSES) + 8 * position, load(array + DATA_AT))
    return 0


@native
def chain_block(frame: int, operation: int, threads: int) -> int:
    """Run a block on arrays of the frame."""
    block = operation + load(operation + BLOCK_AT)
    addresses = frame + load(frame + ADDRESSES)
    taken = load(operation + TAKEN)
    arrays = stack(VALUE_BYTES)
    position = operation + BLOCK_POSITIONS
    k = 0
    while k < taken:
        store(arrays + 8 * k, load(addresses + 8 * load(position)))
        position += 8
        k += 1
    found = make_outputs(block)
    if found != DONE:
        return found
    wanted = load(block + 8 * OUTPUTS)
    if not run_block(block, threads, arrays, taken, 1):
        return drop_outputs(block, wanted)
    if atomic_load(block + 8 * LATCH) != NOTHING_FOUND:
        drop_outputs(block, wanted)
        return MISSED
    made = block + 8 * load(block + 8 * OUTPUTS_AT)
    k = 0
    while k < wanted:
        put(frame, load(position), load(made))
        position += 8
        made += 8
        k += 1
    return DONE


@native
def launch(function: int, params: int, items: int, threads: int, heavy: int) -> int:
    """A selection's launch over its work items: DONE or FAILED."""
    thread_state: int = GIL_HELD
    if heavy:
        thread_state = PyEval_SaveThread()
    grain = items >> 6
    if grain == 0:
        grain = 1
    return ended(region(function, params, items, grain, threads, thread_state), heavy, thread_state)


@native
def chain_select(frame: int, operation: int, threads: int) -> int:
    """Select rows by a mask into a fresh array; their number becomes an extent."""
    rows = load(operation + ROWS)
    items = (rows + ITEM_ROWS - 1) // ITEM_ROWS
    counts = stack(COUNTS_BYTES)
    if items > FEW_ITEMS:
        counts = take(8 + 8 * items, load(operation + TAG))
        if counts == 0:
            return MISSED
    result = select_into(frame, operation, threads, counts, items)
    if items > FEW_ITEMS:
        handler_free(0, counts, 0)
    return result


@native
def select_into(frame: int, operation: int, threads: int, counts: int, items: int) -> int:
    """``chain_select`` with memory for the counts of its work items."""
    addresses = frame + load(frame + ADDRESSES)
    params = stack(PARAMS_BYTES)
    store(params + 8 * LENGTH_WORD, load(operation + ROWS))
    store(params + 8 * MASK_WORD, load(addresses + 8 * load(operation + MASK)))
    store(params + 8 * SOURCE_WORD, load(addresses + 8 * load(operation + OF)))
    store(params + 8 * COUNTS_WORD, counts)
    store(params + 8 * ROW_WORD, load(operation + ROW_BYTES))
    store(params + 8 * STRIDE_WORD, load(operation + STRIDE))
    changed = params + 8 * SELECT_WORDS
    store(params + 8 * CHANGED_WORD, changed)
    store(changed, 0)
    heavy = items > 8
    if not launch(load(operation + COUNT), params, items, threads, heavy):
        return FAILED
    total = 0
    k = 0
    while k < items:
        here = load(counts + 8 * k)
        store(counts + 8 * k, total)
        total += here
        k += 1
    store(counts + 8 * items, total)
    store(operation + SIZES, total)
    size = total * load(operation + ROW_BYTES)
    data = take(size, load(operation + TAG))
    if data == 0:
        return MISSED
    array = own_array(data, load(operation + DESCRIPTOR), load(operation + RANK), operation + SIZES, size)
    if array == 0:
        return FAILED
    store(params + 8 * TARGET_WORD, data)
    put(frame, load(operation + TO), array)
    store(frame + load(frame + EXTENTS) + 8 * load(operation + EXTENT), total)
    if not launch(load(operation + COPY), params, items, threads, heavy):
        return FAILED
    if atomic_load(changed):
        return MISSED
    return DONE


@inlined
def chain_view(frame: int, operation: int) -> int:
    """A view of an array of the frame; words as of an entry's view, but that both are positions."""
    objects = frame + 8 * load(frame + 8 * OUTPUTS_AT)
    view = operation + OPERATION_WORDS + 8
    made = view_of(view, load(objects + 8 * load(view + 8)))
    if made == 0:
        return FAILED
    put(frame, load(operation + OPERATION_WORDS), made)
    return DONE


@native
def chain_number(frame: int, operation: int) -> int:
    """An array of rank 0. Words: its position, its dtype and that one's bytes, the bytes of the number."""
    size = load(operation + OPERATION_WORDS + 16)
    data = take(size, 0)
    if data == 0:
        return MISSED
    array = own_array(data, load(operation + OPERATION_WORDS + 8), 0, 0, size)
    if array == 0:
        return FAILED
    memcpy(data, operation + OPERATION_WORDS + 24, size)
    put(frame, load(operation + OPERATION_WORDS), array)
    return DONE


@inlined
def chain_drop(frame: int, operation: int) -> int:
    """Give up arrays of the frame."""
    objects = frame + 8 * load(frame + 8 * OUTPUTS_AT)
    at = operation + OPERATION_WORDS
    end = operation + load(operation)
    while at < end:
        place = objects + 8 * load(at)
        Py_DecRef(load(place))
        store(place, 0)
        at += 8
    return DONE


@native
def next_stage(frame: int, operation: int) -> int:
    """The first operation of a stage that serves the extents; 0 for none. Words: how many extents are known, then of
    each stage where its formula, its words and its operations are."""
    numbers = stack(NUMBER_BYTES)
    known = 8 * load(operation + OPERATION_WORDS)
    at = operation + OPERATION_WORDS + 8
    end = operation + load(operation)
    while at < end:
        memcpy(numbers, frame + load(frame + EXTENTS), known)
        if follow(frame + load(at), numbers, frame + load(at + 8)):
            return frame + load(at + 16)
        at += 24
    return 0


@inlined
def chain_return(frame: int, operation: int) -> int:
    """Make arrays of the frame its results, by their positions."""
    objects = frame + 8 * load(frame + 8 * OUTPUTS_AT)
    result = objects + 8 * (load(frame + 8 * OUTPUTS) - load(frame + RESULTS))
    at = operation + OPERATION_WORDS
    end = operation + load(operation)
    while at < end:
        array = load(objects + 8 * load(at))
        Py_IncRef(array)
        store(result, array)
        result += 8
        at += 8
    return DONE


@native
def run_chain(frame: int, first: int, threads: int, values: int, addresses: int) -> int:
    """Carry out a copied frame from operation ``first`` on, as an operation gives. Whoever called drops its arrays."""
    memcpy(frame + load(frame + ADDRESSES), addresses, 8 * load(frame + OPERANDS))
    held = frame + load(frame + HELD_AT)
    end = held + 16 * load(frame + HELD)
    while held < end:
        value = load(values + 8 * load(held + 8))
        Py_IncRef(value)
        put(frame, load(held), value)
        held += 16
    operation = frame + first
    result: int = DONE
    while result == DONE:
        kind = load(operation + OPERATION_KIND)
        if kind == RETURN:
            return chain_return(frame, operation)
        if kind == FOLLOW:
            operation = next_stage(frame, operation)
            if operation == 0:
                return MISSED
        else:
            if kind == BLOCK_RUN:
                result = chain_block(frame, operation, threads)
            if kind == SELECT:
                result = chain_select(frame, operation, threads)
            if kind == VIEW:
                result = chain_view(frame, operation)
            if kind == NUMBER:
                result = chain_number(frame, operation)
            if kind == DROP:
                result = chain_drop(frame, operation)
            operation += load(operation)
    return result
