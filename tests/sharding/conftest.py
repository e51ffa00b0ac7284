"""Engines for these tests alone: the runtime is as it was when a module of them is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.running import engines_as_they_were


@pytest.fixture(scope="module", autouse=True)
def _own_engines() -> Iterator[None]:
    with engines_as_they_were():
        yield
