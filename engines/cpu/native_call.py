"""The native way of a call: a jitted function's arguments are compared with those of calls that were served before, and
on a match the block bound to them is entered, without Python code in between.

A function's *state* holds its entries, newest first. An *entry* is a list of
*records* that look at *values*: the arguments as given, then what records of containers, captured variables and
tn.Arrays bring to light. ``tenferro.engines.cpu.shortcuts`` builds both and keeps alive what they point to; they change
under the GIL only, which ``serve`` holds while it reads them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.engines.cpu.native_entry import (
    DATA_AT,
    DESCRIPTOR_AT,
    FLAGS_AT,
    HEAD,
    LATCH,
    NDARRAY,
    OBJECTS,
    OUTPUTS,
    OUTPUTS_AT,
    STACK_BYTES,
    TYPE_AT,
    WORDS,
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyErr_Occurred,
    PyLong_AsLongLong,
    PyTuple_New,
    PyTuple_SetItem,
    drop_outputs,
    make_outputs,
    malloc,
    raise_type_error,
    run_block,
)
from tenferro.engines.cpu.native_language import Foreign, Global, c_string, inlined, native, stack
from tenferro.engines.cpu.native_memory import free, memcpy
from tenferro.engines.cpu.native_prelude import atomic_load, load, load32, store
from tenferro.engines.cpu.native_types import SLOT_AT

CLEAN = 2**63 - 1
MAX_ENTRIES = 8
MAX_VALUES = 256
VALUE_BYTES = 8 * MAX_VALUES

# A state, in bytes.
EPOCH, HITS, COUNT, ENTRIES = 0, 8, 16, 24
STATE_WORDS = 3 + MAX_ENTRIES
# An entry, in bytes. NAMES: how many of the values are keywords, whose names stand behind the fixed words. LEFT: calls
# that it still serves, −1 for any number.
OWNER, BLOCK, THREADS, GIVEN, NAMES, RECORDS, LEAVES, DROPS, FORM, LEFT, SERVED, RECORDS_AT, LEAVES_AT = range(
    0, 104, 8
)
ENTRY_WORDS = 13
# A record, in bytes: its words in all, its kind, the value that it looks at, what it expects there.
LENGTH, KIND, VALUE, EXPECTED, PLACE, MORE = range(0, 48, 8)
# Kinds. Those that take an operand have its place among the block's arrays, or −1.
ARRAY, NUMBER, INTEGER, SAME, ABSENT, IN_TUPLE, IN_LIST, IN_DICT, IN_CELL, IN_GLOBALS, HELD, WRAPPED = range(12)
# A result's form, and a leaf of it: output, kind, engine, whether it is a scalar of that engine.
ONE, TUPLE_OF, LIST_OF = range(3)
OUTPUT, LEAF_KIND, LEAF_ENGINE, LEAF_SCALAR, LEAF_WORDS = 0, 8, 16, 24, 4
AS_ARRAY, AS_SCALAR, AS_WRAPPED = range(3)

RANK_AT, SIZES_AT, STRIDES_AT = HEAD + 8, HEAD + 16, HEAD + 24
NPY_ARRAY_ALIGNED = 0x100
# In objects of CPython: the digits of a float, the items of a tuple, of a list, a cell's content, a tuple's length.
NUMBER_AT, ITEMS_AT, LIST_ITEMS_AT, CONTENT_AT, SIZE_AT = HEAD, HEAD + 8, HEAD + 8, HEAD, HEAD
MISS = 1
MOST = 2**63 - 1
RETURN_ARRAY = 76  # PyArray_Return's place in NumPy's table of API functions

# Words: why native calls pause, the epoch of what they may rely on (tenferro.tracer.shortcuts).
SWITCHES = Global("switches", 64)
# Words: the types int, tuple, list, dict, tn.Array; where its slots data, engine and scalar are; the class of bound
# methods.
CALL_OBJECTS = Global("call_objects", 128)
INT, TUPLE_TYPE, LIST_TYPE, DICT_TYPE, WRAPPER, DATA_SLOT, ENGINE_SLOT, SCALAR_SLOT, BOUND = range(0, 72, 8)

PyObject_Vectorcall = Foreign("PyObject_Vectorcall", "ptr", ("ptr", "ptr", "i64", "ptr"))
PyList_New = Foreign("PyList_New", "ptr", ("i64",))
PyList_SetItem = Foreign("PyList_SetItem", "i32", ("ptr", "i64", "ptr"))
PyDict_GetItem = Foreign("PyDict_GetItem", "ptr", ("ptr", "ptr"))
PyDict_Next = Foreign("PyDict_Next", "i32", ("ptr", "ptr", "ptr", "ptr"))
PyDict_Size = Foreign("PyDict_Size", "i64", ("ptr",))
PyErr_Clear = Foreign("PyErr_Clear", "void", ())
PyType_GenericAlloc = Foreign("PyType_GenericAlloc", "ptr", ("ptr", "i64"))
PyArray_Return = Foreign("PyArray_Return", "ptr", ("ptr",))
CALL_SYMBOLS = (
    "PyObject_Vectorcall", "PyList_New", "PyList_SetItem", "PyDict_GetItem", "PyDict_Next",
    "PyDict_Size", "PyErr_Clear", "PyType_GenericAlloc",
)  # fmt: skip


@native
def call_objects_address() -> int:
    """Where the words of CALL_OBJECTS are written at initialisation."""
    return CALL_OBJECTS


@native
def set_switches(address: int) -> int:
    """Where the two words are that pause native calls and make them forget."""
    store(SWITCHES, address)
    return 0


# -- matching ----------------------------------------------------------------------------------------------------------


@inlined
def is_array(record: int, value: int) -> int:
    """Whether an aligned ndarray has the dtype, sizes and strides of a record."""
    if load(value + TYPE_AT) != load(OBJECTS + NDARRAY) or load(value + DESCRIPTOR_AT) != load(record + EXPECTED):
        return 0
    if load32(value + FLAGS_AT) & NPY_ARRAY_ALIGNED == 0:
        return 0
    rank = load32(value + RANK_AT)
    expected = record + MORE
    if rank != load(expected):
        return 0
    end = 8 * rank
    sizes = load(value + SIZES_AT)
    strides = load(value + STRIDES_AT)
    expected += 8
    axis = 0
    while axis < end:
        if load(sizes + axis) != load(expected + axis) or load(strides + axis) != load(expected + end + axis):
            return 0
        axis += 8
    return 1


@native
def is_integer(record: int, value: int) -> int:
    """Whether it is an int of the record's number."""
    if load(value + TYPE_AT) != load(CALL_OBJECTS + INT):
        return 0
    found = PyLong_AsLongLong(value)
    if found == -1 and PyErr_Occurred():
        PyErr_Clear()
        return 0
    return found == load(record + EXPECTED)


