"""Programs and the values in them as JSON can hold them, and back, exactly.

In: a SemanticProgram, or what stands in its parameters: numbers, texts, dtypes, sizes, structures, programs. Out:
lists, numbers and texts that mean the same in another process. ``NotStored`` names what has no exact form there.

Sizes, types, lines and parameters are written once each, in tables that stand beside what uses them. What is read back
is built by name from this list of forms; nothing of it is evaluated. What is no such form raises ``DamagedError`` or
whatever Python raises on the way: readers take any error for an absent entry.
"""

from __future__ import annotations

import math
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Any, Literal as OneOf, TypeAlias

import numpy as np

from tenferro.tracer import tree
from tenferro.tracer.dims import Atom, DimExpr, Extent, Leaf
from tenferro.tracer.exact import told_apart
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.named import name_of, named
from tenferro.tracer.op import Collective, Host, Op
from tenferro.tracer.program import (
    ArrayType,
    DimScalar,
    Literal,
    Operand,
    Operation,
    Params,
    ProgramInput,
    SemanticProgram,
    ShapeGuard,
    Value,
)

Plain: TypeAlias = Any
"""None, a bool, int, float or str, or a list of such."""

_TABLES = ("sizes", "types", "codes", "lines", "params", "ops", "operands")
_RELATIONS = ("==", "<", "<=")
_INPUT_KINDS = ("argument", "captured", "constant", "int")
_LEAF_KINDS = ("extent", "int", "runtime")
_ATOM_KINDS = ("floordiv", "mod", "min", "max")


class NotStored(Exception):  # noqa: N818
    """Something has no exact form; the text says what."""


class DamagedError(ValueError):
    """What is read is not what ``Writer`` writes."""


@cache
def _rows() -> dict[str, Op]:
    """Ops by name, those that only mark values included. They are loaded where programs are, not where their
    assumptions are looked at."""
    from tenferro.tracer.ops import OPS
    from tenferro.tracer.transform import marks

    return OPS | {row.name: row for row in vars(marks).values() if isinstance(row, Op)}


