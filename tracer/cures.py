"""The cure for a question that a traced value cannot answer: what the user's code asks in, the words for it out.

``Cure``: by what name the error calls what was done, and what does the same with traced values.
"""

from __future__ import annotations

import ast
import builtins
import cmath
import math
from typing import Any

import numpy as np

from tenferro.tracer.asking import Question, text, value
from tenferro.tracer.records import dataclass

FORMAT = "return it and format it outside, or print it at each call by tenferro.debug.print"
_BY_WHERE = "numpy.where({}, {}, {}) chooses by a traced condition"
_LOOP = "keep the while loop outside and jit its body, or write it as tenferro.lax.while_loop"
_LISTS = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)
_OF_MATH = {"fsum": "sum", "ulp": "spacing", "remainder": "", "prod": "prod", "dist": "", "modf": "", "frexp": ""}
_OF_LAX = {"erf": "erf", "erfc": "erfc", "lgamma": "lgamma"}
_CONVERSIONS: dict[Any, str] = {float: "float", int: "int", complex: "complex"}


@dataclass(frozen=True, slots=True)
class Cure:
    """``head``: what the error is about, in the user's words. ``found``: what met it there. ``needed``: the cure."""

    head: str
    needed: str
    found: str = "of a traced value, which has no elements yet"


def truth(q: Question) -> Cure | None:
    """For a truth value; None where nothing better is known than what is said of ``bool``."""
    match q.kind:
        case "call":
            return _of_call(q, "bool")
        case "if":
            assert isinstance(q.around, ast.If)
            if isinstance(q.around.body[0], ast.Raise):
                return Cure("if", "return the condition and raise outside, where it is known")
            return Cure("if", _BY_WHERE.format(_condition(q.node) or "condition", "a", "b"))
        case "while":
            return Cure("while", _LOOP)
        case "assert":
            return Cure("assert", "tenferro.check(condition, message) raises where it fails")
        case "choice":
            assert isinstance(q.around, ast.IfExp)
            parts = [_condition(q.node), text(q.around.body, 24), text(q.around.orelse, 24)]
            return Cure("if", _BY_WHERE.format(*(parts if all(parts) else ("condition", "a", "b"))))
        case "filter":
            return Cure("if", "a mask chooses elements, as in x[x > 0], and numpy.where keeps their number")
        case "match":
            return Cure("match", "numpy.select([x == 1, x == 2], [a, b], c) chooses by traced conditions")
        case "and" | "or":
            assert isinstance(q.around, ast.BoolOp)
            return Cure(q.kind, f"{_joined(f'logical_{q.kind}', q.around.values)} takes traced conditions")
        case "not":
            operand = q.node.operand if isinstance(q.node, ast.UnaryOp) else None
            return Cure("not", f"numpy.logical_not({text(operand) or 'x'}) takes a traced condition")
        case "chain":
            return _of_chain(q)
        case "in":
            return _of_membership(q)
        case _:
            return None


def number(q: Question, asked: str) -> Cure | None:
    """For ``asked``: "int", "float", "complex" or "index"."""
    match q.node:
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str()) | ast.JoinedStr()):
            return Cure("format", FORMAT)
    return _of_call(q, asked) if q.kind == "call" else None


def elements(q: Question) -> Cure | None:
    """For what NumPy asks of an argument of its own that dispatch does not see."""
    call = q.node
    if q.kind != "call" or not isinstance(call, ast.Call):
        return None
    if isinstance(q.callee, type) and issubclass(q.callee, np.generic):
        return Cure(f"numpy.{q.callee.__name__}", f"{_argument(call)}.astype(numpy.{q.callee.__name__}) converts one")
    name = _numpy_name(q.callee)
    if not name:
        return None
    k = next((k for k, x in enumerate(call.args) if _is_list(q, x)), None)
    if k is None:
        return Cure(name, f"return the value and call {name} outside")
    is_nested = isinstance(call.args[k], _LISTS) and any(_is_list(q, x) for x in getattr(call.args[k], "elts", ()))
    join = "numpy.array" if is_nested else "numpy.stack"
    stacked = [f"{join}({text(x, 60)})" if k == j else text(x) for j, x in enumerate(call.args)]
    stacked += [f"{w.arg}={text(w.value)}" for w in call.keywords if w.arg]
    is_short = all(stacked) and f"{join}()" not in stacked and not isinstance(call.args[k], ast.GeneratorExp)
    shown = ", ".join(stacked) if is_short else "numpy.stack([a, b])"
    found = "of a list of traced values, which have no elements yet"
    return Cure(name, f"{name}({shown}) takes them as one array", found)


# -- calls -----------------------------------------------------------------------------------------------------------


def _of_call(q: Question, asked: str) -> Cure | None:
    call, callee = q.node, q.callee
    assert isinstance(call, ast.Call)
    if callee is builtins.max or callee is builtins.min:
        return _of_extreme(q, call)
    if callee is builtins.sorted:
        return Cure("sorted", f"numpy.sort({_stacked(q, call)}) sorts traced values")
    if type(getattr(callee, "__self__", None)) in (list, tuple):
        return _of_list(q, call)
    if callee is builtins.any or callee is builtins.all:
        return Cure(callee.__name__, f"numpy.{callee.__name__}({_argument(call)}) takes traced values")
    if callee is builtins.round:
        return Cure("round", f"numpy.round({_argument(call)}) rounds traced values")
    if callee is builtins.range:
        return Cure(
            "range",
            "an int argument or a size of x.shape is known, and tenferro.lax.fori_loop takes a traced number of turns",
        )
    if callee is builtins.bool:
        return Cure("bool", _BY_WHERE.format(_argument(call, "condition"), "a", "b"))
    if callee in _CONVERSIONS if isinstance(callee, type) else False:
        name = _CONVERSIONS[callee]
        return Cure(name, f"{_argument(call)}.astype({name}) converts one, or return it and convert outside")
    if getattr(callee, "__module__", None) in ("math", "cmath"):
        return _of_math(callee, call)
    return _of_any(q, call, asked)