@inlined
def fits(record: int, kind: int, value: int) -> int:
    """Whether a value is as its record expects."""
    expected = load(record + EXPECTED)
    if kind == ARRAY:
        return is_array(record, value)
    if kind == NUMBER:
        return load(value + TYPE_AT) == expected
    if kind == INTEGER:
        return is_integer(record, value)
    if kind == SAME:
        return value == expected
    # A dict without a name, which stands behind the words that all records have.
    return PyDict_GetItem(expected, load(record + MORE)) == 0


@native
def open_sequence(items: int, size: int, values: int, count: int) -> int:
    """Append a tuple's or a list's items to the values."""
    k = 0
    while k < size:
        store(values + 8 * (count + k), load(items + 8 * k))
        k += 1
    return count + size


@native
def open_dict(record: int, value: int, values: int, count: int) -> int:
    """Append a dict's values where its keys are the record's, in order; else -1."""
    size = load(record + EXPECTED)
    if load(value + TYPE_AT) != load(CALL_OBJECTS + DICT_TYPE) or PyDict_Size(value) != size:
        return -1
    cursor = stack(24)
    store(cursor, 0)
    k = 0
    while k < size:
        if PyDict_Next(value, cursor, cursor + 8, cursor + 16) == 0 or load(cursor + 8) != load(record + MORE + 8 * k):
            return -1
        store(values + 8 * (count + k), load(cursor + 16))
        k += 1
    return count + size


