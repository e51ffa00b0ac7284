"""The runtime's native functions: functions in a small subset of Python in, LLVM text out.

No C compiler may be assumed, and LLVM text by hand has no loops or variables that a person can read; so the pool, the
allocator and the entry are written as plain functions under ``@native`` and translated. Every value is a 64-bit
integer, an address included. The subset: assignment to names, ``if``, ``while``, ``break``, ``continue``, ``return``,
calls by position of other native functions and of ``Foreign`` ones; arithmetic with wrap-around, logical ``>>``,
unsigned ``//`` and ``%``, signed comparisons; ``and``, ``or``, ``not`` in conditions; module constants (int),
``Global``, ``stack``, ``c_string`` and ``call_address``. LLVM's passes make registers of the variables, and put
functions under ``@inlined`` in place of their calls.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeVar

from tenferro.tracer.records import dataclass

F = TypeVar("F", bound=Callable[..., int])

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "lshr",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge",
}  # fmt: skip


class NativeSyntaxError(SyntaxError):
    """A function under ``@native`` uses something outside the subset."""


@dataclass(frozen=True)
class Foreign:
    """A function defined elsewhere: by the prelude, libc, CPython or NumPy. ``result`` and ``parameters`` are LLVM
    types; ``variadic`` parameters follow the listed ones as ``i64``."""

    name: str
    result: str
    parameters: tuple[str, ...]
    is_prelude: bool = False
    variadic: bool = False

    def __call__(self, *arguments: int) -> int:
        raise TypeError(f"{self.name} is native code; needed a caller under @native")

    @property
    def declaration(self) -> str:
        parameters = ", ".join([*self.parameters, *(["..."] if self.variadic else [])])
        return f"declare {self.result} @{self.name}({parameters})"


class Global(int):
    """Zeroed memory of the native module, 64-byte aligned; native code sees its address."""

    name: str
    size: int

    def __new__(cls, name: str, size: int) -> Global:
        self = super().__new__(cls)
        self.name, self.size = name, size
        return self


def native(function: F) -> F:
    """Mark a function for translation."""
    function.__is_native__ = True  # type: ignore[attr-defined]
    return function


def inlined(function: F) -> F:
    """Mark a function for translation in place of its calls: it has no address."""
    function.__is_inlined__ = True  # type: ignore[attr-defined]
    return native(function)


def stack(size: int) -> int:
    """The address of ``size`` bytes (a literal or constant) that live as long as the call, 64-byte aligned."""
    raise TypeError("stack is native code; needed a caller under @native")


def c_string(text: str) -> int:
    """The address of a literal's bytes, with a zero behind them."""
    raise TypeError("c_string is native code; needed a caller under @native")


def call_address(address: int, *arguments: int) -> None:
    """Call the function at an address, which returns nothing."""
    raise TypeError("call_address is native code; needed a caller under @native")


def native_names(module: ModuleType) -> list[str]:
    """The names of a module's own native functions."""
    return [
        name for name, value in vars(module).items()
        if getattr(value, "__is_native__", False) and value.__module__ == module.__name__
    ]  # fmt: skip


def translate(modules: Iterable[ModuleType], prelude: str) -> str:
    """LLVM text of all native functions of the modules, with the globals and declarations that they use.

    Functions keep their names, which are therefore unique across the modules."""
    bodies: list[str] = []
    globals_: dict[str, Global] = {}
    foreign: dict[str, Foreign] = {}
    strings: dict[str, str] = {}
    for module in modules:
        scope = vars(module)
        globals_ |= {v.name: v for v in scope.values() if isinstance(v, Global)}
        foreign |= {v.name: v for v in scope.values() if isinstance(v, Foreign)}
        names = set(native_names(module))
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.FunctionDef) and node.name in names:
                bodies.append(_Translator(node, scope, strings).text())
    head = [f"@{g.name} = internal global [{g.size} x i8] zeroinitializer, align 64" for g in globals_.values()]
    head += [f.declaration for f in foreign.values() if not f.is_prelude]
    head += [f'@{name} = private constant [{len(s) + 1} x i8] c"{s}\\00"' for s, name in strings.items()]
    return "\n".join([*head, prelude, *bodies, ""])


