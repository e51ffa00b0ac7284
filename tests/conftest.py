"""Settings of the whole suite: the checker runs after every pass, and kernels are cached in a folder of this run."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Set before tenferro is imported: it reads its settings once.
_cache = tempfile.TemporaryDirectory(prefix="tenferro-tests-")
os.environ.setdefault("TENFERRO_CHECK", "1")
os.environ["TENFERRO_CACHE_DIR"] = _cache.name
os.environ.setdefault("TENFERRO_CACHE_TRACES", "0")  # a test that counts traces must not find those of another
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


@pytest.fixture(scope="module", autouse=True)
def _engines_as_they_were() -> Iterator[None]:
    """The reference engine is registered when a test first names it; files after that find the engines as at the
    start."""
    before = _engine_names()
    yield
    if "reference:0" in _engine_names() and "reference:0" not in before:
        import tenferro as tn

        tn.default_runtime().reconfigure(lambda c: c.remove_engine("reference:0"))


@pytest.fixture(scope="module", autouse=True)
def _short_collections() -> Iterator[None]:
    """Collections that a test asks for walk over what its own file has made, not over all that is there by then: the
    programs that eager operations keep, and the tests themselves, would make each take seconds."""
    gc.collect()
    gc.freeze()
    yield


def _engine_names() -> list[str]:
    """Of the default runtime, where there is one already."""
    from tenferro.runtime import default

    return [] if default._default.runtime is None else default.list_engines()
