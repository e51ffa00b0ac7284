"""Derivatives and batches of control rows: transformations of their bodies (``tenferro.tracer.transform.loops`` and
``branches``), which are imported when they are first used, since they are made of the other rows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def _later(module: str, name: str) -> Callable[..., Any]:
    def rule(*args: Any) -> Any:
        return getattr(import_module(f"tenferro.tracer.transform.{module}"), name)(*args)

    rule.__name__ = rule.__qualname__ = name
    return rule


jvp_scan, transpose_scan, batch_scan = (_later("loops", f"{rule}_scan") for rule in ("jvp", "transpose", "batch"))
jvp_while, transpose_while, batch_while = (
    _later("while_loops", f"{rule}_while") for rule in ("jvp", "transpose", "batch")
)
jvp_cond, transpose_cond, batch_cond = (_later("branches", f"{rule}_cond") for rule in ("jvp", "transpose", "batch"))
