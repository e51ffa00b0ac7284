"""Reductions of compact texts: what a loop accumulates lies on the stack, not in what the loop carries round.

A turn of a compact loop takes a register's worth of elements, where the tree has several registers' worth of lanes:
each turn adds to the lanes that its elements belong to. LLVM compiles the short vectors and the scalar loop of the end
in a third of the time of the wide ones. Order and bits are those of ``Accumulator``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.body import CodeBuilder
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.extremes import found
from tenferro.engines.cpu.reduce import Accumulator
from tenferro.engines.cpu.vector_builder import Vec


class StoredAccumulator(Accumulator):
    """``Accumulator`` whose lanes lie on the stack; nothing is carried."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.width = super().parts[0][1]
        self.places: list[str] = []

    @property
    def parts(self) -> list[tuple[np.dtype[Any], int]]:
        """dtype and width of what a turn combines."""
        return [(dtype, self.builder.lanes) for dtype, _ in super().parts]

    def carried(self) -> list[tuple[str, str]]:
        """Nothing; what it would be lies in the lanes afterwards."""
        lanes = self.builder.lanes
        for (_, text), (dtype, _) in zip(super().carried(), self.parts, strict=True):
            place = self.code.alloca(self.width * dtype.itemsize)
            self.places.append(place)
            start = Vec(text, dtype)
            start = start if dtype == elements.BOOL else Vec(self.builder.operand(start), dtype)
            for first in range(0, self.width, lanes):
                elements.store(self.code, self.code.at(place, first * dtype.itemsize), start, lanes, dtype)
        return []

    def step(self, accs: Sequence[str], value: elements.Value, active: str | None, i: str) -> list[str]:
        first = self.code.emit(f"and i64 {i}, {self.width - self.builder.lanes}") if self._has_slots else 0
        held = self._read(first, self.builder.lanes)
        after = super().step([v.text for v in held], value, active, i)
        self._write(first, [Vec(x, d) for x, (d, _) in zip(after, self.parts, strict=True)], self.builder.lanes)
        return []

    @property
    def _has_slots(self) -> bool:
        return self.width > self.builder.lanes

    def finish(self, accs: Sequence[str]) -> list[Vec]:
        scalar = CodeBuilder(self.builder.module, 1, False, self.code)
        self.code.do(f"call void {self._folding()}({', '.join(f'ptr {p}' for p in self.places)})")
        ends = self._read(0, 1)
        return [found(scalar, self.kind, ends, self.dtype)] if self.is_keyed else ends

    def _folding(self) -> str:
        """The module's function that leaves the halves of the halves of the lanes in the first one."""
        module, key = self.builder.module, ("fold", self.kind, self.dtype.str, self.width)
        if key not in module.outlined:
            name = f"@fold_{self.kind}_{self.dtype.name}"
            module.outlined[key] = (name, None)
            module.functions.append(self._fold_function(name))
        return module.outlined[key][0]

    def _fold_function(self, name: str) -> str:
        scalar = CodeBuilder(self.builder.module, 1, False, Code())
        inner = StoredAccumulator(self.kind, self.dtype, scalar)
        inner.places = [f"%lanes{p}" for p in range(len(self.places))]

        def fold(k: str, half: str) -> None:
            high = inner._read(inner.code.add(k, half), 1)
            inner._write(k, inner._combined(scalar, inner._read(k, 1), high), 1)

        inner.code.halving(self.width, fold)
        inner.code.do("ret void")
        arguments = ", ".join(f"ptr {p}" for p in inner.places)
        return inner.code.function(f"define internal void {name}({arguments}) noinline nounwind")

    def _address(self, part: int, k: str | int) -> str:
        return self.code.at(self.places[part], self.code.mul(k, self.parts[part][0].itemsize))

    def _read(self, k: str | int, lanes: int) -> list[Vec]:
        parts = enumerate(self.parts)
        return [Vec(elements.load_real(self.code, self._address(p, k), lanes, d), d) for p, (d, _) in parts]

    def _write(self, k: str | int, values: Sequence[Vec], lanes: int) -> None:
        for p, value in enumerate(values):
            elements.store(self.code, self._address(p, k), value, lanes, value.dtype)
