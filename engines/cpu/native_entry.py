"""The native entries that Python calls: ``enter`` runs a block of launches over arrays, ``enter_recorded`` notes also
when each launch ran, ``empty_array`` makes an array.

In: CPython's fast-call convention (self, arguments, count), each a 64-bit word. Out: a new reference, or 0 with an
exception set. ``tenferro.engines.cpu.native`` says what a block is and wraps both.
"""

from __future__ import annotations

import numpy as np

from tenferro.engines.cpu.native_language import Foreign, Global, c_string, inlined, native, stack
from tenferro.engines.cpu.native_memory import (
    LIVE,
    MEMORY_STATE,
    free,
    handler_free,
    memcpy,
    memset,
    take,
    unlock_memory,
)
from tenferro.engines.cpu.native_pool import (
    FLOAT_STATE,
    GIL_HELD,
    NO_POLL,
    POLL_NS,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    interrupted,
    region,
    reset_pool,
)
from tenferro.engines.cpu.native_prelude import (
    CONTROL_BITS,
    atomic_load,
    atomic_store,
    load,
    load32,
    monotonic_ns,
    multiply_overflows,
    read_float_control,
    store,
    store32,
    write_float_control,
)

# Words of a block; see Block.
WORDS, LAUNCHES, PATCHES, FLAGS, LATCH, OUTPUTS, OUTPUTS_AT, RECORD, FIXED_WORDS = 0, 1, 2, 3, 4, 5, 6, 7, 8
LAUNCH_WORDS, PATCH_WORDS = 4, 3
# Where a launch has no function it is a scan of a block. Words of its parameters, which the body's block and its table
# lie among: turns, the word where the table's entry 0 is, the word where the block begins.
SCAN_TURNS, SCAN_TABLE, SCAN_BODY, SCAN_WORDS = 1, 2, 3, 4
# Words of a table's entry: the address at the first turn, at even and at odd ones, and what is added for each turn.
FIRST, EVEN, ODD, STEP, ENTRY_WORDS = 0, 8, 16, 24, 4
NOTHING_FOUND = (1 << 63) - 1
WARNING_BIT = 1 << 62
"""Set in the latch's word for a check that warns, so that one that raises comes first. A loop goes on after it."""
TURNS_BETWEEN_POLLS = 64
# Words that are noted of a launch: when it began, when it ended, bytes in live large buffers.
RECORD_WORDS = 3
# Words of an output's description, before its sizes.
DESCRIPTOR, BYTES, OUTPUT_TAG, RANK, OUTPUT_WORDS = 0, 8, 16, 24, 4
HEAVY, HELD_SHIFT = 1, 1
STACK_BYTES = 4096

# Where CPython and NumPy 2 keep what is read here, in bytes; ``native`` checks these against real arrays before first
# use.
HEAD = object.__basicsize__
TYPE_AT = HEAD - 8
DATA_AT, DESCRIPTOR_AT, FLAGS_AT, HANDLER_AT = HEAD, HEAD + 40, HEAD + 48, HEAD + 72
TYPE_NUMBER_AT, ITEM_SIZE_AT = HEAD + 12, HEAD + 24
NPY_ARRAY_CARRAY, NPY_ARRAY_OWNDATA = 0x501, 0x4
MAX_RANK = 64
# Type numbers: bool to complex longdouble, datetime64, timedelta64, float16. No object, text or void.
LAST_COMPLEX, DATETIME, TIMEDELTA, HALF = (np.dtype(c).num for c in ("G", "M", "m", "e"))

# Words: the ndarray type, the dtype type, TypeError, RuntimeError, ShapeError, DtypeError, the handler's capsule, None,
# the tuple type.
OBJECTS = Global("objects", 128)
NDARRAY, DTYPE, TYPE_ERROR, RUNTIME_ERROR, SHAPE_ERROR, DTYPE_ERROR, CAPSULE, NONE, TUPLE = range(0, 72, 8)

