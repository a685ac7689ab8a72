"""What /proc says of the daemon and of all that came from it."""

from __future__ import annotations

import contextlib
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int) -> list[int]:
    """Processes that live, without those that only wait to be reaped."""
    found = []
    for path in (_PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child] if is_alive(child) else []
                found += descendants(child)
    return found


def is_alive(pid: int) -> bool:
    """A zombie does not count."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def held_bytes(pid: int) -> int:
    """Anonymous and shared memory; 0 for a process that is gone."""
    total = 0
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) << 10
    return total


def role_of(pid: int) -> str:
    """The module that it runs, such as halogend.engine; empty for a process that is gone."""
    with contextlib.suppress(OSError, ValueError):
        words = (_PROC / str(pid) / "cmdline").read_text().split("\0")
        return words[words.index("-m") + 1]
    return ""


def descriptors(pid: int) -> int:
    with contextlib.suppress(OSError):
        return sum(1 for _ in (_PROC / str(pid) / "fd").iterdir())
    return 0
