"""Copies by way of page-locked pieces, on a device that reads and writes them as late as it may."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tenferro.engines.cuda.device import DeviceError, Memory
from tenferro.engines.cuda.staging import AHEAD, MOST_BUSY, HostCopies
from tests.cuda.shim_device import ShimDevice, device, shim_engine

Array = np.ndarray[Any, Any]
LARGE = 4096


class Given:
    """A device, and copies by pieces of 8 and 4096 bytes; at most 4 bytes go without."""

    def __init__(self) -> None:
        self.device = ShimDevice()
        self.stream = self.device.stream()
        self.lock = threading.RLock()
        self.copies = HostCopies(self.device, self.stream, self.lock, (8, LARGE), 4)

    def memory(self, size: int) -> Memory:
        return self.device.allocate(size, self.stream)


@pytest.fixture
def given() -> Iterator[Given]:
    found = Given()
    yield found
    if not found.stream.failed:
        found.stream.synchronize()
    gc.collect()
    assert found.device.faults == []


def data(size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 4, 5, 8, 9, LARGE - 1, LARGE, LARGE + 1, 2 * LARGE, 5 * LARGE + 3])
def test_every_byte_goes_there_and_back(given: Given, size: int):
    there, sent, back = given.memory(size), data(size), np.zeros(size, np.uint8)
    overwritten = sent.copy()
    given.copies.upload(there.address, overwritten)
    overwritten[:] = 0  # the caller may
    given.copies.download(back, there.address)
    assert back.tobytes() == sent.tobytes()


def test_an_upload_does_not_wait_for_what_runs(given: Given):
    there = [given.memory(LARGE) for _ in range(MOST_BUSY + 1)]
    before = given.stream.record()
    for k in range(MOST_BUSY):
        given.copies.upload(there[k].address, data(LARGE, k))
    assert not before.is_done
    given.copies.upload(there[-1].address, data(LARGE, MOST_BUSY))  # the oldest piece is needed again
    assert before.is_done
    for k, memory in enumerate(there):
        back = np.zeros(LARGE, np.uint8)
        given.copies.download(back, memory.address)
        assert back.tobytes() == data(LARGE, k).tobytes()


def test_pieces_are_used_again(given: Given):
    size = 10 * LARGE + 1
    there, back = given.memory(size), np.zeros(size, np.uint8)
    for k in range(20):
        given.copies.upload(there.address, data(size, k))
        given.copies.download(back, there.address)
        assert back.tobytes() == data(size, k).tobytes()
    assert given.device.pinned_bytes <= (MOST_BUSY + AHEAD + 1) * LARGE


def test_a_word_arrives_when_it_is_waited_for(given: Given):
    there = given.memory(8)
    arrivals = []
    for k in range(3):
        given.device.fill(there.address, k, 8, given.stream)
        arrivals.append(given.copies.begin(there.address, 8))
    assert [a.wait().tolist() for a in arrivals] == [[k] * 8 for k in range(3)]
    assert arrivals[1].wait().tolist() == [1] * 8  # again


def test_an_arrival_that_nobody_waits_for_writes_to_nobody(given: Given):
    there, target = given.memory(LARGE), given.memory(LARGE)
    given.device.fill(there.address, 1, LARGE, given.stream)
    given.copies.begin(there.address, LARGE)
    gc.collect()
    given.copies.upload(target.address, data(LARGE))  # must not take the piece that is still to be written
    back = np.zeros(LARGE, np.uint8)
    given.copies.download(back, target.address)
    assert back.tobytes() == data(LARGE).tobytes()


def test_others_submit_while_a_download_waits(given: Given):
    """The lock is free whenever the device is waited for."""
    waits: list[bool] = []
    real = given.stream.work_off

    def work_off(position: int) -> None:
        free: list[bool] = []
        other = threading.Thread(target=lambda: free.append(given.lock.acquire(timeout=5) and not given.lock.release()))
        other.start()
        other.join()
        waits.extend(free)
        real(position)

    given.stream.work_off = work_off  # type: ignore[method-assign]
    given.copies.download(np.zeros(LARGE * (AHEAD + 3), np.uint8), given.memory(LARGE * (AHEAD + 3)).address)
    assert len(waits) == AHEAD + 3 and all(waits)


def test_a_lost_device_is_told(given: Given):
    there = given.memory(LARGE)

    def fail() -> None:
        raise DeviceError("lost")

    given.stream.submit(fail)
    for k in range(MOST_BUSY):
        given.copies.upload(there.address, data(LARGE, k))
    with pytest.raises(DeviceError, match="lost"):
        given.copies.upload(there.address, data(LARGE))
    with pytest.raises(DeviceError, match="lost"):
        given.copies.download(np.zeros(LARGE, np.uint8), there.address)


def test_large_arrays_of_an_engine_cross_piece_by_piece():
    engine = shim_engine()
    x = np.random.default_rng(1).standard_normal(1_300_001)  # 10 MB: three pieces
    y = engine.receive(x[::-1])
    assert not device(engine).stream().record().is_done
    assert y.numpy().tobytes() == x[::-1].tobytes()
    assert device(engine).pinned_bytes <= 6 * (4 << 20)


def test_threads_share_the_pieces():
    engine = shim_engine()
    wrong: list[int] = []

    def there_and_back(seed: int) -> None:
        for k in range(8):
            x = data(200_000 + seed, 100 * seed + k)
            if engine.receive(x).numpy().tobytes() != x.tobytes():
                wrong.append(seed)

    threads = [threading.Thread(target=there_and_back, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == [] and not any(t.is_alive() for t in threads)
