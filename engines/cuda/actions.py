"""What a bound plan does on a device, in order: actions over *bases*, the addresses of one run."""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

import numpy as np

from tenferro.engines.cpu.layout import Strided
from tenferro.lowering.exec_program import Instruction, Source
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class Ref:
    """Elements of a run: the layout's offset counts from ``base`` on."""

    base: int
    strided: Strided
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Fill:
    base: int
    offset: int
    byte: int
    size: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. ``words`` lack their pointers: (word, base, offset). ``table``: (base, offset) of device memory for
    words that are too many to be passed by value."""

    entry: str
    kernel: int
    grid: int
    block: tuple[int, int]
    shared: int
    words: np.ndarray[Any, Any]
    pointers: tuple[tuple[int, int, int], ...]
    table: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product by the device's library."""

    out: Ref
    operands: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction by its family's executor, whose results become the bases ``made``."""

    instruction: Instruction
    operands: tuple[Ref | Source, ...]
    made: tuple[int, ...]


Action: TypeAlias = Fill | Launch | Product | Call


def bases(action: Action) -> set[int]:
    """The bases whose addresses an action uses."""
    match action:
        case Fill(base=base):
            return {base}
        case Launch(pointers=pointers, table=table):
            return {base for _, base, _ in pointers} | ({table[0]} if table else set())
        case Product(out=out, operands=operands):
            return {out.base, *(o.base for o in operands)}
        case Call(operands=operands, made=made):
            return {*made, *(o.base for o in operands if isinstance(o, Ref))}
        case _:
            assert_never(action)
