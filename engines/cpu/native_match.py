"""Matching: whether a call's values are such as an entry serves, compared record by record.

An *entry* is a list of *records* that look at *values*: the arguments as given, then what records of containers,
attributes, captured variables and tn.Arrays bring to light. ``tenferro.engines.cpu.shortcuts`` writes them. What a
record brings to light is held until the call is over: reading an attribute may run Python, and a run that lets go of
the GIL may outlive the container.
"""

from __future__ import annotations

from tenferro.engines.cpu.native_entry import (
    DATA_AT,
    DESCRIPTOR_AT,
    FLAGS_AT,
    HEAD,
    NDARRAY,
    OBJECTS,
    TYPE_AT,
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyLong_AsLongLong,
)
from tenferro.engines.cpu.native_language import Foreign, Global, inlined, native, stack
from tenferro.engines.cpu.native_prelude import load, load32, store
from tenferro.engines.cpu.native_sizes import NUMBER_BYTES, follow

MAX_VALUES = 256
VALUE_BYTES = 8 * MAX_VALUES

# An entry, in bytes. NAMES: how many of the values are keywords, whose names stand behind the fixed words. LEFT: calls
# that it still serves, −1 for any number. What ends in AT is where something stands, in bytes from the entry's start;
# FORMULA_AT is 0 where sizes are compared. THREADS outside of scopes; SHARE: at most so many in one, 0 for any number.
# CHAIN: where a chain's first operation is in its frame, which stands for the block; 0 for a block.
(
    OWNER, BLOCK, THREADS, GIVEN, NAMES, RECORDS, RECORDS_AT, LEFT, SERVED, LEAVES, LEAVES_AT, FORM, FORM_AT, VIEWS,
    VIEWS_AT, FORMULA_AT, SHARE, CHAIN,
) = range(0, 144, 8)  # fmt: skip
ENTRY_WORDS = 18
# A record, in bytes: its words in all, its kind, the value that it looks at, what it expects there.
LENGTH, KIND, VALUE, EXPECTED, PLACE, MORE = range(0, 48, 8)
# Kinds. Those up to ABSENT only look; those that take an operand have its place among the block's arrays, or −1. The
# others bring values to light.
ARRAY, ANY_SIZES, CLASS, INTEGER, ANY_INTEGER, SAME, EQUAL_TO, WEAK, SIZED, KEYS = range(10)
MEMBER, MISSING, NOT_THERE, NOT_OWN, APART, ABSENT = range(10, 16)
IN_TUPLE, IN_LIST, IN_DICT, IN_CELL, IN_GLOBALS, HELD, WRAPPED, ATTRIBUTE, ITEM = range(16, 25)

RANK_AT, SIZES_AT, STRIDES_AT = HEAD + 8, HEAD + 16, HEAD + 24
NPY_ARRAY_ALIGNED, NPY_ARRAY_WRITEABLE = 0x100, 0x400
# In objects of CPython: the digits of a float, the items of a tuple, of a list, a cell's content, a tuple's length, the
# object of a weak reference.
NUMBER_AT, ITEMS_AT, LIST_ITEMS_AT, CONTENT_AT, SIZE_AT, REFERENT_AT = HEAD, HEAD + 8, HEAD + 8, HEAD, HEAD, HEAD

# Words: the types int, tuple, list, dict, tn.Array; where its slots data, engine and scalar are; the class of bound
# methods; the context variable that holds a scope's number of threads; the class Exception.
CALL_OBJECTS = Global("call_objects", 128)
INT, TUPLE_TYPE, LIST_TYPE, DICT_TYPE, WRAPPER, DATA_SLOT, ENGINE_SLOT, SCALAR_SLOT, BOUND, SCOPE = range(0, 80, 8)
EXCEPTION = 80

