"""Progress of ``scan``: a scan and a name in, the same scan with a bar out.

The turns are cut into at most a hundred blocks of equal size, each an inner scan that runs as fast as without; what is
left over comes last. Between blocks a callback moves the bar: tqdm's where it is installed, else a line on stderr.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from tenferro import debug, tree
from tenferro.tracer.dim import make_dim, pinned
from tenferro.tracer.dims import Extent
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform import control as traced

UPDATES = 100
"""Of a bar, at most, and one where it begins."""


class Bar(Protocol):
    """What shows how far a scan has come."""

    def update(self, turns: int) -> object:
        """So many more are done."""

    def close(self) -> object:
        """All are done."""


class Line:
    """A bar of one line of text, for where there is no tqdm."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._began = time.perf_counter()
        self._write()

    def update(self, turns: int) -> None:
        """So many more are done."""
        self._done += turns
        self._write()

    def close(self) -> None:
        """All are done."""
        sys.stderr.write("\n")
        sys.stderr.flush()

    def _write(self) -> None:
        percent = 100 * self._done // max(self._total, 1)
        seconds = time.perf_counter() - self._began
        sys.stderr.write(f"\r{self._name}: {percent:3d}% {self._done}/{self._total} [{seconds:.1f} s]")
        sys.stderr.flush()


def _bar(name: str, total: int) -> Bar:
    try:
        made: Bar = import_module("tqdm.auto").tqdm(total=total, desc=name)
    except ImportError:
        return Line(name, total)
    return made


class _Here(threading.local):
    def __init__(self) -> None:
        self.bars: list[Bar] = []  # of scans in scans, the innermost last


_here = _Here()


def _begin(name: str, total: int) -> None:
    _here.bars.append(_bar(name, total))


def _update(turns: int) -> None:
    if _here.bars:
        _here.bars[-1].update(turns)


def _end() -> None:
    if _here.bars:
        _here.bars.pop().close()


def scan(
    trace: Trace, f: Callable[..., Any], init: Any, xs: Any, length: Extent | None, reverse: bool, name: str
) -> tuple[Any, Any]:
    """The results of the scan, bit for bit. There is a program for each number of turns."""
    turns = int(pinned(make_dim(trace, traced.turns(trace, xs, length, "scan"))))
    size = max(-(-turns // UPDATES), 1)
    blocks = turns // size
    whole = blocks * size
    debug.callback(_begin, name, turns)

    def block(carry: Any, part: Any) -> tuple[Any, Any]:
        found = traced.scan(trace, f, carry, part, size, reverse)
        debug.callback(_update, size)
        return found

    def all_blocks(carry: Any) -> tuple[Any, Any]:
        parts = tree.map(lambda x: x[:whole].reshape((blocks, size, *x.shape[1:])), xs)
        last, ys = traced.scan(trace, block, carry, parts, blocks, reverse)
        return last, tree.map(lambda y: y.reshape((whole, *y.shape[2:])), ys)

    def rest(carry: Any) -> tuple[Any, Any]:
        found = traced.scan(trace, f, carry, tree.map(lambda x: x[whole:], xs), turns - whole, reverse)
        debug.callback(_update, turns - whole)
        return found

    if whole == turns:
        last, ys = all_blocks(init)
    elif reverse:
        between, late = rest(init)
        last, early = all_blocks(between)
        ys = tree.map(lambda a, b: np.concatenate([a, b]), early, late)
    else:
        between, early = all_blocks(init)
        last, late = rest(between)
        ys = tree.map(lambda a, b: np.concatenate([a, b]), early, late)
    debug.callback(_end)
    return last, ys