def _described(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def class_name(cls: Any) -> list[str]:
    """The names of a class or function that another process can find."""
    found = name_of(cls)
    if found is None:
        raise NotStored(f"{getattr(cls, '__qualname__', repr(cls))} is not found by its name")
    return list(found)


def dtype_text(dtype: np.dtype[Any]) -> str:
    """The dtype as NumPy writes it in one word."""
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or dtype.metadata:
        raise NotStored(f"a dtype of {dtype} has no short form")
    text: str = dtype.str
    again = np.dtype(text)
    if again != dtype or again.num != dtype.num:
        raise NotStored(f"dtype {dtype!r} has no short form")
    return text


class Writer:
    """Writes values; ``tables`` are to be handed to the ``Reader``."""

    def __init__(self) -> None:
        self._sizes: dict[DimExpr, int] = {}
        self._types: dict[int, tuple[int, ArrayType]] = {}
        self._equal_types: dict[str, int] = {}
        self._lines: dict[SourceLine, int] = {}
        self._codes: dict[tuple[str, str], int] = {}
        self._params: dict[int, tuple[int, Params]] = {}
        self._ops: dict[tuple[str, str], int] = {}
        self._operands: dict[int, tuple[int, Operand]] = {}
        self.tables: dict[str, list[Plain]] = {name: [] for name in _TABLES}

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, x: Any) -> Plain:
        """Any value of a parameter, a key or a guard. NotStored for an object that has no exact form."""
        kind = type(x)
        if x is None or kind is bool or kind is int or kind is str:
            return x
        if kind is float:
            return x if math.isfinite(x) else ["float", struct.pack("<d", x).hex()]
        write = _WRITE.get(kind)
        if write is not None:
            return write(self, x)
        if isinstance(x, np.dtype):
            return ["dtype", dtype_text(x)]
        if isinstance(x, np.generic):
            return ["number", dtype_text(x.dtype), data_text(x.tobytes())]
        if isinstance(x, Enum):
            return self._member(x)
        if isinstance(x, type):
            return ["class", *class_name(x)]
        if kind.__module__ == "tenferro.tracer.bodies" and kind.__name__ == "Body":
            return ["body", *self.program(x.program)]
        raise NotStored(f"{_described(x)} has no exact form")

    def values(self, xs: Sequence[Any]) -> list[Plain]:
        return [self.value(x) for x in xs]

    def _member(self, x: Enum) -> Plain:
        cls = type(x)
        if cls.__members__.get(x.name) is not x:
            raise NotStored(f"{x!r} is no member by its name")
        return ["enum", *class_name(cls), x.name, self.value(x.value)]

    def extent(self, x: Extent) -> Plain:
        """A size: a number, or the place of its expression in the table."""
        if isinstance(x, int):
            return x
        known = self._sizes.get(x)
        if known is None:
            terms = [[c, [self._atom(a) for a in monomial]] for monomial, c in x.terms]
            known = self._sizes[x] = len(self.tables["sizes"])
            self.tables["sizes"].append(terms)
        return [known]

    def _atom(self, a: Atom) -> Plain:
        if a.leaf is not None:
            return [a.leaf.kind, a.leaf.index, a.leaf.axis]
        return [a.kind, *map(self.extent, a.args)]

    def shape(self, x: Sequence[Extent]) -> list[Plain]:
        return [n if type(n) is int else self.extent(n) for n in x]

    def type(self, x: ArrayType) -> int:
        known = self._types.get(id(x))  # by identity: a shape with sizes is slow to compare
        if known is None:
            written = [dtype_text(x.dtype), self.shape(x.shape), x.weak]
            number = self._equal_types.setdefault(str(written), len(self.tables["types"]))
            if number == len(self.tables["types"]):
                self.tables["types"].append(written)
            known = self._types[id(x)] = (number, x)
        return known[0]

    def line(self, x: SourceLine | None) -> int:
        """The place of the line in the table; −1 for none."""
        if x is None:
            return -1
        known = self._lines.get(x)
        if known is None:
            known = self._lines[x] = len(self._lines)
            code = self._codes.setdefault((x.file, x.function), len(self.tables["codes"]))
            if code == len(self.tables["codes"]):
                self.tables["codes"].append([x.file, x.function])
            self.tables["lines"] += [code, x.line]
        return known

    # -- programs ----------------------------------------------------------------------------------------------------

    def guard(self, x: ShapeGuard) -> list[Plain]:
        return [x.relation, self.extent(x.lhs), self.extent(x.rhs), x.holds, self.line(x.line), x.asked]

    def program(self, x: SemanticProgram) -> list[Plain]:
        """NotStored where an operation is none of this package's table."""
        defined = [i.value for i in x.inputs]
        operations = [self._operation(o, defined) for o in x.operations]
        return [
            x.name,
            [[self.type(i.value.type), i.kind, i.name] for i in x.inputs],
            operations,
            [self._operand(o, defined) for o in x.outputs],
            list(x.aliases),
            [self.guard(g) for g in x.guards],
        ]

    def _operation(self, x: Operation, defined: list[Value]) -> list[Plain]:
        """One flat list of numbers, as a rule: programs of thousands of operations are read in milliseconds."""
        inputs = [self._operand(i, defined) for i in x.inputs]
        for o in x.outputs:
            if o.id != len(defined):
                raise NotStored(f"{x.op.name} defines {o} out of order")
            defined.append(o)
        types = [self.type(o.type) for o in x.outputs]
        kinds = types[0] if len(types) == 1 else types
        return [self._op(x.op, x.place), kinds, self._parameters(x.params), self.line(x.line), *inputs]

    def _op(self, x: Op, place: str) -> int:
        known = self._ops.get((x.name, place))
        if known is None:
            known = self._ops[x.name, place] = len(self.tables["ops"])
            self.tables["ops"].append([x.name, place])
        if isinstance(x.form, Host):
            raise NotStored(f"{x.name} calls a function of the user's")
        if _rows().get(x.name) is not x:
            raise NotStored(f"{x.name} is an operation of an extension")
        if place or isinstance(x.form, Collective):
            raise NotStored("operations are put on engines")
        return known

    def _parameters(self, x: Params) -> int:
        known = self._params.get(id(x))
        if known is None:
            written = [[name, self.value(value)] for name, value in x.items()]
            known = self._params[id(x)] = (len(self.tables["params"]), x)
            self.tables["params"].append(written)
        return known[0]

    def _operand(self, x: Operand, defined: list[Value]) -> int:
        """A value is its number; of the others −1 minus their place in the table."""
        if isinstance(x, Value):
            found = defined[x.id] if 0 <= x.id < len(defined) else None
            if found is None or (found is not x and found != x):
                raise NotStored(f"{x} is read as another type than it has")
            return x.id
        known = self._operands.get(id(x))
        if known is None:
            known = self._operands[id(x)] = (len(self.tables["operands"]), x)
            self.tables["operands"].append(self.value(x))
        return -1 - known[0]