PyDict_GetItem = Foreign("PyDict_GetItem", "ptr", ("ptr", "ptr"))
PyDict_Next = Foreign("PyDict_Next", "i32", ("ptr", "ptr", "ptr", "ptr"))
PyDict_Size = Foreign("PyDict_Size", "i64", ("ptr",))
PyErr_Clear = Foreign("PyErr_Clear", "void", ())
PyErr_ExceptionMatches = Foreign("PyErr_ExceptionMatches", "i32", ("ptr",))
PyObject_GetAttr = Foreign("PyObject_GetAttr", "ptr", ("ptr", "ptr"))
PyObject_GenericGetDict = Foreign("PyObject_GenericGetDict", "ptr", ("ptr", "ptr"))
PyObject_GetItem = Foreign("PyObject_GetItem", "ptr", ("ptr", "ptr"))
# (object, name, address of the result) → 1 where it has the attribute, 0 where not, −1 with an exception set.
PyObject_GetOptionalAttr = Foreign("PyObject_GetOptionalAttr", "i32", ("ptr", "ptr", "ptr"))
# (class, name) → what stands there in the class or its bases, no new reference.
_PyType_Lookup = Foreign("_PyType_Lookup", "ptr", ("ptr", "ptr"))
# (object, name, dict or 0, 1 for no exception where there is none)
_PyObject_GenericGetAttrWithDict = Foreign("_PyObject_GenericGetAttrWithDict", "ptr", ("ptr", "ptr", "ptr", "i32"))
OPTIONAL_SYMBOLS: dict[str, tuple[str, ...]] = {
    "PyObject_GetOptionalAttr": ("PyObject_GetOptionalAttr", "_PyObject_LookupAttr"),
    "_PyType_Lookup": ("_PyType_Lookup",),
    "_PyObject_GenericGetAttrWithDict": ("_PyObject_GenericGetAttrWithDict",),
}
"""What not every CPython has, and under which names; the records that need one of them are not written there."""
MATCH_SYMBOLS = (
    "PyDict_GetItem", "PyDict_Next", "PyDict_Size", "PyErr_Clear", "PyErr_ExceptionMatches", "PyObject_GetAttr",
    "PyObject_GenericGetDict", "PyObject_GetItem",
)  # fmt: skip


@native
def call_objects_address() -> int:
    """Where the words of CALL_OBJECTS are written at initialisation."""
    return CALL_OBJECTS


@native
def forgive() -> int:
    """Forget an Exception that reading an attribute has raised: Python is to look. Others, such as an interrupt, end
    the call."""
    if PyErr_ExceptionMatches(load(CALL_OBJECTS + EXCEPTION)):
        PyErr_Clear()
    return 0


# -- records that look -------------------------------------------------------------------------------------------------


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


@inlined
def take_sizes(record: int, value: int, numbers: int) -> int:
    """Write the sizes and strides of an aligned ndarray of the record's dtype and rank to the numbers; 0 for another
    one. MORE: the rank, then where its numbers begin."""
    if load(value + TYPE_AT) != load(OBJECTS + NDARRAY) or load(value + DESCRIPTOR_AT) != load(record + EXPECTED):
        return 0
    if load32(value + FLAGS_AT) & NPY_ARRAY_ALIGNED == 0:
        return 0
    rank = load32(value + RANK_AT)
    if rank != load(record + MORE):
        return 0
    end = 8 * rank
    sizes = load(value + SIZES_AT)
    strides = load(value + STRIDES_AT)
    target = numbers + load(record + MORE + 8)
    axis = 0
    while axis < end:
        store(target + axis, load(sizes + axis))
        store(target + end + axis, load(strides + axis))
        axis += 8
    return 1


@native
def is_integer(record: int, value: int, kind: int, numbers: int) -> int:
    """Whether it is an int of the record's number, or any of 64 bits, which is written to the numbers."""
    if load(value + TYPE_AT) != load(CALL_OBJECTS + INT):
        return 0
    found = PyLong_AsLongLong(value)
    if found == -1 and PyErr_Occurred():
        PyErr_Clear()
        return 0
    if kind == INTEGER:
        return found == load(record + EXPECTED)
    store(numbers + load(record + EXPECTED), found)
    return 1


@native
def is_sized(record: int, value: int) -> int:
    """Whether it is a tuple or list (EXPECTED) of a length (PLACE)."""
    if load(value + TYPE_AT) != load(record + EXPECTED):
        return 0
    return load(value + SIZE_AT) == load(record + PLACE)


