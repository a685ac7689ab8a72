"""What processes hold of the host's memory: what is theirs alone, as the kernel counts it.

Anonymous and shared memory, which only their end gives back. Pages of files are not counted: the
system takes those when it needs them. The root of the file system is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

_OWN = ("RssAnon:", "RssShmem:")


def held_bytes(pids: Iterable[int], root: Path = Path("/")) -> dict[int, int]:
    """By process: of these and of all that came from them. One that is gone holds nothing."""
    return {pid: _own_bytes(root, pid) for each in pids for pid in _family(root, each)}


def left_bytes(before: Mapping[int, int], root: Path = Path("/")) -> int:
    """What processes that were measured before still hold. A number that was given to a new process since
    counts for no more than its last owner held."""
    return sum(min(held, _own_bytes(root, pid)) for pid, held in before.items())


def _own_bytes(root: Path, pid: int) -> int:
    lines = _read(root / f"proc/{pid}/status").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(_OWN))


def _family(root: Path, pid: int) -> list[int]:
    """The process first."""
    found = [pid]
    for thread in _threads(root / f"proc/{pid}/task"):
        for child in _read(thread / "children").split():
            found += _family(root, int(child))
    return found


def _threads(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it has ended since
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
