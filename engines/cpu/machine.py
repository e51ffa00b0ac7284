"""What this machine grants this process: cores and bytes of memory, after affinity and cgroup limits."""

from __future__ import annotations

import os
from pathlib import Path

_MEMBERSHIP, _CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def core_count() -> int:
    """Cores that affinity and cgroup quota leave, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(_MEMBERSHIP, _CGROUPS)
    # Rounded down: a region ends with its slowest thread, and the thread beyond the quota is the one that gets
    # throttled.
    return max(1, min(cores, int(quota))) if quota is not None else cores


def memory_bytes() -> int:
    """Physical memory, or the cgroup's limit where that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_number(folder / name) for folder in _folders(_MEMBERSHIP, _CGROUPS, "memory")
              for name in ("memory.max", "memory.limit_in_bytes")]  # fmt: skip
    return min([memory, *[limit for limit in limits if limit is not None]])


def cgroup_quota(membership: Path, root: Path) -> float | None:
    """The smallest CPU quota, in cores, on this process's way up the cgroup tree (version 2, or version 1's cpu
    controller); None where there is none."""
    quotas = [_folder_quota(folder) for folder in _folders(membership, root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(membership: Path, root: Path, controller: str) -> list[Path]:
    """The cgroup folders of a controller that this process is in, innermost first."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        place = Path(path.lstrip("/"))
        found += [base / folder for folder in (place, *place.parents)]
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _folder_quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError):
        return None
