"""Settings of the whole suite: the checker runs after every pass, and kernels are cached in a folder of this run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Set before tenferro is imported: it reads its settings once.
_cache = tempfile.TemporaryDirectory(prefix="tenferro-tests-")
os.environ.setdefault("TENFERRO_CHECK", "1")
os.environ["TENFERRO_CACHE_DIR"] = _cache.name
os.environ.setdefault("MPLBACKEND", "Agg")

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="rewrite the texts in tests/snapshots")


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def _remove_cache() -> Iterator[None]:
    yield
    _cache.cleanup()
