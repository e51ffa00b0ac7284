"""Engines of the tests' own, and a watch on leaks."""

from __future__ import annotations

import gc

import pytest

from tests.runtime import devices
from tests.runtime.devices import (
    DeviceEngine,
    HostEngine,
)


@pytest.fixture
def host() -> HostEngine:
    return HostEngine()


@pytest.fixture
def device() -> DeviceEngine:
    return DeviceEngine()


@pytest.fixture
def no_leak():
    """Whatever happens, no device array outlives its test, without the collector's help."""
    gc.collect()
    before = set(devices.live)
    gc.disable()
    try:
        yield
        assert set(devices.live) <= before
    finally:
        gc.enable()