_Write: TypeAlias = Callable[[Writer, Any], Plain]
_WRITE: dict[type, _Write] = {
    complex: lambda w, x: ["complex", struct.pack("<dd", x.real, x.imag).hex()],
    bytes: lambda w, x: ["bytes", data_text(x)],
    tuple: lambda w, x: ["tuple", *w.values(x)],
    list: lambda w, x: ["list", *w.values(x)],
    dict: lambda w, x: ["dict", w.values(list(x)), w.values(list(x.values()))],
    frozenset: lambda w, x: ["frozenset", *sorted(w.values(list(x)), key=repr)],
    set: lambda w, x: ["set", *sorted(w.values(list(x)), key=repr)],
    slice: lambda w, x: ["slice", *w.values([x.start, x.stop, x.step])],
    range: lambda w, x: ["range", x.start, x.stop, x.step],
    type(...): lambda w, x: ["..."],
    DimExpr: lambda w, x: ["size", w.extent(x)],
    Literal: lambda w, x: ["literal", w.value(x.value), dtype_text(x.dtype)],
    DimScalar: lambda w, x: ["scalar", w.extent(x.expr), dtype_text(x.dtype)],
    ArrayType: lambda w, x: ["type", w.type(x)],
    SourceLine: lambda w, x: ["line", w.line(x)],
    Params: lambda w, x: ["params", *([name, w.value(v)] for name, v in x.items())],
    SemanticProgram: lambda w, x: ["program", *w.program(x)],
    tree.TreeDef: lambda w, x: w_tree(w, x),
    tree.Factory: lambda w, x: ["factory", w.value(x.make)],
}


def w_tree(w: Writer, x: tree.TreeDef) -> Plain:
    """A structure; its ``exact`` follows from the rest."""
    if x.node is None:
        return ["leaf"]
    return ["tree", class_name(x.node), w.value(x.metadata), *(w_tree(w, c) for c in x.children)]