class _Translator:
    """One function. Variables live in allocas at its top; the passes promote them."""

    def __init__(self, node: ast.FunctionDef, scope: dict[str, Any], strings: dict[str, str]) -> None:
        self.node = node
        self.scope = scope
        self.strings = strings
        self.is_inlined = getattr(scope[node.name], "__is_inlined__", False)
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.variables: set[str] = set()
        self.loops: list[tuple[str, str]] = []
        self.count = 0

    def text(self) -> str:
        names = [a.arg for a in self.node.args.args]
        for name in names:
            self.assign(name, f"%{name}.in")
        terminated = self.block(self.node.body)
        if not terminated:
            self.emit("ret i64 0")
        parameters = ", ".join(f"i64 %{n}.in" for n in names)
        body = "\n".join(
            f"  {line}" if not line.endswith(":") else line for line in ["entry:", *self.entry, *self.lines]
        )
        linkage, mark = ("internal ", " alwaysinline") if self.is_inlined else ("", "")
        return f"define {linkage}i64 @{self.node.name}({parameters}) nounwind{mark} {{\n{body}\n}}"

    def refuse(self, node: ast.AST, what: str) -> NativeSyntaxError:
        return NativeSyntaxError(
            f"{self.node.name}, line {getattr(node, 'lineno', 0)}: {what} is outside the native subset"
        )

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def fresh(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}.{self.count}"

    def value(self, line: str) -> str:
        name = "%" + self.fresh()
        self.emit(f"{name} = {line}")
        return name

    def label(self, name: str) -> None:
        self.emit(f"{name}:")

    def assign(self, name: str, value: str) -> None:
        if name not in self.variables:
            self.variables.add(name)
            self.entry.append(f"%{name}.v = alloca i64")
        self.emit(f"store i64 {value}, ptr %{name}.v")

    def block(self, statements: list[ast.stmt]) -> bool:
        """Translate statements; whether control cannot reach their end."""
        finished = [self.statement(s) for s in statements]
        return any(finished)

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.assign(name, self.expression(value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.assign(name, self.expression(value))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                total = ast.BinOp(left=ast.Name(id=name, ctx=ast.Load()), op=op, right=value)
                self.assign(name, self.expression(total))
            case ast.Return(value=value):
                self.emit(f"ret i64 {self.expression(value) if value is not None else 0}")
                return True
            case ast.If():
                return self.branch(node)
            case ast.While(orelse=[]):
                self.loop(node)
            case ast.Break() | ast.Continue():
                start, end = self.loops[-1]
                self.emit(f"br label %{end if isinstance(node, ast.Break) else start}")
                return True
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Expr(value=ast.Call() as call):
                self.expression(call)
            case _:
                raise self.refuse(node, type(node).__name__)
        return False

    def branch(self, node: ast.If) -> bool:
        yes, no, end = self.fresh("then"), self.fresh("else"), self.fresh("end")
        self.condition(node.test, yes, no)
        finished = []
        for name, body in ((yes, node.body), (no, node.orelse)):
            self.label(name)
            finished.append(self.block(body))
            if not finished[-1]:
                self.emit(f"br label %{end}")
        if not all(finished):
            self.label(end)
        return all(finished)

    def loop(self, node: ast.While) -> None:
        start, body, end = self.fresh("while"), self.fresh("do"), self.fresh("done")
        self.emit(f"br label %{start}")
        self.label(start)
        self.condition(node.test, body, end)
        self.label(body)
        self.loops.append((start, end))
        if not self.block(node.body):
            self.emit(f"br label %{start}")
        self.loops.pop()
        self.label(end)

    def condition(self, node: ast.expr, yes: str, no: str) -> None:
        """Branch to ``yes`` or ``no``, evaluating no more operands than needed."""
        match node:
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    following = self.fresh("next")
                    targets = (following, no) if isinstance(op, ast.And) else (yes, following)
                    self.condition(value, *targets)
                    self.label(following)
                self.condition(values[-1], yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand, no, yes)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                lhs, rhs = self.expression(left), self.expression(right)
                bit = self.value(f"icmp {_COMPARISONS[type(op)]} i64 {lhs}, {rhs}")
                self.emit(f"br i1 {bit}, label %{yes}, label %{no}")
            case _:
                bit = self.value(f"icmp ne i64 {self.expression(node)}, 0")
                self.emit(f"br i1 {bit}, label %{yes}, label %{no}")

    def expression(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int() as number):
                return str(int(number))
            case ast.Name(id=name) if name in self.variables:
                return self.value(f"load i64, ptr %{name}.v")
            case ast.Name(id=name) if isinstance(self.scope.get(name), Global):
                return f"ptrtoint (ptr @{self.scope[name].name} to i64)"
            case ast.Name(id=name) if isinstance(self.scope.get(name), int):
                return str(int(self.scope[name]))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.value(f"sub i64 0, {self.expression(operand)}")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                lhs, rhs = self.expression(left), self.expression(right)
                return self.value(f"{_OPERATORS[type(op)]} i64 {lhs}, {rhs}")
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                lhs, rhs = self.expression(left), self.expression(right)
                return self.value(f"zext i1 {self.value(f'icmp {_COMPARISONS[type(op)]} i64 {lhs}, {rhs}')} to i64")
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(node, name, args)
            case _:
                raise self.refuse(node, ast.unparse(node))

    def call(self, node: ast.expr, name: str, args: list[ast.expr]) -> str:
        callee: Any = self.scope.get(name)
        if callee is stack:
            size = self.expression(args[0])
            slot = "%" + self.fresh("stack")
            self.entry.append(f"{slot} = alloca i8, i64 {size}, align 64")
            return self.value(f"ptrtoint ptr {slot} to i64")
        if callee is c_string and isinstance(args[0], ast.Constant):
            text = self.strings.setdefault(str(args[0].value), f"text.{len(self.strings)}")
            return f"ptrtoint (ptr @{text} to i64)"
        values = [self.expression(a) for a in args]
        if callee is call_address:
            pointer = self.value(f"inttoptr i64 {values[0]} to ptr")
            self.emit(f"call void {pointer}({', '.join(f'i64 {v}' for v in values[1:])})")
            return "0"
        if isinstance(callee, Foreign):
            return self.foreign_call(node, callee, values)
        if getattr(callee, "__is_native__", False):
            if len(values) != len(inspect.signature(callee).parameters):
                raise self.refuse(node, f"{len(values)} arguments for {name}")
            return self.value(f"call i64 @{name}({', '.join(f'i64 {v}' for v in values)})")
        raise self.refuse(node, f"the call of {name}")

    def foreign_call(self, node: ast.expr, callee: Foreign, values: list[str]) -> str:
        extra = len(values) - len(callee.parameters)
        if extra and not (callee.variadic and extra > 0):
            raise self.refuse(node, f"{len(values)} arguments for {callee.name}")
        types = [*callee.parameters, *["i64"] * extra]
        arguments = ", ".join(f"{t} {self.narrow(v, t)}" for v, t in zip(values, types, strict=True))
        dots = f"({', '.join(callee.parameters)}, ...) " if callee.variadic else ""
        line = f"call {callee.result} {dots}@{callee.name}({arguments})"
        match callee.result:
            case "void":
                self.emit(line)
                return "0"
            case "i64":
                return self.value(line)
            case "ptr":
                return self.value(f"ptrtoint ptr {self.value(line)} to i64")
            case _:
                return self.value(f"sext {callee.result} {self.value(line)} to i64")

    def narrow(self, value: str, type_: str) -> str:
        match type_:
            case "i64":
                return value
            case "ptr":
                return self.value(f"inttoptr i64 {value} to ptr")
            case _:
                return self.value(f"trunc i64 {value} to {type_}")
