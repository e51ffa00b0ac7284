"""What a module of many names lists, and what it says of a name that it has not: for ``tn.numpy``, ``tn.lax``, ….

In: the module's name and its public names. Out: its ``__dir__`` and ``__getattr__``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def listing(
    module: str, names: Sequence[str], near: Callable[[str], str] | None = None
) -> tuple[Callable[[], list[str]], Callable[[str], Any]]:
    """``__dir__, __getattr__ = listing(__name__, names)``, at the module's end.

    ``near`` gives what an error text adds about a missing name; without it, and where it has nothing to say, that is
    the public name of closest spelling.
    """
    public = sorted(names)

    def closest(name: str) -> str:
        import difflib  # for an error alone

        found = difflib.get_close_matches(name, public, 1, 0.8)
        return f"; {found[0]} is the nearest name" if found else ""

    def listed() -> list[str]:
        return list(public)

    def missing(name: str) -> Any:
        if name.startswith("_"):  # what Python asks of any module: ``__path__``, ``__wrapped__``
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise AttributeError(f"{module} has no {name!r}{(near and near(name)) or closest(name)}")

    return listed, missing