class Reader:
    """Reads what a ``Writer`` with these tables wrote."""

    def __init__(self, tables: dict[str, list[Plain]]) -> None:
        self._sizes: list[DimExpr] = []
        for terms in tables["sizes"]:
            self._sizes.append(self._size(terms))
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._types = [self._type(*t) for t in tables["types"]]
        codes = [(_str(file), _str(name)) for file, name in tables["codes"]]
        lines = iter(tables["lines"])
        self._lines = [SourceLine(codes[k][0], _int(n), codes[k][1]) for k, n in zip(lines, lines, strict=True)]
        self._written_params = tables["params"]
        self._params: dict[int, Params] = {}
        rows = _rows() if tables["ops"] else {}
        self._ops = [(rows[name], _str(place)) for name, place in tables["ops"]]
        self._operands = [self._constant(x) for x in tables["operands"]]

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, x: Plain) -> Any:
        """The value that was written."""
        return _READ[x[0]](self, *x[1:]) if type(x) is list else x

    def values(self, xs: Sequence[Plain]) -> list[Any]:
        return [self.value(x) for x in xs]

    def extent(self, x: Plain) -> Extent:
        return self._sizes[x[0]] if type(x) is list else _int(x)

    def _size(self, terms: Sequence[Plain]) -> DimExpr:
        found = tuple([(tuple([self._atom(*a) for a in atoms]), _int(c)) for c, atoms in terms])
        if not found or all(not monomial for monomial, _ in found):
            raise DamagedError("a size without a symbol")
        return DimExpr(found)

    def _atom(self, kind: Any, first: Plain, second: Plain) -> Atom:
        if kind in _LEAF_KINDS:
            return Atom("leaf", Leaf(kind, _int(first), _int(second)))
        return Atom(_among(_ATOM_KINDS, kind), None, (self.extent(first), self.extent(second)))

    def shape(self, x: Sequence[Plain]) -> tuple[Extent, ...]:
        return tuple([self.extent(n) for n in x])

    def dtype(self, x: str) -> np.dtype[Any]:
        known = self._dtypes.get(x)
        if known is None:
            known = self._dtypes[x] = np.dtype(_str(x))
        return known

    def _type(self, dtype: str, shape: Sequence[Plain], weak: bool) -> ArrayType:
        return ArrayType(self.dtype(dtype), self.shape(shape), weak is True)

    def type(self, x: int) -> ArrayType:
        return self._types[_index(x)]

    def line(self, x: int) -> SourceLine | None:
        return None if x == -1 else self._lines[_index(x)]

    # -- programs ----------------------------------------------------------------------------------------------------

    def guard(self, x: Sequence[Plain]) -> ShapeGuard:
        relation, lhs, rhs, holds, line, asked = x
        compared: Any = _among(_RELATIONS, relation)
        return ShapeGuard(compared, self.extent(lhs), self.extent(rhs), holds is True, self.line(line), _str(asked))

    def program(self, x: Sequence[Plain]) -> SemanticProgram:
        """The program, yet to be checked (``tenferro.lowering.checker``)."""
        name, inputs, operations, outputs, aliases, guards = x
        made = tuple(
            [
                ProgramInput(Value(k, self.type(kind)), _kind(what), _str(named))
                for k, (kind, what, named) in enumerate(inputs)
            ]
        )
        values = [i.value for i in made]
        return SemanticProgram(
            _str(name),
            made,
            tuple([self._operation(values, *o) for o in operations]),
            tuple([self._operand(o, values) for o in outputs]),
            tuple(map(_int, aliases)),
            tuple(map(self.guard, guards)),
        )

    def _operation(
        self, values: list[Value], op: int, kinds: int | list[int], params: int, line: int, *inputs: int
    ) -> Operation:
        read = tuple([values[i] if i >= 0 else self._operands[-1 - i] for i in map(_int, inputs)])
        first = len(values)
        types = (kinds,) if type(kinds) is int else kinds
        outputs = tuple([Value(first + k, self.type(t)) for k, t in enumerate(types)])  # type: ignore[arg-type]
        values += outputs
        row, place = self._ops[_index(op)]
        return Operation(row, read, self._parameters(_index(params)), outputs, self.line(line), place)

    def _parameters(self, x: int) -> Params:
        known = self._params.get(x)
        if known is None:
            items = {_str(name): self.value(value) for name, value in self._written_params[x]}
            known = self._params[x] = Params(**items)
        return known

    def _operand(self, x: Plain, values: list[Value]) -> Operand:
        number = _int(x)
        return values[number] if number >= 0 else self._operands[-1 - number]

    def _constant(self, x: Plain) -> Operand:
        found = self.value(x)
        if not isinstance(found, Literal | DimScalar):
            raise DamagedError("an operand that is none")
        return found

    def literal(self, value: Plain, dtype: str) -> Literal:
        found = self.value(value)
        if type(found) not in (bool, int, float, complex):
            raise DamagedError("a literal that is no number")
        return Literal(found, self.dtype(dtype))

    def enum(self, module: str, qualname: str, name: str, value: Plain) -> Enum:
        cls = self.named_class(module, qualname)
        if not issubclass(cls, Enum):
            raise DamagedError("an enumeration that is none")
        member: Enum = cls.__members__[name]
        if told_apart(member.value) != told_apart(self.value(value)):
            raise DamagedError("a member with another value")
        return member

    def body(self, *parts: Plain) -> Any:
        from tenferro.tracer.bodies import Body

        return Body(self.program(parts))

    def named_class(self, module: str, qualname: str) -> Any:
        found = named((_str(module), _str(qualname)))
        if not isinstance(found, type):
            raise DamagedError(f"{module}.{qualname} is no class")
        return found

    def tree(self, node: Sequence[str], metadata: Plain, *children: Plain) -> tree.TreeDef:
        cls = self.named_class(*node)
        found = self.value(metadata)
        opened = tuple(self.values(children))
        if not all(isinstance(c, tree.TreeDef) for c in opened):
            raise DamagedError("a structure that is none")
        if cls is not type(None) and tree.container(cls) is None:
            raise DamagedError(f"{cls.__qualname__} is no container")
        return tree.TreeDef(cls, found, opened, told_apart(found))