@native
def has_keys(record: int, value: int) -> int:
    """Whether it is a dict of the record's keys, in order."""
    size = load(record + EXPECTED)
    if load(value + TYPE_AT) != load(CALL_OBJECTS + DICT_TYPE) or PyDict_Size(value) != size:
        return 0
    cursor = stack(24)
    store(cursor, 0)
    k = 0
    while k < size:
        if PyDict_Next(value, cursor, cursor + 8, cursor + 16) == 0 or load(cursor + 8) != load(record + MORE + 8 * k):
            return 0
        k += 1
    return 1


@native
def is_missing(value: int, name: int) -> int:
    """Whether an object has no such attribute, made up ones included."""
    found = stack(8)
    known = PyObject_GetOptionalAttr(value, name, found)
    if known > 0:
        Py_DecRef(load(found))
    if known < 0:
        forgive()
    return known == 0


@native
def is_not_there(value: int, name: int) -> int:
    """Whether neither an object nor its class has such an attribute."""
    found = _PyObject_GenericGetAttrWithDict(value, name, 0, 1)
    if found:
        Py_DecRef(found)
        return 0
    if PyErr_Occurred():
        forgive()
        return 0
    return 1


@native
def is_not_own(value: int, name: int) -> int:
    """Whether an object's own dict has no such name."""
    names = PyObject_GenericGetDict(value, 0)
    if names == 0:
        forgive()
        return 1
    found = PyDict_GetItem(names, name)
    Py_DecRef(names)
    return found == 0


@native
def is_apart(record: int, value: int, values: int) -> int:
    """Whether an array is writeable and its bytes, from EXPECTED to PLACE, lie apart from those of other arrays."""
    if load32(value + FLAGS_AT) & NPY_ARRAY_WRITEABLE == 0:
        return 0
    low = load(value + DATA_AT) + load(record + EXPECTED)
    high = load(value + DATA_AT) + load(record + PLACE)
    other = record + MORE
    left = load(other)
    other += 8
    while left > 0:
        data = load(load(values + 8 * load(other)) + DATA_AT)
        if low < data + load(other + 16) and data + load(other + 8) < high:
            return 0
        other += 24
        left -= 1
    return 1


@inlined
def fits(record: int, kind: int, value: int, values: int, numbers: int) -> int:
    """Whether a value is as its record expects."""
    expected = load(record + EXPECTED)
    if kind == ARRAY:
        return is_array(record, value)
    if kind == ANY_SIZES:
        return take_sizes(record, value, numbers)
    if kind == CLASS:
        return load(value + TYPE_AT) == expected
    if kind == SAME:
        return value == expected
    if kind == INTEGER or kind == ANY_INTEGER:
        return is_integer(record, value, kind, numbers)
    if kind == EQUAL_TO:
        return value == load(values + 8 * expected)
    if kind == WEAK:
        return value == load(expected + REFERENT_AT)
    if kind == SIZED:
        return is_sized(record, value)
    if kind == KEYS:
        return has_keys(record, value)
    if kind == MEMBER:
        # EXPECTED: what stands in a class under a name (PLACE), 0 for nothing.
        return _PyType_Lookup(value, load(record + PLACE)) == expected
    if kind == MISSING:
        return is_missing(value, expected)
    if kind == NOT_THERE:
        return is_not_there(value, expected)
    if kind == NOT_OWN:
        return is_not_own(value, expected)
    if kind == APART:
        return is_apart(record, value, values)
    # A dict without a name, which stands behind the words that all records have.
    return PyDict_GetItem(expected, load(record + MORE)) == 0


# -- records that bring values to light --------------------------------------------------------------------------------


@native
def let_go(values: int, first: int, count: int) -> int:
    """Give up the values from ``first`` on."""
    while first < count:
        Py_DecRef(load(values + 8 * first))
        first += 1
    return 0


@inlined
def open_sequence(items: int, size: int, values: int, count: int) -> int:
    """Append a tuple's or a list's items to the values."""
    k = 0
    while k < size:
        item = load(items + 8 * k)
        Py_IncRef(item)
        store(values + 8 * (count + k), item)
        k += 1
    return count + size


