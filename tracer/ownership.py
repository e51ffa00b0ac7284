"""Whose a module is: the user's own, another package's, or Python's, NumPy's and this package's.

What the user's own functions and objects hold is followed. Objects of other packages are read where the user's own code
reads them; what stands in Python and NumPy does not change.
"""

from __future__ import annotations

import sys
from pathlib import PurePath
from types import FrameType
from typing import Literal, TypeAlias

Whose: TypeAlias = Literal["own", "other", "foreign"]

_OPENED = frozenset({"argparse", "collections"})  # of Python's own classes, those that hold users' values
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_foreign(name: str) -> bool:
    """Whether the module belongs to Python, NumPy or this package."""
    top = name.split(".")[0]
    return top in sys.stdlib_module_names or top in ("numpy", "tenferro")


class Ownership:
    """Answers for one traced function, whose package is the user's own wherever it is installed."""

    def __init__(self, module: str | None) -> None:
        self._package = (module or "").split(".")[0]
        self._known: dict[str, Whose] = {}

    def of(self, module: str | None) -> Whose:
        """Whose the module of this name is."""
        name = module or ""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._found(name)
        return known

    def _found(self, name: str) -> Whose:
        top = name.split(".")[0]
        if top == "__main__" or top in _OPENED:
            return "own"
        if is_foreign(name):
            return "foreign"
        if top == self._package:
            return "own"
        module = sys.modules.get(name) or sys.modules.get(top)
        file = getattr(module, "__file__", None)
        return "other" if file is not None and not _INSTALLED.isdisjoint(PurePath(file).parts) else "own"

    def of_class(self, cls: type) -> Whose:
        """Whose the class is."""
        return self.of(cls.__module__)

    def of_frame(self, frame: FrameType) -> Whose:
        """Whose the code is that runs in the frame."""
        return self.of(frame.f_globals.get("__name__"))
