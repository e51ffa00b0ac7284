"""The native way of a call: a jitted function's arguments are compared with those of calls that were served before, and
on a match the block bound to them is entered, without Python code in between.

A function's *state* holds its entries, newest first; ``native_match`` says what an entry is, ``native_results`` what
it returns. ``tenferro.engines.cpu.shortcuts`` builds both and keeps alive what they point to; they change under the GIL
only, which ``call_function`` and ``serve`` hold while they read them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.engines.cpu.native_chain import DONE, FAILED, run_chain
from tenferro.engines.cpu.native_entry import (
    DATA_AT,
    LATCH,
    OUTPUTS,
    STACK_BYTES,
    TYPE_AT,
    WORDS,
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyErr_Occurred,
    PyLong_AsLongLong,
    drop_outputs,
    make_outputs,
    malloc,
    raise_type_error,
    run_block,
)
from tenferro.engines.cpu.native_language import Foreign, Global, c_string, inlined, native, stack
from tenferro.engines.cpu.native_match import (
    BLOCK,
    BOUND,
    CALL_OBJECTS,
    CHAIN,
    ENTRY_WORDS,
    GIVEN,
    INT,
    ITEMS_AT,
    LEFT,
    MAX_VALUES,
    NAMES,
    OWNER,
    SCOPE,
    SERVED,
    SHARE,
    SIZE_AT,
    THREADS,
    VALUE_BYTES,
    PyErr_Clear,
    let_go,
    matches,
)
from tenferro.engines.cpu.native_memory import free, memcpy
from tenferro.engines.cpu.native_prelude import atomic_load, load, store
from tenferro.engines.cpu.native_results import PyObject_Vectorcall, result_of
from tenferro.engines.cpu.native_types import SLOT_AT

CLEAN = 2**63 - 1
MAX_ENTRIES = 8

# A state, in bytes.
EPOCH, HITS, COUNT, ENTRIES = 0, 8, 16, 24
STATE_WORDS = 3 + MAX_ENTRIES
MISS = 1
MOST = 2**63 - 1

# The address of the words of tenferro.tracer.switches: why native calls pause, the epoch of what they may rely on, how
# many scopes set a number of threads, how many threads have been started.
SWITCHES = Global("switches", 64)
PAUSES, SWITCH_EPOCH, SCOPES, STARTED = range(0, 32, 8)

# (variable, default, address of the value, a new reference) → −1 with an exception set.
PyContextVar_Get = Foreign("PyContextVar_Get", "i32", ("ptr", "ptr", "ptr"))
CALL_SYMBOLS = ("PyContextVar_Get",)


@native
def set_switches(address: int) -> int:
    """Where the two words are that pause native calls and make them forget."""
    store(SWITCHES, address)
    return 0


@native
def threads_in_scope(entry: int) -> int:
    """How many threads a run may use where some scope sets a number; 0 where Python has to start more."""
    found = stack(8)
    wanted = load(entry + THREADS)
    if PyContextVar_Get(load(CALL_OBJECTS + SCOPE), 0, found):
        PyErr_Clear()
        return 0
    value = load(found)
    if load(value + TYPE_AT) == load(CALL_OBJECTS + INT):
        wanted = PyLong_AsLongLong(value)
        share = load(entry + SHARE)
        if share and share < wanted:
            wanted = share
    Py_DecRef(value)
    if wanted > load(load(SWITCHES) + STARTED):
        return 0
    return wanted


@inlined
def run_entry(entry: int, values: int, addresses: int) -> int:
    """The call's result, MISS where Python has to look, or 0 with an exception set."""
    template = load(entry + BLOCK)
    size = 8 * load(template + 8 * WORDS)
    block = stack(STACK_BYTES)
    if size > STACK_BYTES:
        block = malloc(size)
        if block == 0:
            return PyErr_NoMemory()
    memcpy(block, template, size)
    result = run_copied(entry, block, values, addresses)
    if size > STACK_BYTES:
        free(block)
    return result


@inlined
def run_copied(entry: int, block: int, values: int, addresses: int) -> int:
    """``run_entry`` on a copy of its block."""
    threads = load(entry + THREADS)
    if load(load(SWITCHES) + SCOPES):
        threads = threads_in_scope(entry)
        if threads == 0:
            return MISS
    chain = load(entry + CHAIN)
    if chain:
        return run_chained(entry, block, chain, threads, values, addresses)
    made = make_outputs(block)
    if made == -1:
        return MISS
    if made == 0:
        return 0
    wanted = load(block + 8 * OUTPUTS)
    if not run_block(block, threads, addresses, MAX_VALUES, 1):
        return drop_outputs(block, wanted)
    if atomic_load(block + 8 * LATCH) != CLEAN:
        drop_outputs(block, wanted)
        return MISS
    return result_of(entry, block, values)