@native
def open_dict(record: int, value: int, values: int, count: int) -> int:
    """Append a dict's values where its keys are the record's, in order; else -1."""
    if not has_keys(record, value):
        return -1
    size = load(record + EXPECTED)
    cursor = stack(24)
    store(cursor, 0)
    k = 0
    while k < size:
        PyDict_Next(value, cursor, cursor + 8, cursor + 16)
        Py_IncRef(load(cursor + 16))
        store(values + 8 * (count + k), load(cursor + 16))
        k += 1
    return count + size


@native
def inside(record: int, kind: int, value: int) -> int:
    """One value that a record brings to light, with a reference to it; 0 where there is none."""
    expected = load(record + EXPECTED)
    if kind == ATTRIBUTE or kind == ITEM:
        if kind == ATTRIBUTE:
            found = PyObject_GetAttr(value, expected)
        else:
            found = PyObject_GetItem(value, expected)
        if found == 0:
            forgive()
        return found
    if kind == WRAPPED:
        # EXPECTED: the engine; PLACE: True or False, whether it stands for a NumPy scalar.
        if load(value + TYPE_AT) != load(CALL_OBJECTS + WRAPPER):
            return 0
        if load(value + load(CALL_OBJECTS + ENGINE_SLOT)) != expected:
            return 0
        if load(value + load(CALL_OBJECTS + SCALAR_SLOT)) != load(record + PLACE):
            return 0
        found = load(value + load(CALL_OBJECTS + DATA_SLOT))
    else:
        # EXPECTED: the cell, the dict of globals, or the object itself; PLACE: the name in the dict.
        found = expected
        if kind == IN_CELL:
            found = load(expected + CONTENT_AT)
        if kind == IN_GLOBALS:
            found = PyDict_GetItem(expected, load(record + PLACE))
    if found:
        Py_IncRef(found)
    return found


@native
def open_value(record: int, kind: int, value: int, values: int, count: int) -> int:
    """Append what a record brings to light; the new count, or -1 where the value does not fit."""
    size = load(record + EXPECTED)
    if kind == IN_TUPLE:
        # PLACE: the class, a tuple's or a named one's.
        if load(value + TYPE_AT) != load(record + PLACE) or load(value + SIZE_AT) != size:
            return -1
        return open_sequence(value + ITEMS_AT, size, values, count)
    if kind == IN_LIST:
        if load(value + TYPE_AT) != load(CALL_OBJECTS + LIST_TYPE) or load(value + SIZE_AT) != size:
            return -1
        return open_sequence(load(value + LIST_ITEMS_AT), size, values, count)
    if kind == IN_DICT:
        return open_dict(record, value, values, count)
    found = inside(record, kind, value)
    if found == 0:
        return -1
    store(values + 8 * count, found)
    return count + 1


@inlined
def matches(entry: int, values: int, addresses: int) -> int:
    """How many values there are, if they are such as the entry serves; the data of its operands then stand in
    ``addresses``, and what was brought to light is to be let go of. Else -1, with an exception set where the call is to
    end."""
    numbers = stack(NUMBER_BYTES)
    record = entry + load(entry + RECORDS_AT)
    left = load(entry + RECORDS)
    first = load(entry + GIVEN) + load(entry + NAMES)
    count = first
    while left > 0:
        kind = load(record + KIND)
        value = load(values + 8 * load(record + VALUE))
        if kind <= ABSENT:
            if not fits(record, kind, value, values, numbers):
                let_go(values, first, count)
                return -1
            if kind <= CLASS:
                place = load(record + PLACE)
                if place >= 0:
                    if kind == CLASS:
                        store(addresses + 8 * place, value + NUMBER_AT)
                    else:
                        store(addresses + 8 * place, load(value + DATA_AT))
        else:
            found = open_value(record, kind, value, values, count)
            if found < 0:
                let_go(values, first, count)
                return -1
            count = found
        record += load(record + LENGTH)
        left -= 1
    formula = load(entry + FORMULA_AT)
    if formula and not follow(entry + formula, numbers, load(entry + BLOCK)):
        let_go(values, first, count)
        return -1
    return count
