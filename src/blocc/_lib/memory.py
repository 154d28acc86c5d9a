"""How much memory a process may still take."""

from __future__ import annotations

import os
from pathlib import Path

_INFO, _LIMIT, _USED = "/proc/meminfo", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"


def available_memory() -> float:
    """Bytes that are free, or can be freed, within the limit of a container; infinite where nobody says."""
    return min(_of_machine(), _of_container())


def _of_machine() -> float:
    try:
        for line in Path(_INFO).read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _of_container() -> float:
    try:
        limit, used = (Path(name).read_text(encoding="ascii").strip() for name in (_LIMIT, _USED))
        return float("inf") if limit == "max" else float(int(limit) - int(used))
    except (OSError, ValueError):
        return float("inf")
