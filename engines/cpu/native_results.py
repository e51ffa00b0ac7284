"""Results: of a block that has run, the object that a call returns, without Python code.

In: an entry's *views*, *leaves* and *form*. A view is an array on memory of another; a leaf is an array that the block
made, a view, an argument, a size, or an object that every call returns; the form says how leaves lie in containers.
"""

from __future__ import annotations

from tenferro.engines.cpu.native_entry import (
    DATA_AT,
    FLAGS_AT,
    NDARRAY,
    OBJECTS,
    OUTPUTS,
    Py_DecRef,
    Py_IncRef,
    PyArray_NewFromDescr,
    PyLong_FromLongLong,
    PyTuple_New,
    PyTuple_SetItem,
    drop_outputs,
)
from tenferro.engines.cpu.native_language import Foreign, inlined, native, stack
from tenferro.engines.cpu.native_match import (
    CALL_OBJECTS,
    DATA_SLOT,
    ENGINE_SLOT,
    FORM,
    FORM_AT,
    ITEMS_AT,
    LEAVES,
    LEAVES_AT,
    SCALAR_SLOT,
    VALUE_BYTES,
    VIEWS,
    VIEWS_AT,
    WRAPPER,
    PyObject_GetAttr,
    let_go,
)
from tenferro.engines.cpu.native_prelude import load, load32, store

# A view, in bytes of the block: the array that is made, what it is a view of (a byte offset in the block of an array
# that the block makes, or −1 minus a value's number), its dtype, byte offset and rank, then sizes and strides.
VIEW_MADE, VIEW_OF, VIEW_DESCRIPTOR, VIEW_OFFSET, VIEW_RANK, VIEW_SIZES = range(0, 48, 8)
# A leaf, in bytes: where it comes from, which one there, what it becomes; the wrapper's engine and whether it is a
# scalar there, or the name of the method that gives the number.
LEAF_SOURCE, LEAF_WHICH, LEAF_KIND, LEAF_ENGINE, LEAF_SCALAR = range(0, 40, 8)
LEAF_WORDS = 5
# Sources. MADE: an array at a byte offset of the block, which the leaf takes over; VALUE: a value's number; OBJECT: an
# address; AGAIN: an earlier leaf; SIZE: a number at a byte offset of the block.
MADE, GIVEN_VALUE, OBJECT, AGAIN, SIZE = range(5)
AS_IS, AS_SCALAR, AS_WRAPPED, AS_NUMBER = range(4)
# A form's words: a kind; of a CONSTANT the object; of a container how many items it has and the address of a tuple: a
# dict's keys, the class that is CALLED with the items, the class of a RECORD and the names of its attributes.
LEAF, IN_TUPLES, IN_LISTS, IN_DICTS, CALLED, RECORD, CONSTANT = range(7)

NPY_ARRAY_WRITEABLE = 0x400
RETURN_ARRAY, SET_BASE = 76, 282  # their places in NumPy's table of API functions

PyList_New = Foreign("PyList_New", "ptr", ("i64",))
PyList_SetItem = Foreign("PyList_SetItem", "i32", ("ptr", "i64", "ptr"))
PyDict_New = Foreign("PyDict_New", "ptr", ())
PyDict_SetItem = Foreign("PyDict_SetItem", "i32", ("ptr", "ptr", "ptr"))
PyType_GenericAlloc = Foreign("PyType_GenericAlloc", "ptr", ("ptr", "i64"))
PyObject_GenericSetAttr = Foreign("PyObject_GenericSetAttr", "i32", ("ptr", "ptr", "ptr"))
PyObject_Vectorcall = Foreign("PyObject_Vectorcall", "ptr", ("ptr", "ptr", "i64", "ptr"))
# Takes over the reference to the array.
PyArray_Return = Foreign("PyArray_Return", "ptr", ("ptr",))
# Takes over the reference to the base.
PyArray_SetBaseObject = Foreign("PyArray_SetBaseObject", "i32", ("ptr", "ptr"))
RESULT_SYMBOLS = (
    "PyList_New", "PyList_SetItem", "PyDict_New", "PyDict_SetItem", "PyType_GenericAlloc", "PyObject_GenericSetAttr",
    "PyObject_Vectorcall",
)  # fmt: skip


@native
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


@native
def number_of(array: int, method: int) -> int:
    """What a method of an array gives; takes over the reference to the array."""
    function = PyObject_GetAttr(array, method)
    Py_DecRef(array)
    if function == 0:
        return 0
    result = PyObject_Vectorcall(function, 0, 0, 0)
    Py_DecRef(function)
    return result


@inlined
def leaf_of(leaf: int, block: int, values: int, leaves: int) -> int:
    """A leaf, with a reference to it; 0 with an exception set."""
    source = load(leaf + LEAF_SOURCE)
    which = load(leaf + LEAF_WHICH)
    if source == MADE:
        found = load(block + which)
        store(block + which, 0)
    else:
        if source == SIZE:
            return PyLong_FromLongLong(load(block + which))
        found = which
        if source == GIVEN_VALUE:
            found = load(values + 8 * which)
        if source == AGAIN:
            found = load(leaves + 8 * which)
        Py_IncRef(found)
    kind = load(leaf + LEAF_KIND)
    if kind == AS_WRAPPED:
        return wrapped(found, load(leaf + LEAF_ENGINE), load(leaf + LEAF_SCALAR))
    if kind == AS_SCALAR:
        return PyArray_Return(found)
    if kind == AS_NUMBER:
        return number_of(found, load(leaf + LEAF_ENGINE))
    return found