PyLong_AsLongLong = Foreign("PyLong_AsLongLong", "i64", ("ptr",))
PyLong_FromLongLong = Foreign("PyLong_FromLongLong", "ptr", ("i64",))
PyErr_Occurred = Foreign("PyErr_Occurred", "ptr", ())
PyErr_SetString = Foreign("PyErr_SetString", "void", ("ptr", "ptr"))
PyErr_NoMemory = Foreign("PyErr_NoMemory", "ptr", ())
Py_IncRef = Foreign("Py_IncRef", "void", ("ptr",))
Py_DecRef = Foreign("Py_DecRef", "void", ("ptr",))
PyTuple_New = Foreign("PyTuple_New", "ptr", ("i64",))
# Takes over the reference to the item.
PyTuple_SetItem = Foreign("PyTuple_SetItem", "i32", ("ptr", "i64", "ptr"))
PyTuple_Size = Foreign("PyTuple_Size", "i64", ("ptr",))
PyTuple_GetItem = Foreign("PyTuple_GetItem", "ptr", ("ptr", "i64"))
PyType_IsSubtype = Foreign("PyType_IsSubtype", "i32", ("ptr", "ptr"))
# Takes over the reference to the descriptor.
PyArray_NewFromDescr = Foreign("PyArray_NewFromDescr", "ptr", ("ptr", "ptr", "i32", "ptr", "ptr", "ptr", "i32", "ptr"))
malloc = Foreign("malloc", "ptr", ("i64",))
# glibc keeps pthread_atfork in its static part and exports this, which takes the handle of a shared object too (0:
# none).
register_atfork = Foreign("__register_atfork", "i32", ("ptr", "ptr", "ptr", "ptr"))
ENTRY_SYMBOLS = ("malloc",)
PYTHON_SYMBOLS = (
    "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals", "PyThread_get_thread_ident", "PyLong_AsLongLong",
    "PyLong_FromLongLong", "PyErr_Occurred", "PyErr_SetString", "PyErr_NoMemory", "Py_IncRef", "Py_DecRef",
    "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size", "PyTuple_GetItem", "PyType_IsSubtype",
)  # fmt: skip
# Its place in NumPy's table of API functions (numpy/_core/code_generators/numpy_api.py).
NEW_FROM_DESCRIPTOR = 94


@native
def raise_type_error(message: int) -> int:
    PyErr_SetString(load(OBJECTS + TYPE_ERROR), message)
    return 0


@native
def check_arrays(arrays: int, count: int) -> int:
    """0 with an exception set where an argument is no exact ndarray."""
    ndarray = load(OBJECTS + NDARRAY)
    position = 0
    while position < count:
        if load(load(arrays + 8 * position) + TYPE_AT) != ndarray:
            return raise_type_error(
                c_string("enter: an argument is not an exact numpy.ndarray; needed one at every array position")
            )
        position += 1
    return 1


@inlined
def fill_patches(block: int, arrays: int, count: int, direct: int) -> int:
    """Write the data addresses of arrays and outputs into a copied block; 0 with an exception set where one is missing.
    ``direct``: ``arrays`` are the addresses themselves."""
    patch = block + 8 * (FIXED_WORDS + LAUNCH_WORDS * load(block + 8 * LAUNCHES))
    end = patch + 8 * PATCH_WORDS * load(block + 8 * PATCHES)
    outputs = block + 8 * load(block + 8 * OUTPUTS_AT)
    while patch < end:
        position = load(patch)
        if position >= 0:
            if position >= count:
                return raise_type_error(
                    c_string("enter: fewer arrays than the block's patches need; needed one for every position")
                )
            data = load(arrays + 8 * position)
            if not direct:
                data = load(data + DATA_AT)
        else:
            data = load(load(outputs + 8 * (-1 - position)) + DATA_AT)
        store(block + 8 * load(patch + 8), data + load(patch + 16))
        patch += 8 * PATCH_WORDS
    return 1


@native
def drop_outputs(block: int, made: int) -> int:
    """Give up the first ``made`` outputs."""
    outputs = block + 8 * load(block + 8 * OUTPUTS_AT)
    while made > 0:
        made -= 1
        Py_DecRef(load(outputs + 8 * made))
    return 0


