"""Operators of tn.Array as native calls: once the function behind one has entries, the class looks there first.

An operator is the eager call of a function (``a + b`` of ``add``), so the entries are that function's own; where none
serves, the operator's Python method is called as before.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from tenferro.array import Array

if TYPE_CHECKING:
    from tenferro.shortcuts import Shortcuts

# (function, operands) → the operators that call it with them in this order.
_OF: dict[tuple[str, int], tuple[str, ...]] = {
    ("add", 2): ("__add__",),
    ("subtract", 2): ("__sub__",),
    ("multiply", 2): ("__mul__",),
    ("divide", 2): ("__truediv__",),
    ("floor_divide", 2): ("__floordiv__",),
    ("remainder", 2): ("__mod__",),
    ("less", 2): ("__lt__",),
    ("less_equal", 2): ("__le__",),
    ("greater", 2): ("__gt__",),
    ("greater_equal", 2): ("__ge__",),
    ("equal", 2): ("__eq__",),
    ("not_equal", 2): ("__ne__",),
    ("bitwise_and", 2): ("__and__",),
    ("bitwise_or", 2): ("__or__",),
    ("bitwise_xor", 2): ("__xor__",),
    ("negative", 1): ("__neg__",),
    ("absolute", 1): ("__abs__",),
    ("invert", 1): ("__invert__",),
}


def is_operator(name: str, operands: int) -> bool:
    """Whether an operator calls the function with so many operands."""
    return (name, operands) in _OF


def make_native(name: str, operands: int, shortcuts: Shortcuts) -> None:
    """Have the operators behind the function look at its entries first."""
    for operator in _OF[name, operands]:
        method = vars(Array).get(operator) or getattr(Array, operator)
        setattr(Array, operator, _bound_to_self(shortcuts.serving(method)))


def _bound_to_self(builtin: Any) -> Any:
    """A builtin that takes the object as its first argument, as a Python function in a class does."""
    make = ctypes.pythonapi.PyInstanceMethod_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object]
    return make(builtin)
