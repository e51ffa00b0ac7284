"""The specialization lattice: a provider starts with operands of which it knows nothing, and asks for what it needs.

A *signature* is all there is to know of an operand beside its values. A *requirement* says which parts of it a provider
has asked for, and only those parts, the *projection*, tell one operand from another: a provider that never asks makes
one executor for all. It answers a projection with an executor or with ``Need``: requirements that ask for more. What it
answered is kept, so that a later call follows the way to its executor without asking again.

Requirements form a finite lattice. A request must lie strictly above what was asked before, so their number for one
call is bounded by the length of the longest chain (``longest_chain``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from tenferro.engines.errors import ConfigurationError, ProviderContractError
from tenferro.runtime.cache import Limits, PreparedCache
from tenferro.runtime.identity import check_number
from tenferro.tracer.records import dataclass

T = TypeVar("T")
MOST_ALIGNED = 12
"""log2 of the coarsest alignment that is told apart: a page of 4096 bytes."""

LayoutClass = Literal["c", "f", "strided"]
_PLACEMENTS = ("", "hardware", "engine")
_LAYOUTS = ("", "class", "strides")
_LIMITS = Limits(entries=64)


@dataclass(frozen=True, slots=True)
class Signature:
    """All of an operand but its values. strides: bytes; alignment: log2 of what divides its address, at most 12."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    hardware: str
    engine: str
    layout: LayoutClass
    strides: tuple[int, ...]
    alignment: int

    @staticmethod
    def of(x: Any, hardware: str, engine: str) -> Signature:
        """Of an array of NumPy's interface or CUDA's, in the memory of this engine."""
        if isinstance(x, int | float | complex):
            x = np.asarray(x)
        interface = getattr(x, "__cuda_array_interface__", None) or x.__array_interface__
        address = int(interface["data"][0])
        alignment = min((address & -address).bit_length() - 1, MOST_ALIGNED) if address else MOST_ALIGNED
        layout: LayoutClass = "c" if x.flags.c_contiguous else "f" if x.flags.f_contiguous else "strided"
        return Signature(x.dtype, tuple(x.shape), hardware, engine, layout, tuple(x.strides), alignment)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a provider needs to know of an operand: nothing, to start with.

    axes: those whose sizes; with ``rank`` only. placement: ``"hardware"`` such as ``"cpu"``, or the ``"engine"``.
    layout: the ``"class"`` (C or Fortran order, or neither), or the ``"strides"``, with ``rank`` only. alignment: log2
    of bytes up to which it matters."""

    dtype: bool = False
    rank: bool = False
    axes: frozenset[int] = frozenset()
    placement: Literal["", "hardware", "engine"] = ""
    layout: Literal["", "class", "strides"] = ""
    alignment: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.axes, str) or not isinstance(self.axes, Iterable):
            raise ConfigurationError(
                f"Requirement: axes is {self.axes!r} of class {type(self.axes).__name__}; a set of ints is needed"
            )
        axes = tuple(self.axes)
        for axis in axes:
            check_number("Requirement", "one of axes", axis, 0)
        object.__setattr__(self, "axes", frozenset(map(int, axes)))
        for name in ("dtype", "rank"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"Requirement: {name} is {getattr(self, name)!r}; True or False is needed")
        check_number("Requirement", "alignment", self.alignment, 0)
        if not self.rank and (self.axes or self.layout == "strides"):
            raise ConfigurationError(f"Requirement: {'axes' if self.axes else 'strides'} without rank; rank is needed")
        if self.alignment > MOST_ALIGNED:
            raise ConfigurationError(f"Requirement: alignment {self.alignment}; 0 to {MOST_ALIGNED} (log2 of bytes)")
        if self.placement not in _PLACEMENTS or self.layout not in _LAYOUTS:
            raise ConfigurationError(
                f"Requirement: placement {self.placement!r}, layout {self.layout!r}; "
                f"one of {_PLACEMENTS}, one of {_LAYOUTS}"
            )

    def __ge__(self, other: Requirement) -> bool:
        """Whether this asks for all that the other asks for."""
        return (
            self.dtype >= other.dtype
            and self.rank >= other.rank
            and self.axes >= other.axes
            and _PLACEMENTS.index(self.placement) >= _PLACEMENTS.index(other.placement)
            and _LAYOUTS.index(self.layout) >= _LAYOUTS.index(other.layout)
            and self.alignment >= other.alignment
        )


NOTHING = Requirement()


@dataclass(frozen=True, slots=True)
class Known:
    """A projection: the parts of an operand's signature that were asked for; None, or no size, for the others."""

    dtype: np.dtype[Any] | None = None
    rank: int | None = None
    sizes: tuple[tuple[int, int], ...] = ()
    placement: str | None = None
    layout: LayoutClass | None = None
    strides: tuple[int, ...] | None = None
    alignment: int | None = None

    def size(self, axis: int) -> int | None:
        """The size of an axis that was asked for."""
        return dict(self.sizes).get(axis)