@native
def make_outputs(block: int) -> int:
    """Make a copied block's output arrays; 1, 0 with an exception set, or -1 where memory cannot be had."""
    wanted = load(block + 8 * OUTPUTS)
    outputs = block + 8 * load(block + 8 * OUTPUTS_AT)
    description = outputs + 8 * wanted
    made = 0
    while made < wanted:
        rank = load(description + RANK)
        dims = description + 8 * OUTPUT_WORDS
        size = load(description + BYTES)
        data = take(size, load(description + OUTPUT_TAG))
        array = 0
        if data:
            array = own_array(data, load(description + DESCRIPTOR), rank, dims, size)
        if array == 0:
            drop_outputs(block, made)
            if data:
                return 0
            return -1
        store(outputs + 8 * made, array)
        description = dims + 8 * rank
        made += 1
    return 1


@inlined
def patch_turn(block: int, table: int, turn: int) -> int:
    """Write the addresses of a turn into a block."""
    patch = block + 8 * (FIXED_WORDS + LAUNCH_WORDS * load(block + 8 * LAUNCHES))
    end = patch + 8 * PATCH_WORDS * load(block + 8 * PATCHES)
    which: int = EVEN
    if turn & 1:
        which = ODD
    if turn == 0:
        which = FIRST
    while patch < end:
        entry = table + 8 * ENTRY_WORDS * load(patch)
        data = load(entry + which) + turn * load(entry + STEP)
        store(block + 8 * load(patch + 8), data + load(patch + 16))
        patch += 8 * PATCH_WORDS
    return 0


@native
def run_scan(params: int, threads: int, thread_state: int) -> int:
    """A block, entered once a turn, each time on other addresses; as ``region`` returns. What its kernels find goes to
    the latch of the block around it."""
    turns = load(params + 8 * SCAN_TURNS)
    table = params + 8 * load(params + 8 * SCAN_TABLE)
    body = params + 8 * load(params + 8 * SCAN_BODY)
    polled = monotonic_ns()
    turn = 0
    result = 0
    while turn < turns and result == 0:
        patch_turn(body, table, turn)
        result = run_launches(body, threads, thread_state)
        turn += 1
        if atomic_load(body + 8 * LATCH) < WARNING_BIT:
            break
        if turn % TURNS_BETWEEN_POLLS == 0 and result == 0:
            now = monotonic_ns()
            if now - polled > POLL_NS:
                polled = now
                result = interrupted(thread_state)
    latch = params + 8 * load(params)
    if atomic_load(body + 8 * LATCH) < atomic_load(latch):
        atomic_store(latch, atomic_load(body + 8 * LATCH))
    return result


@inlined
def run_launches(block: int, threads: int, thread_state: int) -> int:
    """The launches in order, under the floating-point control word of kernels; as ``region`` returns. Where the block
    has the address of a record, each launch is noted there."""
    control = read_float_control()
    wanted = load(FLOAT_STATE)
    is_wanted = control & CONTROL_BITS == wanted & CONTROL_BITS
    if not is_wanted:
        write_float_control(wanted)
    launch = block + 8 * FIXED_WORDS
    end = launch + 8 * LAUNCH_WORDS * load(block + 8 * LAUNCHES)
    record = load(block + 8 * RECORD)
    result = 0
    held = load(block + 8 * FLAGS) >> HELD_SHIFT
    while launch < end and result == 0:
        if held:
            held -= 1
            if held == 0:
                thread_state = NO_POLL
        params = block + 8 * load(launch + 8)
        if record:
            store(record + 16, load(MEMORY_STATE + LIVE))
            store(record, monotonic_ns())
        if load(launch):
            result = region(load(launch), params, load(launch + 16), load(launch + 24), threads, thread_state)
        else:
            result = run_scan(params, threads, thread_state)
        if record:
            store(record + 8, monotonic_ns())
            record += 8 * RECORD_WORDS
        launch += 8 * LAUNCH_WORDS
    if not is_wanted:
        write_float_control(control)
    return result


