"""The reference engine stands beside the CPU engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle import both_engines


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Iterator[None]:
    with both_engines():
        yield