def _of_extreme(q: Question, call: ast.Call) -> Cure:
    name = q.callee.__name__
    if any(w.arg == "key" for w in call.keywords):
        return Cure(name, f"x[numpy.arg{name}(keys)] is the {name} by traced keys")
    if len(call.args) == 1:
        return Cure(name, f"numpy.{name}({_stacked(q, call)}) takes traced values")
    both = [text(x, 24) for x in call.args]
    shown = ", ".join(both) if len(both) == 2 and all(both) else "a, b"
    return Cure(name, f"numpy.{name}imum({shown}) takes traced values")


def _of_list(q: Question, call: ast.Call) -> Cure | None:
    """A list's own method, which compares elements."""
    name, held = q.callee.__name__, text(getattr(call.func, "value", None), 24) or "x"
    if name == "sort":
        return Cure("sort", f"numpy.sort(numpy.stack({held})) sorts traced values")
    equal = f"numpy.array({held}) == {_argument(call, 'value')}"
    if name == "index":
        return Cure("index", f"numpy.argmax({equal}) is the first place among traced values")
    return Cure(name, f"numpy.sum({equal}) counts traced values") if name == "count" else None


def _of_math(callee: Any, call: ast.Call) -> Cure:
    from tenferro.tracer.api.lax_registry import LAX
    from tenferro.tracer.api.record import API

    own, name = f"{callee.__module__}.{callee.__name__}", callee.__name__
    found = _OF_MATH.get(name, name)
    arguments = [text(x) for x in call.args]
    is_plain = all(arguments) and not (name == "log" and len(arguments) > 1)
    shown = ", ".join(arguments) if is_plain else "x"
    if found in API and callee in (getattr(math, name, None), getattr(cmath, name, None)):
        return Cure(own, f"numpy.{found}({shown}) takes traced values")
    if _OF_LAX.get(name) in LAX:
        return Cure(own, f"tenferro.lax.{_OF_LAX[name]}({shown}) takes traced values")
    return Cure(own, f"return the value and call {own} outside")


def _of_any(q: Question, call: ast.Call, asked: str) -> Cure | None:
    """A function that asks an argument for a number, or compares and asks which is so."""
    name = _numpy_name(q.callee) or text(call.func)
    if not name:
        return None
    what = {"bool": "the truth", "index": "the int"}.get(asked, f"the {asked}")
    return Cure(
        name,
        f"NumPy's functions take traced values, or return it and call {name} outside",
        f"asks for {what} of a traced value, which has no elements yet",
    )


# -- conditions ------------------------------------------------------------------------------------------------------


def _condition(node: ast.AST) -> str:
    """A condition that a traced value can be; Python's ``and``, ``or`` and ``not`` are none."""
    is_pythons = isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
    return "" if is_pythons else text(node)


def _of_chain(q: Question) -> Cure:
    assert isinstance(q.node, ast.Compare)
    sides = [q.node.left, *q.node.comparators]
    pairs = [ast.Compare(a, [op], [b]) for a, op, b in zip(sides, q.node.ops, sides[1:], strict=False)]
    return Cure("and", f"{_joined('logical_and', pairs)} takes the comparisons one by one")


def _of_membership(q: Question) -> Cure:
    assert isinstance(q.node, ast.Compare)
    wanted, (held,) = text(q.node.left, 24), q.node.comparators
    array = text(held, 24)
    if array and _is_list(q, held):
        array = f"numpy.array({array})"
    if isinstance(q.node.ops[0], ast.NotIn):
        return Cure("not in", f"numpy.all({array or 'x'} != {wanted or 'value'}) asks the same of traced values")
    return Cure("in", f"numpy.any({array or 'x'} == {wanted or 'value'}) asks the same of traced values")


def _joined(function: str, values: list[Any]) -> str:
    """``numpy.logical_and(a, b)`` of the user's own conditions, where they are two short ones."""
    shown = [text(v, 30) for v in values]
    return f"numpy.{function}({', '.join(shown) if len(shown) == 2 and all(shown) else 'a, b'})"


# -- texts -----------------------------------------------------------------------------------------------------------


def _argument(call: ast.Call, otherwise: str = "x") -> str:
    """The text of a call's one argument."""
    first = call.args[0] if len(call.args) == 1 and not isinstance(call.args[0], ast.GeneratorExp) else None
    return text(first) or otherwise


def _stacked(q: Question, call: ast.Call) -> str:
    """The one argument, or the list whose method is called, as one array."""
    given = call.args[0] if call.args else getattr(call.func, "value", None)
    shown = text(given) or "x"
    return f"numpy.stack({shown})" if given is not None and _is_list(q, given) else shown


def _is_list(q: Question, node: ast.expr) -> bool:
    return isinstance(node, _LISTS) or type(value(q, node)) in (list, tuple)


def _numpy_name(callee: Any) -> str:
    """A function of NumPy by its public name; empty for any other."""
    owner = getattr(callee, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"numpy.{owner.__name__}.{callee.__name__}"
    if isinstance(callee, np.ufunc):
        return f"numpy.{callee.__name__}"
    module = getattr(callee, "__module__", None) or ""
    if module != "numpy" and not module.startswith("numpy."):
        return ""
    return f"{module.partition('._')[0]}.{getattr(callee, '__name__', '')}"
