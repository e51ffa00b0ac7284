"""What the user's own instruction asks of a value: the running frames in, the expression that stands there out.

Python and NumPy ask for a truth value, a number or elements by the same few methods whatever the user wrote; the place
of the instruction in its source tells ``max(x, y)``, ``assert x > 0`` and ``math.sin(x)`` apart.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import linecache
import sys
from collections.abc import Iterator
from itertools import islice
from types import FrameType, ModuleType
from typing import Any, Literal

import numpy as np

from tenferro.tracer.lines import is_users
from tenferro.tracer.records import dataclass

Kind = Literal["call", "if", "while", "assert", "choice", "filter", "match", "and", "or", "not", "chain", "in", ""]
# Of these, and of modules, an attribute is found without running any code of the user's.
_OWN_ATTRIBUTES = (list, tuple, dict, set, str, type, np.ufunc)


@dataclass(frozen=True, slots=True)
class Question:
    """``node``: the call, the condition or the comparison. ``around``: the statement or expression that a condition
    decides. ``callee``: what a call calls, where names lead to it."""

    kind: Kind
    node: ast.AST
    around: ast.AST
    callee: Any
    frame: FrameType


def question() -> Question | None:
    """What the user's code is at; None where its source is not at hand."""
    frame = _traced_frame()
    path = [] if frame is None else _path(frame)
    if frame is None or not path:
        return None
    opcode, _ = instruction(frame)
    if opcode.startswith(("CALL", "PRECALL")):
        call = next((n for n in reversed(path) if isinstance(n, ast.Call)), None)
        return None if call is None else Question("call", call, call, _resolved(frame, call.func), frame)
    kind, node, around = _condition(path, opcode)
    return Question(kind, node, around, None, frame)


def _traced_frame() -> FrameType | None:
    """The user's frame within the trace; None where a function that is not the user's is traced (``jit(math.sin)``)."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_users(frame):
        if frame.f_globals.get("__name__") == "tenferro.tracer.entry":
            return None
        frame = frame.f_back
    return frame


def instruction(frame: FrameType) -> tuple[str, int]:
    """The running instruction's name and argument. Where it has called a Python function, the frame stands among the
    cache entries behind it."""
    code, offset = frame.f_code.co_code, frame.f_lasti
    while offset > 0 and dis.opname[code[offset]] == "CACHE":
        offset -= 2
    return dis.opname[code[offset]], code[offset + 1]


def text(node: ast.AST | None, longest: int = 40) -> str:
    """The expression as the user may write it again; empty where it is long."""
    found = "" if node is None else ast.unparse(node)
    return found if len(found) <= longest and "\n" not in found else ""


def value(q: Question, node: ast.expr) -> Any:
    """What names lead to, without running any code of the user's; None where they lead nowhere."""
    return _resolved(q.frame, node)


def _path(frame: FrameType) -> list[ast.AST]:
    """The nodes of the source from the module down to the innermost one that holds the running instruction."""
    code = frame.f_code
    place = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    tree = _tree("".join(linecache.getlines(code.co_filename, frame.f_globals)))
    if tree is None or None in place:
        return []
    line, end_line, column, end_column = place
    start, end = (line, column), (end_line, end_column)
    node: ast.AST | None = tree
    path: list[ast.AST] = []
    while node is not None:
        path.append(node)
        node = next((n for n in _placed(node) if _start(n) <= start and end <= _end(n)), None)
    # Of the instruction's own expression, or of a call that begins on another line than its method's name.
    return path if _end(path[-1]) == end or isinstance(path[-1], ast.Call) else []


@functools.lru_cache(maxsize=8)
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source) if source else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _placed(node: ast.AST) -> Iterator[ast.AST]:
    """The nearest nodes below that have a place; a comprehension's clauses have none of their own."""
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from _placed(child)


def _start(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.Module):
        return 0, 0
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _condition(path: list[ast.AST], opcode: str) -> tuple[Kind, ast.AST, ast.AST]:
    """What a truth value decides: the innermost construct that the last expression of the path is a condition of.
    Before Python 3.12 a jump stands at the construct itself."""
    node = path[-1]
    if any(isinstance(n, ast.pattern) and _end(n) == _end(node) for n in path):
        return "match", node, node
    match node:
        case ast.Compare(ops=[_, _, *_]):
            return "chain", node, node
        case ast.Compare(ops=[ast.In() | ast.NotIn()]) if opcode.startswith("CONTAINS"):
            return "in", node, node
    if isinstance(node, ast.BinOp):  # no condition
        return "", node, node
    for around in reversed(path):
        match around:
            case ast.BoolOp(op=op):
                return "and" if isinstance(op, ast.And) else "or", node, around
            case ast.UnaryOp(op=ast.Not()):
                node = around
                continue
            case ast.If(test=test) if node in (test, around):
                return "if", test, around
            case ast.While(test=test) if node in (test, around):
                return "while", test, around
            case ast.Assert(test=test) if node in (test, around):
                return "assert", test, around
            case ast.IfExp(test=test) if node in (test, around):
                return "choice", test, around
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return "filter", node, around
        if around is not path[-1]:
            break
    return ("not" if isinstance(node, ast.UnaryOp) else ""), node, node


def _resolved(frame: FrameType, node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if node.id in names:
                return names[node.id]
        return None
    if not isinstance(node, ast.Attribute):
        return None
    owner = _resolved(frame, node.value)
    if isinstance(owner, ModuleType):
        return ModuleType.__getattribute__(owner, "__dict__").get(node.attr)
    return getattr(owner, node.attr, None) if type(owner) in _OWN_ATTRIBUTES else None
