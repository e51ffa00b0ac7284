"""Classes whose objects native code is called for: CPython's vectorcall (PEP 590) on types made by ``PyType_FromSpec``.

A class statement cannot ask for a vectorcall, so there are two classes round a Python one. ``Callable`` below it has
room for a function's address in every object; ``native_class`` makes one above it that says so to CPython. An object
of the Python class becomes native when it is given a function and that class, and Python's own again when its class is
set back.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from tenferro.tracer.errors import LoweringError

HEAD = object.__basicsize__
# Where an object has its function, and the first of the slots that its Python class declares.
FUNCTION_AT, SLOT_AT = HEAD, HEAD + 8

# Include/typeslots.h, object.h, structmember.h: numbers of the stable ABI.
_TP_CALL, _TP_DESCR_GET, _TP_DOC, _TP_MEMBERS = 50, 54, 56, 72
_BASETYPE, _HAVE_VECTORCALL, _METHOD_DESCRIPTOR = 1 << 10, 1 << 11, 1 << 17
# Weak references and a dict that CPython keeps in front of the object; the cyclic collector's head.
_LAYOUT = 1 << 3 | 1 << 4 | 1 << 14
_T_PYSSIZET, _READONLY = 19, 1


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("value", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int), ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )  # fmt: skip


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


_keep: list[Any] = []  # what types point to


def _made(name: str, size: int, flags: int, slots: dict[int, int], base: type) -> type:
    written = (_Slot * (len(slots) + 1))(*[_Slot(number, value) for number, value in slots.items()])
    spec = _Spec(name.encode(), size, 0, flags, written)
    _keep.append((written, spec))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(_Spec), ctypes.py_object]
    made: type = make(ctypes.byref(spec), (base,))
    return made


if TYPE_CHECKING:

    class Callable:
        """Objects with room for a function's address."""

        __slots__ = ()

else:
    Callable = _made("tenferro.engines.cpu.native_types.Callable", HEAD + 8, _BASETYPE, {}, object)


_classes: dict[tuple[Any, ...], type] = {}


def native_class(base: type, slot: str, bound: int, is_method: bool) -> type:
    """The class of native objects of a subclass of ``Callable``. ``slot``: the one slot of that class that native code
    reads. ``bound``: the address of its ``__get__``. is_method: ``x.f(y)`` may be called as ``f(x, y)``.

    LoweringError where CPython lays objects out in another way."""
    key = (base, slot, is_method)
    found = _classes.get(key)
    if found is None:
        found = _native_class(base, bound, is_method)
        _check(base, found, slot)
        _classes[key] = found
    return found


def _native_class(base: type, bound: int, is_method: bool) -> type:
    offset = _Member(b"__vectorcalloffset__", _T_PYSSIZET, FUNCTION_AT, _READONLY, None)
    members = (_Member * 2)(offset)
    doc = ctypes.create_string_buffer((base.__doc__ or "").encode())
    _keep.append((members, doc))
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value or 0
    slots = {
        _TP_CALL: call, _TP_DESCR_GET: bound, _TP_DOC: ctypes.addressof(doc), _TP_MEMBERS: ctypes.addressof(members),
    }  # fmt: skip
    flags = _HAVE_VECTORCALL | (_METHOD_DESCRIPTOR if is_method else 0)
    return _made(f"{base.__module__}.{base.__qualname__}", base.__basicsize__, flags, slots, base)


def _check(base: type, made: type, slot: str) -> None:
    """Objects of both classes must be laid out alike, the slot where native code looks for it."""
    for name in ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__"):
        if getattr(base, name) != getattr(made, name):
            raise LoweringError(f"native calls: {name} of a native class is {getattr(made, name)}")
    if (base.__flags__ ^ made.__flags__) & _LAYOUT:
        raise LoweringError(f"native calls: a native class has the flags {made.__flags__:#x}")
    probe: Any = object.__new__(base)
    mark = object()
    setattr(probe, slot, mark)
    found = ctypes.c_size_t.from_address(id(probe) + SLOT_AT).value
    if found != id(mark) or ctypes.c_size_t.from_address(id(probe) + FUNCTION_AT).value:
        raise LoweringError(f"native calls: slot {slot} of {base.__name__} is not where it is looked for")
    try:
        probe.__class__ = made
        probe.__class__ = base
    except TypeError as error:
        raise LoweringError(f"native calls: {error}") from None


def set_function(x: Callable, address: int) -> None:
    """Have a native object call the function at an address."""
    ctypes.c_size_t.from_address(id(x) + FUNCTION_AT).value = address
