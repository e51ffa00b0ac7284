"""Names of engines, storage classes, hardware and families, and numbers of configurations: checked where they enter."""

from __future__ import annotations

import re
from typing import Any

from tenferro.engines.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9_.-]*(:[a-z0-9_.-]+)*")
_FAMILY = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+\.v[0-9]+")


def checked_name(kind: str, name: str) -> str:
    """The name itself. ConfigurationError where it is no lowercase, namespaced name such as ``cpu:0``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"{kind}: {name!r} is no name; lowercase letters, digits, '_', '.', ':' are needed")
    return name


def checked_family(name: str) -> str:
    """The family's name itself. ConfigurationError unless it has the form ``library.operation.v1``; the version counts
    up with every change of meaning."""
    if not isinstance(name, str) or not _FAMILY.fullmatch(name):
        raise ConfigurationError(f"family: {name!r} is no name; the form library.operation.v1 is needed")
    return name


def check_number(where: str, what: str, value: Any, least: int) -> None:
    """ConfigurationError for what is no int (a bool is none), and below ``least``."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise ConfigurationError(f"{where}: {what} is {value!r} of class {type(value).__name__}; an int is needed")
    if value < least:
        needed = f"at least {least} is needed" if least else "0 or more is needed"
        raise ConfigurationError(f"{where}: {what} is {value}; {needed}")
