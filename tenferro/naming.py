"""Engines as callers name them: a name or an engine in, its name or the registered engine out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tenferro.tracer.errors import LoweringError
from tenferro.tracer.lines import at, user_line

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine


def engine_name(function: str, engine: Any, what: str = "engine") -> str:
    """The name. TypeError for what is neither a name nor an engine; ``function``, ``what``: where it was given."""
    if isinstance(engine, str):
        return engine
    from tenferro.engines.engine import Engine  # whoever has one has loaded it

    if isinstance(engine, Engine):
        return engine.id
    raise TypeError(
        f"{function}: {what} is {engine!r} of class {type(engine).__name__}; a name such as 'cpu:0', or an engine, is "
        f"needed{at(user_line())}"
    )


def engine_names(function: str, engines: Any) -> tuple[str, ...]:
    """Several of them, in order. TypeError for a single one, ValueError for none."""
    if isinstance(engines, str) or not isinstance(engines, Iterable):
        raise TypeError(
            f"{function}: engines is {engines!r} of class {type(engines).__name__}; a list of them is needed, engine= "
            f"takes one{at(user_line())}"
        )
    names = tuple([engine_name(function, e, "one of engines") for e in engines])
    if not names:
        raise ValueError(f"{function}: engines is {engines!r}; at least one is needed{at(user_line())}")
    return names


def check_count(function: str, what: str, value: Any, least: int) -> None:
    """TypeError for what is no integer, ValueError below ``least``."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        found = f"{value!r} of class {type(value).__name__}"
        raise TypeError(f"{function}: {what} is {found}; an int is needed{at(user_line())}")
    if value < least:
        raise ValueError(f"{function}: {what} is {value}; at least {least} is needed{at(user_line())}")


def engine_of(function: str, engine: Any) -> Engine:
    """The engine itself, or the one that the default runtime has under this name. UnknownEngineError if it has none."""
    name = engine_name(function, engine)
    if not isinstance(engine, str):
        return engine  # type: ignore[no-any-return]
    from tenferro.runtime import default_runtime

    return default_runtime().engine(name, function)


def not_on_one(function: str, engines: Iterable[Engine]) -> LoweringError:
    """The error about arrays on several engines."""
    ids = " and ".join(sorted(e.id for e in engines))
    return LoweringError(f"{function}: arguments on {ids}; one engine is needed, x.to(engine) moves{at(user_line())}")