@native
def run_block(block: int, threads: int, arrays: int, count: int, direct: int) -> int:
    """Patch and run a copied block; 0 with an exception set where it did not run to its end. Arrays as for
    ``fill_patches``."""
    if not fill_patches(block, arrays, count, direct):
        return 0
    heavy = load(block + 8 * FLAGS) & HEAVY
    thread_state: int = GIL_HELD
    if heavy:
        thread_state = PyEval_SaveThread()
    return ended(run_launches(block, threads, thread_state), heavy, thread_state)


@inlined
def ended(result: int, heavy: int, thread_state: int) -> int:
    """Take the GIL back where it was given up, and say whether a region ran to its end; else an exception is set."""
    if heavy:
        PyEval_RestoreThread(thread_state)
    if result == 2:
        PyErr_SetString(
            load(OBJECTS + RUNTIME_ERROR),
            c_string("enter: a signal handler forked; needed the parent's threads to finish"),
        )
    return result == 0


@native
def collect(block: int) -> int:
    """The tuple (latch, outputs …) of a copied block that has run."""
    wanted = load(block + 8 * OUTPUTS)
    outputs = block + 8 * load(block + 8 * OUTPUTS_AT)
    result = PyTuple_New(wanted + 1)
    if result == 0:
        return drop_outputs(block, wanted)
    PyTuple_SetItem(result, 0, PyLong_FromLongLong(atomic_load(block + 8 * LATCH)))
    made = 0
    while made < wanted:
        PyTuple_SetItem(result, made + 1, load(outputs + 8 * made))
        made += 1
    return result


@native
def run_copy(block: int, threads: int, arrays: int, count: int) -> int:
    """All of ``enter`` but the block's copy."""
    if not check_arrays(arrays, count):
        return 0
    wanted = load(block + 8 * OUTPUTS)
    if wanted == 0:
        if not run_block(block, threads, arrays, count, 0):
            return 0
        return PyLong_FromLongLong(atomic_load(block + 8 * LATCH))
    made = make_outputs(block)
    if made == -1:
        Py_IncRef(load(OBJECTS + NONE))
        return load(OBJECTS + NONE)
    if made == 0:
        return 0
    if not run_block(block, threads, arrays, count, 0):
        return drop_outputs(block, wanted)
    return collect(block)


@native
def enter(module: int, arguments: int, count: int) -> int:
    """``enter(block_address, threads, *arrays)`` → latch; with outputs in the block, the tuple (latch, outputs …), or
    None where the memory for them cannot be had."""
    if count < 2:
        return raise_type_error(
            c_string("enter: fewer than 2 arguments; needed a block's address and a number of threads")
        )
    return enter_with(arguments, 0, arguments + 16, count - 2)


@native
def enter_recorded(module: int, arguments: int, count: int) -> int:
    """``enter_recorded(block_address, threads, record_address, *arrays)``: as ``enter``, and RECORD_WORDS words of each
    launch that ran are written to the record."""
    if count < 3:
        return raise_type_error(
            c_string("enter_recorded: fewer than 3 arguments; needed addresses of a block and a record, and threads")
        )
    record = PyLong_AsLongLong(load(arguments + 16))
    if record == -1 and PyErr_Occurred():
        return 0
    return enter_with(arguments, record, arguments + 24, count - 3)


@native
def enter_with(head: int, record: int, arrays: int, count: int) -> int:
    """Run the block of the first argument in ``head`` on as many threads as the second says."""
    template = PyLong_AsLongLong(load(head))
    threads = PyLong_AsLongLong(load(head + 8))
    if (template == -1 or threads == -1) and PyErr_Occurred():
        return 0
    size = 8 * load(template + 8 * WORDS)
    copy = stack(STACK_BYTES)
    if size <= STACK_BYTES:
        memcpy(copy, template, size)
        store(copy + 8 * RECORD, record)
        return run_copy(copy, threads, arrays, count)
    copy = malloc(size)
    if copy == 0:
        return PyErr_NoMemory()
    memcpy(copy, template, size)
    store(copy + 8 * RECORD, record)
    result = run_copy(copy, threads, arrays, count)
    free(copy)
    return result