_READ: dict[str, Callable[..., Any]] = {
    "float": lambda r, x: struct.unpack("<d", bytes.fromhex(x))[0],
    "complex": lambda r, x: complex(*struct.unpack("<dd", bytes.fromhex(x))),
    "bytes": lambda r, x: data_of(x),
    "tuple": lambda r, *xs: tuple(r.values(xs)),
    "list": lambda r, *xs: r.values(xs),
    "dict": lambda r, keys, values: dict(zip(r.values(keys), r.values(values), strict=True)),
    "frozenset": lambda r, *xs: frozenset(r.values(xs)),
    "set": lambda r, *xs: set(r.values(xs)),
    "slice": lambda r, *xs: slice(*r.values(xs)),
    "range": lambda r, *xs: range(*map(_int, xs)),
    "...": lambda r: ...,
    "dtype": lambda r, x: r.dtype(x),
    "number": lambda r, dtype, x: np.frombuffer(data_of(x), r.dtype(dtype))[0],
    "enum": Reader.enum,
    "class": Reader.named_class,
    "size": lambda r, x: r.extent(x),
    "literal": Reader.literal,
    "scalar": lambda r, x, dtype: DimScalar(r.extent(x), r.dtype(dtype)),
    "type": lambda r, x: r.type(x),
    "line": lambda r, x: r.line(x),
    "params": lambda r, *items: Params(**{_str(name): r.value(v) for name, v in items}),
    "program": lambda r, *parts: r.program(parts),
    "body": Reader.body,
    "leaf": lambda r: tree.LEAF,
    "tree": Reader.tree,
    "factory": lambda r, x: tree.Factory(r.value(x)),
}


def data_text(data: bytes) -> str:
    """Bytes as a text."""
    return b2a_base64(data, newline=False).decode()


def data_of(text: str) -> bytes:
    """The bytes that a text stands for."""
    return a2b_base64(text)


def _int(x: Any) -> int:
    if type(x) is not int:
        raise DamagedError(f"{x!r} is no integer")
    return x


def _index(x: Any) -> int:
    if type(x) is not int or x < 0:
        raise DamagedError(f"{x!r} is no place in a table")
    return x


def _str(x: Any) -> str:
    if type(x) is not str:
        raise DamagedError(f"{x!r} is no text")
    return x


def _among(allowed: Sequence[str], x: Any) -> Any:
    if x not in allowed:
        raise DamagedError(f"{x!r} is none of {', '.join(allowed)}")
    return x


def _kind(x: Any) -> OneOf["argument", "captured", "constant", "int"]:
    found: OneOf["argument", "captured", "constant", "int"] = _among(_INPUT_KINDS, x)
    return found
