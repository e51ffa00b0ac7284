"""The state of source files in, one text out: what is kept on disk and made by code is found by the code's state too.

A file counts by its name, size and time of change; reading all of them would take as long as what is saved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from hashlib import sha256


@cache
def state_of(*folders: str) -> str | None:
    """A digest of every Python file below the folders; None where they cannot be looked at."""
    digest = sha256()
    try:
        for folder in folders:
            for line in sorted(_states(folder)):
                digest.update(line.encode())
    except OSError:
        return None
    return digest.hexdigest()


def _states(folder: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        for item in found:
            if item.name.endswith(".py"):
                info = item.stat()
                yield f"{item.path} {info.st_size} {info.st_mtime_ns}\n"
            elif item.is_dir() and item.name != "__pycache__":
                yield from _states(item.path)
