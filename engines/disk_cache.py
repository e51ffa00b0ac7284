"""The disk cache of machine code and traced programs: a key in, an entry's bytes out, or None.

One file for each entry: magic, sha256 of key and payload, the payload. A file is written under a temporary name and
renamed, so that a reader, or a second writer of the same key, never sees half of one. Anything that does not check is
treated as absent and written anew. Nothing is unpickled.

Engines keep their entries side by side in one directory: a *kind* has a magic and a suffix of its own; there is one
bound for all.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tenferro.tracer.config import config
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """What an entry holds: the first bytes of its file, and the end of the file's name."""

    magic: bytes
    suffix: str


OBJECTS = Kind(b"tenferro object 1\n", ".tfo")
"""Object files of the CPU engine."""
CUDA_IMAGES = Kind(b"tenferro cuda 1\n", ".tfc")
"""Modules of the CUDA engine: cubin, or PTX."""
TRACES = Kind(b"tenferro trace 1\n", ".tft")
"""Traced programs."""
HOSTS = Kind(b"tenferro host 1\n", ".tfh")
"""What LLVM has said of a machine."""
RUNS = Kind(b"tenferro run 1\n", ".tfr")
"""Blocks of the CPU engine, bound to the layouts of one call."""
EVICTED = (OBJECTS.suffix, CUDA_IMAGES.suffix, TRACES.suffix, HOSTS.suffix, RUNS.suffix, ".tmp")
# Directory scans cost about 1 µs an entry; one scan for so many stores keeps the bound nearly exact and stores cheap.
STORES_PER_SCAN = 64
# An entry's age is kept to this precision: a stat is ten times cheaper than a write of the time.
TOUCH_SECONDS = 3600.0
_stores: Counter[Path] = Counter()  # of this process, into each directory


def default_directory() -> Path:
    """The user's cache directory of this platform, with ``tenferro/objects`` below it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "tenferro" / "objects"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tenferro" / "objects"
    return Path.home() / ".cache" / "tenferro" / "objects"


def entry_key(*parts: str) -> str:
    """A file name for what ``parts`` say; each part is preceded by its length, so that no two lists run together."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def refusal(directory: Path) -> str | None:
    """Why machine code must not be read from this directory, or None: somebody else could have put it there."""
    try:
        info = directory.stat()
    except OSError as error:
        return f"{directory}: {error.strerror}"
    if not stat.S_ISDIR(info.st_mode):
        return f"{directory} is not a directory"
    if not hasattr(os, "getuid"):
        return None
    if info.st_uid != os.getuid():
        return f"{directory} belongs to user {info.st_uid}; needed {os.getuid()}"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{directory} can be written by group or others (mode {stat.S_IMODE(info.st_mode):o}); needed 700"
    return None


class DiskCache:
    """Entries of one kind in a directory that holds at most ``limit`` bytes, the least recently used evicted first.

    ``refused`` holds the reason where the directory cannot be trusted or made; then every ``load`` misses and every
    ``store`` does nothing. Safe to use from several threads and processes at once."""

    def __init__(self, directory: Path, limit: int, kind: Kind) -> None:
        self.directory = directory
        self.limit = limit
        self.kind = kind
        self.hits = 0
        self.misses = 0
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.refused = refusal(directory)

    def _path(self, key: str) -> Path:
        return self.directory / (key + self.kind.suffix)

    def load(self, key: str) -> bytes | None:
        """The payload stored under ``key``, or None where there is none or it does not check."""
        if self.refused is not None:
            return None
        path = self._path(key)
        payload = _read_entry(path, key, self.kind.magic)
        if payload is None:
            self.misses += 1
            return None
        self.hits += 1
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > TOUCH_SECONDS:
                os.utime(path)
        return payload

    def __contains__(self, key: str) -> bool:
        """Whether there is an entry, which may be damaged."""
        return self.refused is None and self._path(key).exists()

    def store(self, key: str, payload: bytes) -> None:
        """Put ``payload`` under ``key``. A full or read-only disk is no error: the cache only saves time."""
        if self.refused is not None or len(payload) > self.limit:
            return
        with suppress(OSError):
            _write_entry(self._path(key), key, payload, self.kind.magic)
        _stores[self.directory] += 1
        if _stores[self.directory] % STORES_PER_SCAN == 1:
            self.evict()

    def evict(self) -> None:
        """Delete the least recently used entries beyond the limit, and what killed writers left behind."""
        entries: list[tuple[float, int, str]] = []
        with suppress(OSError), os.scandir(self.directory) as found:
            for item in found:
                with suppress(OSError):
                    info = item.stat(follow_symlinks=False)
                    if item.name.endswith(EVICTED):
                        entries.append((info.st_mtime, info.st_size, item.path))
        entries.sort()
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= size


def configured(kind: Kind) -> DiskCache | None:
    """A cache as the settings say, None where ``TENFERRO_CACHE=0``."""
    settings = config()
    if not settings.cache:
        return None
    directory = Path(settings.cache_dir) if settings.cache_dir is not None else default_directory()
    return DiskCache(directory, settings.cache_bytes, kind)


def _digest(key: str, payload: bytes) -> bytes:
    return hashlib.sha256(key.encode() + payload).digest()


def _read_entry(path: Path, key: str, magic: bytes) -> bytes | None:
    try:
        # A pipe, or a device without end, would never let go of who reads it.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
                return None
            data = file.read(found.st_size + 1)
    except OSError:
        return None
    start = len(magic) + hashlib.sha256().digest_size
    if len(data) < start or not data.startswith(magic):
        return None
    payload = data[start:]
    if _digest(key, payload) != data[len(magic) : start]:
        return None
    return payload


def _write_entry(path: Path, key: str, payload: bytes, magic: bytes) -> None:
    import tempfile  # with what it brings as slow to load as a dozen of our own files, and only writers need it

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(magic + _digest(key, payload) + payload)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
