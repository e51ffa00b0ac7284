"""Which attributes of its object a method reads: a function and a class in, names out.

Followed are the methods and properties of the class that are reached through ``self``. Where ``self`` itself goes
somewhere else (into a call, a container, a closure), any attribute may be read, and the answer is None.
"""

from __future__ import annotations

import dis
from types import FunctionType

_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")


def attributes_read(function: FunctionType, cls: type) -> frozenset[str] | None:
    """The names that ``function``, a method of ``cls``, reads of its first argument; None for "any"."""
    names: set[str] = set()
    waiting, done = [function], set()
    while waiting:
        method = waiting.pop()
        if method.__code__ in done:
            continue
        done.add(method.__code__)
        found = _own_names(method)
        if found is None:
            return None
        names |= found
        for name in found:
            waiting += _functions(getattr(cls, name, None))
        if "__class__" in method.__code__.co_freevars:
            # super().step(x): any definition of a name that the code mentions may be meant.
            waiting += [f for c in cls.__mro__ for n in method.__code__.co_names for f in _functions(vars(c).get(n))]
    return frozenset(names)


def _functions(member: object) -> list[FunctionType]:
    """The Python functions behind a member of a class: a method's own, a property's getter, a wrapped one's."""
    if isinstance(member, FunctionType):
        return [member]
    inner = getattr(member, "fget", None) or getattr(member, "__wrapped__", None)
    return [inner] if isinstance(inner, FunctionType) else []


def _own_names(method: FunctionType) -> set[str] | None:
    code = method.__code__
    if not code.co_argcount:
        return None
    receiver = code.co_varnames[0]
    if receiver in code.co_cellvars:
        return None
    names: set[str] = set()
    expects_attribute = False
    for instruction in dis.get_instructions(code):
        if expects_attribute:
            expects_attribute = False
            if instruction.opname.startswith("LOAD_SUPER"):
                continue
            if instruction.opname not in _ATTRIBUTE:
                return None
            names.add(str(instruction.argval))
        elif "FAST" in instruction.opname:
            # Newer Pythons load two variables in one instruction, and name both.
            named = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            if receiver in named:
                loaded_last = named[-1] == receiver and named.count(receiver) == 1
                if not loaded_last or "LOAD_FAST" not in instruction.opname[-17:]:
                    return None
                expects_attribute = True
    return names
