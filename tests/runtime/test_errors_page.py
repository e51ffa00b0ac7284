"""The table of errors in docs/runtime.md has every class, with the built-in that it derives from."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

from tenferro.engines import errors
from tenferro.tracer.errors import LoweringError, TenferroError

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "runtime.md"
GENERAL = {"PrepareError", "RunError", "EngineFailure"}


def test_every_error_is_in_the_table():
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    found = {name: also.strip(" `") for name, also in rows}
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type) and c.__module__ == errors.__name__}
    assert set(found) == set(classes) - GENERAL
    for name, also in found.items():
        assert issubclass(classes[name], TenferroError)
        assert issubclass(classes[name], LoweringError) == (name != "ConfigurationError")
        if also:
            assert issubclass(classes[name], getattr(builtins, also))