@native
def open_value(record: int, kind: int, value: int, values: int, count: int) -> int:
    """Append what a container's record brings to light; the new count, or -1 where the value does not fit."""
    size = load(record + EXPECTED)
    if kind == IN_TUPLE:
        if load(value + TYPE_AT) != load(CALL_OBJECTS + TUPLE_TYPE) or load(value + SIZE_AT) != size:
            return -1
        return open_sequence(value + ITEMS_AT, size, values, count)
    if kind == IN_LIST:
        if load(value + TYPE_AT) != load(CALL_OBJECTS + LIST_TYPE) or load(value + SIZE_AT) != size:
            return -1
        return open_sequence(load(value + LIST_ITEMS_AT), size, values, count)
    if kind == IN_DICT:
        return open_dict(record, value, values, count)
    if kind == WRAPPED:
        # EXPECTED: the engine; PLACE: True or False, whether it stands for a NumPy scalar.
        if load(value + TYPE_AT) != load(CALL_OBJECTS + WRAPPER):
            return -1
        if load(value + load(CALL_OBJECTS + ENGINE_SLOT)) != size:
            return -1
        if load(value + load(CALL_OBJECTS + SCALAR_SLOT)) != load(record + PLACE):
            return -1
        inner = load(value + load(CALL_OBJECTS + DATA_SLOT))
    else:
        # EXPECTED: the cell, the dict of globals, or the object itself; PLACE: the name in the dict.
        inner = size
        if kind == IN_CELL:
            inner = load(size + CONTENT_AT)
        if kind == IN_GLOBALS:
            inner = PyDict_GetItem(size, load(record + PLACE))
    if inner == 0:
        return -1
    store(values + 8 * count, inner)
    return count + 1


@inlined
def matches(entry: int, values: int, addresses: int) -> int:
    """How many values there are, if they are such as the entry serves, else -1; the data of its operands then stand in
    ``addresses``."""
    record = entry + load(entry + RECORDS_AT)
    left = load(entry + RECORDS)
    count = load(entry + GIVEN) + load(entry + NAMES)
    while left > 0:
        kind = load(record + KIND)
        value = load(values + 8 * load(record + VALUE))
        if kind <= ABSENT:
            if not fits(record, kind, value):
                return -1
            place = load(record + PLACE)
            if place >= 0:
                if kind == ARRAY:
                    store(addresses + 8 * place, load(value + DATA_AT))
                else:
                    store(addresses + 8 * place, value + NUMBER_AT)
        else:
            count = open_value(record, kind, value, values, count)
            if count < 0:
                return -1
        record += load(record + LENGTH)
        left -= 1
    return count


# -- results -----------------------------------------------------------------------------------------------------------


@inlined
def wrapped(array: int, engine: int, scalar: int) -> int:
    """A tn.Array that takes over the reference to its data; 0 with an exception set, and the data given up."""
    kind = load(CALL_OBJECTS + WRAPPER)
    made = PyType_GenericAlloc(kind, 0)
    if made == 0:
        Py_DecRef(array)
        return 0
    store(made + load(CALL_OBJECTS + DATA_SLOT), array)
    Py_IncRef(engine)
    store(made + load(CALL_OBJECTS + ENGINE_SLOT), engine)
    Py_IncRef(scalar)
    store(made + load(CALL_OBJECTS + SCALAR_SLOT), scalar)
    return made


@inlined
def leaf_of(leaf: int, outputs: int) -> int:
    """A leaf of the result, of an output that it takes over; 0 with an exception set."""
    array = load(outputs + 8 * load(leaf + OUTPUT))
    kind = load(leaf + LEAF_KIND)
    if kind == AS_WRAPPED:
        return wrapped(array, load(leaf + LEAF_ENGINE), load(leaf + LEAF_SCALAR))
    if kind == AS_SCALAR:
        return PyArray_Return(array)
    return array


