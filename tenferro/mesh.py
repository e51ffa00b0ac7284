"""Meshes: engines and names for their arrangement in; ``Mesh``, and how arrays lie on it (``PartitionSpec``), out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.naming import engine_name
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.spread import Grid

Names = tuple[str, ...]


def names_of(axis: Any, what: str) -> Names:
    """One axis name, or a tuple of them, as a tuple. TypeError for anything else, ShapeError where one comes twice."""
    names = axis if isinstance(axis, tuple | list) else (axis,)
    if not names or not all(isinstance(n, str) for n in names):
        raise TypeError(f"{what} is {axis!r}; an axis name or a tuple of them is needed{at(user_line())}")
    if len(set(names)) != len(names):
        raise ShapeError(f"{what} is {axis!r}; each name is needed once{at(user_line())}")
    return tuple(names)


class Mesh:
    """Engines in a rectangular arrangement, each of whose axes has a name. Immutable; equal and hashable by content.

    engines: names or engines, in a list, nested lists, or an array of them; each once, all of the default runtime.
    axis_names: one name for each axis of the arrangement.

    UnknownEngineError for an engine that is not registered (``tn.cpu_engines(n)`` makes them), ShapeError where names
    and arrangement do not fit."""

    grid: Grid

    def __init__(self, engines: Sequence[Any] | np.ndarray[Any, Any], axis_names: str | Sequence[str]) -> None:
        from tenferro.runtime import default_runtime

        names = names_of(axis_names, "Mesh: axis_names")
        ids, shape = _arranged(engines)
        if len(shape) != len(names):
            raise ShapeError(
                f"Mesh: engines are arranged {shape}, axis_names are {names}; one name for each axis is "
                f"needed{at(user_line())}"
            )
        if not ids or len(set(ids)) != len(ids):
            raise ShapeError(f"Mesh: engines are {list(ids)}; at least one, each once, is needed{at(user_line())}")
        for name in ids:
            default_runtime().engine(name, "Mesh")  # refuses a name that is none
        self.grid = Grid(names, shape, ids, tuple(range(len(ids))))

    @classmethod
    def of(cls, grid: Grid) -> Mesh:
        """A mesh of a grid that was made elsewhere."""
        mesh = object.__new__(cls)
        mesh.grid = grid
        return mesh

    @property
    def axis_names(self) -> Names:
        return self.grid.names

    @property
    def shape(self) -> dict[str, int]:
        """Axis name → how many engines lie along it."""
        return dict(zip(self.grid.names, self.grid.sizes, strict=True))

    @property
    def size(self) -> int:
        return self.grid.size(self.grid.names)

    @property
    def engines(self) -> Names:
        """The engines of this process, in row-major order of their positions."""
        return self.grid.places

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self.grid == other.grid

    def __hash__(self) -> int:
        return hash(self.grid)

    def __repr__(self) -> str:
        axes = ", ".join(f"{n}: {k}" for n, k in self.shape.items())
        here = ", ".join(self.engines) if any(self.engines) else f"this is {self.grid.positions[0]}"
        return f"Mesh({axes}; {here})"


def _arranged(engines: Any) -> tuple[Names, tuple[int, ...]]:
    """Names in row-major order, and the arrangement."""
    if isinstance(engines, np.ndarray):
        engines = engines.tolist()
    if not isinstance(engines, list | tuple):
        return (engine_name("Mesh", engines, "an engine"),), ()
    parts = [_arranged(e) for e in engines]
    shapes = {shape for _, shape in parts}
    if len(shapes) > 1:
        raise ShapeError(f"Mesh: engines are {engines!r}; a rectangular arrangement is needed{at(user_line())}")
    inner = shapes.pop() if shapes else ()
    return tuple(n for names, _ in parts for n in names), (len(parts), *inner)


class PartitionSpec:
    """How an array is cut: for each of its axes the name of the mesh axis that it is cut along, a tuple of names, or
    None for an axis that stays whole. Further axes stay whole. ``tn.P`` is the same class.

    ``P("i")`` cuts the first axis along ``i``; ``P(None, ("i", "j"))`` the second along both; ``P()`` cuts nothing."""

    __slots__ = ("parts",)
    parts: tuple[Names, ...]

    def __init__(self, *axes: str | Sequence[str] | None) -> None:
        self.parts = tuple(() if a is None or a == () else names_of(a, "PartitionSpec: an axis") for a in axes)
        names = [n for part in self.parts for n in part]
        if len(set(names)) != len(names):
            raise ShapeError(f"{self}: a mesh axis is named twice; each may cut one axis{at(user_line())}")

    @property
    def names(self) -> frozenset[str]:
        """The mesh axes that cut something."""
        return frozenset(n for part in self.parts for n in part)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        shown = [repr(p[0]) if len(p) == 1 else repr(p) if p else "None" for p in self.parts]
        return f"P({', '.join(shown)})"


P = PartitionSpec
