import os
import subprocess
import sys
import time

import pytest

from tenferro.engines import disk_cache
from tenferro.engines.disk_cache import (
    CUDA_IMAGES,
    OBJECTS,
    DiskCache,
    configured,
    default_directory,
    entry_key,
    refusal,
)
from tenferro.tracer.config import read_config

LIMIT = 1 << 20


def entries(cache):
    return sorted(p for p in cache.directory.iterdir() if p.suffix == ".tfo")


def test_what_is_stored_is_loaded(tmp_path):
    cache = DiskCache(tmp_path / "c", LIMIT, OBJECTS)
    key = entry_key("text", "0")
    assert cache.load(key) is None
    cache.store(key, b"machine code")
    assert cache.load(key) == b"machine code"
    assert (cache.hits, cache.misses) == (1, 1)
    assert DiskCache(tmp_path / "c", LIMIT, OBJECTS).load(key) == b"machine code"


def test_keys_keep_their_parts_apart():
    assert entry_key("ab", "c") != entry_key("a", "bc")
    assert entry_key("ab", "") != entry_key("ab")


@pytest.mark.parametrize(
    "damage",
    [lambda b: b"", lambda b: b[:20], lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b"x" + b[1:],
     lambda b: b + b"\0"],
)  # fmt: skip
def test_a_damaged_entry_is_absent_and_written_anew(tmp_path, damage):
    cache = DiskCache(tmp_path, LIMIT, OBJECTS)
    cache.store("k", b"machine code" * 10)
    (path,) = entries(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load("k") is None
    cache.store("k", b"again")
    assert cache.load("k") == b"again"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_absent(tmp_path, kind):
    cache = DiskCache(tmp_path / "c", LIMIT, OBJECTS)
    key = entry_key("text", "0")
    path = cache.directory / (key + OBJECTS.suffix)
    {"pipe": lambda: os.mkfifo(path), "device": lambda: path.symlink_to("/dev/zero"), "folder": path.mkdir}[kind]()
    assert cache.load(key) is None
    cache.store(key, b"machine code")
    assert cache.load(key) == (None if kind == "folder" else b"machine code")


def test_an_entry_under_another_key_is_absent(tmp_path):
    cache = DiskCache(tmp_path, LIMIT, OBJECTS)
    cache.store("a", b"code of a")
    os.rename(tmp_path / "a.tfo", tmp_path / "b.tfo")
    assert cache.load("b") is None


def test_a_directory_that_others_can_write_is_refused(tmp_path):
    tmp_path.chmod(0o770)
    cache = DiskCache(tmp_path, LIMIT, OBJECTS)
    assert cache.refused is not None and "mode 770" in cache.refused
    cache.store("k", b"code")
    assert cache.load("k") is None
    assert entries(cache) == []


def test_a_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert refusal(tmp_path) == f"{tmp_path} belongs to user {owner}; needed {owner + 1}"


def test_a_directory_that_cannot_be_made_only_costs_time(tmp_path):
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "c", LIMIT, OBJECTS)
    assert cache.refused is not None
    cache.store("k", b"code")
    assert cache.load("k") is None


def test_the_directory_is_made_for_the_user_alone(tmp_path):
    cache = DiskCache(tmp_path / "c", LIMIT, OBJECTS)
    assert cache.refused is None
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_the_oldest_entries_are_evicted(tmp_path):
    cache = DiskCache(tmp_path, 10_000, OBJECTS)
    for i in range(12):
        cache.store(f"k{i}", bytes(1000))
        os.utime(tmp_path / f"k{i}.tfo", (1000 + i, 1000 + i))
    assert cache.load("k0") is not None  # becomes the newest
    cache.evict()
    assert sum(p.stat().st_size for p in entries(cache)) <= 10_000
    assert cache.load("k0") is not None
    assert cache.load("k1") is None and cache.load("k2") is None
    assert cache.load("k11") is not None


def test_the_bound_holds_without_being_asked(tmp_path):
    cache = DiskCache(tmp_path, 20_000, OBJECTS)
    for i in range(200):
        cache.store(f"k{i}", bytes(1000))
    assert len(entries(cache)) <= 20 + 64


def test_what_exceeds_the_bound_is_not_stored(tmp_path):
    cache = DiskCache(tmp_path, 100, OBJECTS)
    cache.store("k", bytes(101))
    assert entries(cache) == []


WRITER = """
import sys
from pathlib import Path
from tenferro.engines.disk_cache import OBJECTS, DiskCache
cache = DiskCache(Path(sys.argv[1]), 1 << 22, OBJECTS)
for round in range(60):
    for i in range(5):
        payload = bytes([i]) * (20_000 + i)
        cache.store(f"k{i}", payload)
        found = cache.load(f"k{i}")
        assert found == payload, (i, found and len(found))
"""


def test_two_processes_write_the_same_keys_at_once(tmp_path):
    both = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"k{i}.tfo" for i in range(5)]


def test_the_user_s_cache_directory_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "tenferro" / "objects"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_directory().is_absolute()


def test_a_load_makes_an_entry_young(tmp_path):
    cache = DiskCache(tmp_path, LIMIT, OBJECTS)
    cache.store("k", b"code")
    os.utime(tmp_path / "k.tfo", (1, 1))
    cache.load("k")
    assert time.time() - (tmp_path / "k.tfo").stat().st_mtime < 60


def test_kinds_lie_side_by_side_under_one_bound(tmp_path):
    objects, images = DiskCache(tmp_path, 10_000, OBJECTS), DiskCache(tmp_path, 10_000, CUDA_IMAGES)
    objects.store("k", b"object")
    assert images.load("k") is None
    images.store("k", b"image")
    assert (objects.load("k"), images.load("k")) == (b"object", b"image")
    (tmp_path / "k.tfo").replace(tmp_path / "k.tfc")
    assert images.load("k") is None  # another kind's magic
    (tmp_path / "foreign.txt").write_bytes(bytes(50_000))
    for i in range(8):
        (objects, images)[i % 2].store(f"k{i}", bytes(2000))
    images.evict()
    ours = [p for p in tmp_path.iterdir() if p.suffix != ".txt"]
    assert 4000 < sum(p.stat().st_size for p in ours) <= 10_000 and (tmp_path / "foreign.txt").exists()


def test_settings_say_where_and_whether(tmp_path, monkeypatch):
    given = {"TENFERRO_CACHE_DIR": str(tmp_path / "here"), "TENFERRO_CACHE_BYTES": "1000000"}
    monkeypatch.setattr(disk_cache, "config", lambda: read_config(given))
    cache = configured(CUDA_IMAGES)
    assert cache is not None and (cache.directory, cache.limit) == (tmp_path / "here", 1_000_000)
    monkeypatch.setattr(disk_cache, "config", lambda: read_config({"TENFERRO_CACHE": "0"}))
    assert configured(OBJECTS) is None


def test_caches_of_one_directory_count_their_stores_together(tmp_path, monkeypatch):
    """Programs that are kept ask for a cache each: the directory is not scanned for each of them."""
    scans = []
    monkeypatch.setattr(DiskCache, "evict", lambda cache: scans.append(cache.directory))
    for k in range(2 * disk_cache.STORES_PER_SCAN):
        DiskCache(tmp_path, LIMIT, OBJECTS).store(entry_key(str(k)), b"x")
    assert scans == [tmp_path] * 2