@inlined
def result_of(entry: int, block: int) -> int:
    """The call's result of a block that has run; takes over all its outputs: each is one leaf, or is dropped."""
    outputs = block + 8 * load(block + 8 * OUTPUTS_AT)
    leaf = entry + load(entry + LEAVES_AT)
    count = load(entry + LEAVES)
    drops = load(entry + DROPS)
    while drops > 0:
        drops -= 1
        Py_DecRef(load(outputs + 8 * load(leaf + 8 * LEAF_WORDS * (count + drops) + OUTPUT)))
    form = load(entry + FORM)
    if form == ONE:
        return leaf_of(leaf, outputs)
    if form == TUPLE_OF:
        result = PyTuple_New(count)
    else:
        result = PyList_New(count)
    if result == 0:
        return drop_outputs(block, load(block + 8 * OUTPUTS))
    k = 0
    failed = 0
    while k < count:
        item = leaf_of(leaf, outputs)
        if item == 0:
            failed = 1
        else:
            if form == TUPLE_OF:
                PyTuple_SetItem(result, k, item)
            else:
                PyList_SetItem(result, k, item)
        leaf += 8 * LEAF_WORDS
        k += 1
    if failed:
        Py_DecRef(result)
        return 0
    return result


# -- calls -------------------------------------------------------------------------------------------------------------


@inlined
def run_entry(entry: int, addresses: int) -> int:
    """The call's result, MISS where Python has to look, or 0 with an exception set."""
    template = load(entry + BLOCK)
    size = 8 * load(template + 8 * WORDS)
    block = stack(STACK_BYTES)
    if size > STACK_BYTES:
        block = malloc(size)
        if block == 0:
            return PyErr_NoMemory()
    memcpy(block, template, size)
    result = run_copied(entry, block, addresses)
    if size > STACK_BYTES:
        free(block)
    return result


@inlined
def run_copied(entry: int, block: int, addresses: int) -> int:
    """``run_entry`` on a copy of its block."""
    made = make_outputs(block)
    if made == -1:
        return MISS
    if made == 0:
        return 0
    wanted = load(block + 8 * OUTPUTS)
    if not run_block(block, load(entry + THREADS), addresses, MAX_VALUES, 1):
        return drop_outputs(block, wanted)
    if atomic_load(block + 8 * LATCH) != CLEAN:
        drop_outputs(block, wanted)
        return MISS
    return result_of(entry, block)


@inlined
def serve_entry(state: int, entry: int, values: int) -> int:
    """The result where the entry serves these values; MISS where not, or 0 with an exception set."""
    addresses = stack(VALUE_BYTES)
    count = matches(entry, values, addresses)
    if count < 0:
        return MISS
    # A run that lets go of the GIL may outlive the entry, and what the caller holds through containers only.
    owner = load(entry + OWNER)
    Py_IncRef(owner)
    first = load(entry + GIVEN) + load(entry + NAMES)
    k = first
    while k < count:
        Py_IncRef(load(values + 8 * k))
        k += 1
    result = run_entry(entry, addresses)
    if result != MISS:
        store(state + HITS, load(state + HITS) + 1)
        store(entry + SERVED, load(entry + SERVED) + 1)
        if load(entry + LEFT) > 0:
            store(entry + LEFT, load(entry + LEFT) - 1)
    while first < count:
        Py_DecRef(load(values + 8 * first))
        first += 1
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


@inlined
def serve_by(receiver: int, arguments: int, given: int, names: int) -> int:
    """The result by the first entry of a state that serves the call, else MISS."""
    state = load(load(receiver + ITEMS_AT) + DATA_AT)
    switches = load(SWITCHES)
    if load(switches) != 0 or load(switches + 8) != load(state + EPOCH):
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