@native
def run_chained(entry: int, frame: int, chain: int, threads: int, values: int, addresses: int) -> int:
    """``run_entry`` of a chain, on a copy of its frame."""
    done = run_chain(frame, chain, threads, values, addresses)
    if done == DONE:
        return result_of(entry, frame, values)
    drop_outputs(frame, load(frame + 8 * OUTPUTS))
    if done == FAILED:
        return 0
    return MISS


@inlined
def serve_entry(state: int, entry: int, values: int) -> int:
    """The result where the entry serves these values; MISS where not, or 0 with an exception set."""
    addresses = stack(VALUE_BYTES)
    # Matching may run Python, and a run that lets go of the GIL may outlive the entry.
    owner = load(entry + OWNER)
    Py_IncRef(owner)
    count = matches(entry, values, addresses)
    result = MISS
    if count >= 0:
        result = run_entry(entry, values, addresses)
        if result != MISS:
            store(state + HITS, load(state + HITS) + 1)
            store(entry + SERVED, load(entry + SERVED) + 1)
            if load(entry + LEFT) > 0:
                store(entry + LEFT, load(entry + LEFT) - 1)
        let_go(values, load(entry + GIVEN) + load(entry + NAMES), count)
    else:
        if PyErr_Occurred():
            result = 0
    Py_DecRef(owner)
    return result


@inlined
def has_names(entry: int, names: int) -> int:
    """Whether a call gives just the keywords of an entry, in its order."""
    count = load(entry + NAMES)
    if names == 0:
        return count == 0
    if load(names + SIZE_AT) != count:
        return 0
    k = 0
    while k < count:
        if load(names + ITEMS_AT + 8 * k) != load(entry + 8 * (ENTRY_WORDS + k)):
            return 0
        k += 1
    return 1


@native
def serve_by(receiver: int, arguments: int, given: int, names: int) -> int:
    """The result by the first entry of a state that serves the call, else MISS. The caller holds the receiver."""
    state = load(load(receiver + ITEMS_AT) + DATA_AT)
    switches = load(SWITCHES)
    if load(switches + PAUSES) != 0 or load(switches + SWITCH_EPOCH) != load(state + EPOCH):
        return MISS
    values = stack(VALUE_BYTES)
    k = 0
    while k < load(state + COUNT):
        entry = load(state + ENTRIES + 8 * k)
        if load(entry + GIVEN) == given and load(entry + LEFT) != 0 and has_names(entry, names):
            end = 8 * (given + load(entry + NAMES))
            at = 0
            while at < end:
                store(values + at, load(arguments + at))
                at += 8
            result = serve_entry(state, entry, values)
            if result != MISS:
                return result
        k += 1
    return MISS


@native
def serve(receiver: int, arguments: int, given: int, names: int) -> int:
    """A builtin that serves calls by the entries of a function, else calls its Python half. ``receiver``: a tuple of
    the state, an array of words, and that half."""
    result = serve_by(receiver, arguments, given, names)
    if result != MISS:
        return result
    return PyObject_Vectorcall(load(receiver + ITEMS_AT + 8), arguments, given, names)


@native
def call_function(function: int, arguments: int, flagged: int, names: int) -> int:
    """The vectorcall of a jitted function, whose slot holds such a receiver. ``flagged``: positional arguments, and in
    the highest bit whether the word before the first may be written."""
    receiver = load(function + SLOT_AT)
    if receiver == 0:
        return raise_type_error(c_string("a jitted function was called while it was being destroyed"))
    # Others may clear the function while its call runs.
    Py_IncRef(receiver)
    result = serve_by(receiver, arguments, flagged & MOST, names)
    if result == MISS:
        result = PyObject_Vectorcall(load(receiver + ITEMS_AT + 8), arguments, flagged, names)
    Py_DecRef(receiver)
    return result


@native
def bind_function(function: int, instance: int, owner: int) -> int:
    """``__get__`` of a jitted function: itself from the class, a bound method from an object."""
    if instance == 0:
        Py_IncRef(function)
        return function
    arguments = stack(16)
    store(arguments, function)
    store(arguments + 8, instance)
    return PyObject_Vectorcall(load(CALL_OBJECTS + BOUND), arguments, 2, 0)


FLAGS_OF_SERVE = 0x82
"""METH_FASTCALL | METH_KEYWORDS."""
NUMBER_TYPES: tuple[type[Any], ...] = (float, complex, *(np.dtype(c).type for c in "?bhilqBHILQefdFD"))
"""Types whose objects hold their number at NUMBER_AT; checked before first use."""