@native
def read_shape(shape: int, rank: int, dims: int, item_size: int) -> int:
    """Write a tuple's sizes to ``dims``; the bytes of such an array, or -1 with an exception set."""
    total = item_size
    axis = 0
    empty = 0
    while axis < rank:
        size = PyLong_AsLongLong(PyTuple_GetItem(shape, axis))
        if size == -1 and PyErr_Occurred():
            return -1
        if size < 0:
            PyErr_SetString(
                load(OBJECTS + SHAPE_ERROR), c_string("empty: a size is negative; needed sizes of 0 or more")
            )
            return -1
        store(dims + 8 * axis, size)
        if size == 0:
            empty = 1
        else:
            if multiply_overflows(total, size):
                PyErr_SetString(
                    load(OBJECTS + SHAPE_ERROR),
                    c_string("empty: the array exceeds 2**63 bytes; needed a smaller shape"),
                )
                return -1
            total = total * size
        axis += 1
    if empty:
        return 0
    return total


@native
def empty_array(module: int, arguments: int, count: int) -> int:
    """``empty_array(shape, dtype, tag) -> ndarray``, or None where the memory cannot be had."""
    if count != 3:
        return raise_type_error(c_string("empty: wrong number of arguments; needed shape, dtype and tag"))
    descriptor = load(arguments + 8)
    if not PyType_IsSubtype(load(descriptor + TYPE_AT), load(OBJECTS + DTYPE)):
        return raise_type_error(c_string("empty: the second argument is no dtype; needed a numpy.dtype"))
    number = load32(descriptor + TYPE_NUMBER_AT)
    if number > LAST_COMPLEX and number != HALF and number != DATETIME and number != TIMEDELTA:
        PyErr_SetString(
            load(OBJECTS + DTYPE_ERROR), c_string("empty: the dtype is not numeric; needed bool, a number or a time")
        )
        return 0
    if not PyType_IsSubtype(load(load(arguments) + TYPE_AT), load(OBJECTS + TUPLE)):
        return raise_type_error(c_string("empty: the shape is no tuple; needed a tuple of ints"))
    rank = PyTuple_Size(load(arguments))
    if rank > MAX_RANK:
        PyErr_SetString(load(OBJECTS + SHAPE_ERROR), c_string("empty: more than 64 axes; needed at most 64"))
        return 0
    dims = stack(512)
    size = read_shape(load(arguments), rank, dims, load(descriptor + ITEM_SIZE_AT))
    tag = PyLong_AsLongLong(load(arguments + 16))
    if PyErr_Occurred():
        return 0
    data = take(size, tag)
    if data == 0:
        Py_IncRef(load(OBJECTS + NONE))
        return load(OBJECTS + NONE)
    return own_array(data, descriptor, rank, dims, size)


@inlined
def own_array(data: int, descriptor: int, rank: int, dims: int, size: int) -> int:
    """A C-ordered array of ``size`` bytes that owns ``data`` through the handler; 0 with an exception set and ``data``
    freed."""
    strides = 0
    if size == 0:
        # NumPy gives arrays without elements strides of 0.
        strides = stack(512)
        memset(strides, 0, 512)
    Py_IncRef(descriptor)
    array = PyArray_NewFromDescr(load(OBJECTS + NDARRAY), descriptor, rank, dims, strides, data, NPY_ARRAY_CARRAY, 0)
    if array == 0:
        handler_free(0, data, 0)
        return 0
    store32(array + FLAGS_AT, load32(array + FLAGS_AT) | NPY_ARRAY_OWNDATA)
    Py_IncRef(load(OBJECTS + CAPSULE))
    store(array + HANDLER_AT, load(OBJECTS + CAPSULE))
    return array


@native
def objects_address() -> int:
    """Where the words of OBJECTS are written at initialisation."""
    return OBJECTS


@native
def after_fork_in_child() -> int:
    """A child inherits the pool's slots without the threads in them, and the allocator's lock as its parent held it."""
    unlock_memory()
    reset_pool()
    return 0


@native
def watch_forks(before: int, after_in_parent: int, after_in_child: int) -> int:
    """Have libc call these natively, inside ``fork`` itself: a lock held while Python's own fork handlers run would
    make every other thread that takes the GIL and then the lock wait for ever."""
    return register_atfork(before, after_in_parent, after_in_child, 0)