@dataclass(frozen=True, slots=True)
class Need:
    """A provider's request: for each operand, all that it needs to know, what it knows already included."""

    requirements: tuple[Requirement, ...]

    def __init__(self, *requirements: Requirement) -> None:
        object.__setattr__(self, "requirements", requirements)


def projection(requirement: Requirement, signature: Signature) -> Known:
    """The parts of a signature that a requirement asks for. ProviderContractError for an axis beyond the rank."""
    rank = len(signature.shape)
    beyond = [a for a in requirement.axes if a >= rank]
    if beyond:
        raise ProviderContractError(f"specialization: axis {min(beyond)} of an operand of rank {rank}")
    place = {"": None, "hardware": signature.hardware, "engine": signature.engine}[requirement.placement]
    return Known(
        signature.dtype if requirement.dtype else None,
        rank if requirement.rank else None,
        tuple((a, signature.shape[a]) for a in sorted(requirement.axes)),
        place,
        signature.layout if requirement.layout else None,
        signature.strides if requirement.layout == "strides" else None,
        min(requirement.alignment, signature.alignment) if requirement.alignment else None,
    )


def longest_chain(requirements: Sequence[Requirement], signatures: Sequence[Signature]) -> int:
    """How many strictly widening requests there can be from here on."""
    steps = 0
    for r, s in zip(requirements, signatures, strict=True):
        steps += (not r.dtype) + (not r.rank) + len(s.shape) - len(r.axes)
        steps += 2 - _PLACEMENTS.index(r.placement) + 2 - _LAYOUTS.index(r.layout) + MOST_ALIGNED - r.alignment
    return steps


class Specializer(Generic[T]):
    """What one provider answered, by what it knew. Thread-safe; each projection is asked once, bounded as
    ``PreparedCache`` is. most: requests for one call, where fewer are to be allowed than the lattice has."""

    def __init__(self, name: str, limits: Limits = _LIMITS, most: int | None = None) -> None:
        self.name = name
        self._most = most
        self._answers: PreparedCache[T | Need] = PreparedCache(limits)

    def find(
        self, key: Hashable, signatures: Sequence[Signature], provide: Callable[[tuple[Known, ...]], T | Need]
    ) -> T:
        """What ``provide`` answers for these operands, asked with as little as it needs. ``key``: what else its answer
        depends on.

        ProviderContractError for a request that does not widen, that is not of one requirement for each operand, or
        that comes after more than there can be."""
        requirements = (NOTHING,) * len(signatures)
        bound = longest_chain(requirements, signatures)
        for _ in range((bound if self._most is None else min(bound, self._most)) + 1):
            known = tuple(projection(r, s) for r, s in zip(requirements, signatures, strict=True))
            answer = self._answers.get((key, requirements, known), lambda k=known: provide(k))  # type: ignore[misc]
            if not isinstance(answer, Need):
                return answer
            requirements = self._widened(requirements, answer)
        raise ProviderContractError(f"{self.name}: the provider asks for more without end; {bound} requests can be")

    def _widened(self, before: tuple[Requirement, ...], request: Need) -> tuple[Requirement, ...]:
        after = request.requirements
        if len(after) != len(before) or not all(isinstance(r, Requirement) for r in after):
            raise ProviderContractError(
                f"{self.name}: a request of {len(after)} for {len(before)} operands; a Requirement for each is needed"
            )
        if after == before or not all(a >= b for a, b in zip(after, before, strict=True)):
            raise ProviderContractError(
                f"{self.name}: a request that does not widen what is known; more is needed, and nothing less"
            )
        return after

    def clear(self) -> None:
        """Forget every answer."""
        self._answers.clear()

    def __len__(self) -> int:
        return self._answers.stats().entries