@native
def view_of(view: int, base: int) -> int:
    """A view, by its words, of an array; 0 with an exception set."""
    rank = load(view + VIEW_RANK)
    descriptor = load(view + VIEW_DESCRIPTOR)
    data = load(base + DATA_AT) + load(view + VIEW_OFFSET)
    flags = load32(base + FLAGS_AT) & NPY_ARRAY_WRITEABLE
    sizes = view + VIEW_SIZES
    Py_IncRef(descriptor)
    made = PyArray_NewFromDescr(load(OBJECTS + NDARRAY), descriptor, rank, sizes, sizes + 8 * rank, data, flags, 0)
    if made == 0:
        return 0
    Py_IncRef(base)
    if PyArray_SetBaseObject(made, base):
        Py_DecRef(made)
        return 0
    return made


@native
def make_views(entry: int, block: int, values: int) -> int:
    """The entry's views, into the block; 0 with an exception set."""
    view = block + load(entry + VIEWS_AT)
    left = load(entry + VIEWS)
    while left > 0:
        of = load(view + VIEW_OF)
        if of >= 0:
            base = load(block + of)
        else:
            base = load(values + 8 * (-1 - of))
        made = view_of(view, base)
        if made == 0:
            return 0
        store(view + VIEW_MADE, made)
        view += VIEW_SIZES + 16 * load(view + VIEW_RANK)
        left -= 1
    return 1


@native
def drop_views(entry: int, block: int) -> int:
    """Give up the views that no leaf has taken over."""
    view = block + load(entry + VIEWS_AT)
    left = load(entry + VIEWS)
    while left > 0:
        Py_DecRef(load(view + VIEW_MADE))
        view += VIEW_SIZES + 16 * load(view + VIEW_RANK)
        left -= 1
    return 0


@native
def container_of(form: int, items: int) -> int:
    """A container that takes over its items; 0 with an exception set, and they are given up."""
    kind = load(form)
    count = load(form + 8)
    named = load(form + 16) + ITEMS_AT
    if kind == CALLED:
        made = PyObject_Vectorcall(load(named), items, count, 0)
        let_go(items, 0, count)
        return made
    made = 0
    if kind == RECORD:
        made = PyType_GenericAlloc(load(named), 0)
        named += 8
    if kind == IN_TUPLES:
        made = PyTuple_New(count)
    if kind == IN_LISTS:
        made = PyList_New(count)
    if kind == IN_DICTS:
        made = PyDict_New()
    if made == 0:
        return let_go(items, 0, count)
    k = 0
    while k < count:
        item = load(items + 8 * k)
        k += 1
        if kind == IN_TUPLES:
            PyTuple_SetItem(made, k - 1, item)
        if kind == IN_LISTS:
            PyList_SetItem(made, k - 1, item)
        if kind == IN_DICTS or kind == RECORD:
            name = load(named + 8 * (k - 1))
            if kind == IN_DICTS:
                failed = PyDict_SetItem(made, name, item)
            else:
                failed = PyObject_GenericSetAttr(made, name, item)
            Py_DecRef(item)
            if failed:
                let_go(items, k, count)
                Py_DecRef(made)
                return 0
    return made


@native
def assembled(entry: int, leaves: int) -> int:
    """The leaves in their containers; takes them over. 0 with an exception set."""
    items = stack(VALUE_BYTES)
    form = entry + load(entry + FORM_AT)
    end = form + 8 * load(entry + FORM)
    top = 0
    used = 0
    while form < end:
        kind = load(form)
        if kind == LEAF:
            store(items + 8 * top, load(leaves + 8 * used))
            used += 1
            form += 8
        if kind == CONSTANT:
            Py_IncRef(load(form + 8))
            store(items + 8 * top, load(form + 8))
            form += 16
        if kind != LEAF and kind != CONSTANT:
            top -= load(form + 8)
            made = container_of(form, items + 8 * top)
            if made == 0:
                let_go(items, 0, top)
                return let_go(leaves, used, load(entry + LEAVES))
            store(items + 8 * top, made)
            form += 24
        top += 1
    return load(items)


@inlined
def result_of(entry: int, block: int, values: int) -> int:
    """The call's result of a block that has run; takes over all its outputs. 0 with an exception set."""
    leaves = stack(VALUE_BYTES)
    has_views = load(entry + VIEWS)
    count = load(entry + LEAVES)
    leaf = entry + load(entry + LEAVES_AT)
    k = 0
    if has_views == 0 or make_views(entry, block, values):
        while k < count:
            found = leaf_of(leaf, block, values, leaves)
            if found == 0:
                break
            store(leaves + 8 * k, found)
            leaf += 8 * LEAF_WORDS
            k += 1
    if has_views:
        drop_views(entry, block)
    # Those that a leaf has taken over are there no longer.
    drop_outputs(block, load(block + 8 * OUTPUTS))
    if k < count:
        return let_go(leaves, 0, k)
    if load(entry + FORM) == 0:
        return load(leaves)
    return assembled(entry, leaves)
