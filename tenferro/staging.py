"""Transformations in two stages: the user's function recorded first, and then what is made of the recording.

The second stage is determined by the first: outside ``jit`` it is gone through once for equal recordings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeAlias

from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.tracer.trace import Trace

Function: TypeAlias = Callable[..., Any]


@dataclass(slots=True)
class Stage:
    """A transformation half done: the user's function has been recorded in a trace, and ``finish`` makes the result.

    ``key`` tells recordings and settings apart that have other results; None where that is not known."""

    trace: Trace
    key: Callable[[], Hashable | None]
    finish: Callable[[], Any]


class Staged(ABC):
    """A transformation in two stages: called, it makes of a function the one that runs inside a trace."""

    @abstractmethod
    def stage(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
        """Record the function."""

    def __call__(self, function: Function) -> Function:
        def whole(*args: Any, **kwargs: Any) -> Any:
            return self.stage(function, args, kwargs).finish()

        whole.__wrapped__ = function  # type: ignore[attr-defined]  # its parameters are those of the function
        return whole
