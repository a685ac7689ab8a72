"""What a process does while it says nothing: read from /proc, twice, and compared.

Owns the reading and the comparison; what follows from it is `health`'s. The folder is a parameter, so
that every state can be described by files. Sources: proc(5), cgroups(7), Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

_log = structlog.get_logger()
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_STATE, _MAJOR_FAULTS, _USER, _SYSTEM = 0, 9, 11, 12  # columns of `stat` behind the name in brackets
_WORKS_SHARE = 0.2  # of one core
_PAGES_A_SECOND = 1.0  # major faults
_SHORT_OF_MEMORY = 40.0  # per cent of ten seconds in which nobody could go on for want of memory
_LOOKS = 11  # at one a second: ten seconds
_LEAST_S = 0.9


class Doing(enum.StrEnum):
    """Ends the sentence "the process ...". Decided in this order."""

    GONE = "is gone"
    FROZEN = "is frozen by its control group"
    STOPPED = "is stopped by a signal or a debugger"
    PAGES = "waits for memory: pages come back from a disk, or there are too few"
    DISK = "waits for a disk or a file server"
    WORKS = "takes processor time"
    STARVES = "gets no processor"
    RESTS = "does nothing"


@dataclass(frozen=True, slots=True)
class ProcFacts:
    """One look at one process. `states` are those of its threads, as proc(5) has them; `cpu_s` and
    `major_faults` count from its start; `memory_full` is the machine's share of lost time, in per cent."""

    states: frozenset[str]
    cpu_s: float
    major_faults: int
    is_frozen: bool = False
    memory_full: float = 0.0


def read_facts(pid: int, root: Path = Path("/")) -> ProcFacts | None:
    """None when the process is gone, or waits to be buried. What else cannot be read is taken for normal."""
    home = root / "proc" / str(pid)
    try:
        own = _columns(home / "stat")
        states = _thread_states(home / "task")
    except OSError:
        return None
    if own[_STATE] in "ZXx":
        return None
    return ProcFacts(
        states=frozenset({own[_STATE], *states}),
        cpu_s=(int(own[_USER]) + int(own[_SYSTEM])) / _TICKS_A_SECOND,
        major_faults=int(own[_MAJOR_FAULTS]),
        is_frozen=_is_frozen(home, root / "sys/fs/cgroup"),
        memory_full=_memory_full(root / "proc/pressure/memory"),
    )


def compare(before: ProcFacts | None, after: ProcFacts | None, over_s: float) -> Doing:
    """What it did between two looks. A state counts where both saw it: a thread waits for a disk now and then."""
    if before is None or after is None:
        return Doing.GONE
    states = before.states & after.states
    if after.is_frozen:
        return Doing.FROZEN
    if after.states & {"T", "t"}:
        return Doing.STOPPED
    faults = after.major_faults - before.major_faults
    if after.memory_full >= _SHORT_OF_MEMORY or faults >= _PAGES_A_SECOND * over_s:
        return Doing.PAGES
    if after.cpu_s - before.cpu_s >= _WORKS_SHARE * over_s:
        return Doing.WORKS
    if "D" in states:
        return Doing.DISK
    return Doing.STARVES if "R" in states else Doing.RESTS


class Looks:
    """The last ten seconds of those processes that are under suspicion; what comes of it is told in the log, once.
    Single writer: the watch of a replica, whose model is `name`."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._looks: dict[str, deque[tuple[float, ProcFacts | None]]] = {}
        self._told: dict[str, Doing] = {}

    def take(self, suspects: Iterable[str], pids: Mapping[str, int], now: float) -> dict[str, Doing]:
        """Looks at these once more; what each does, where there are two looks to compare."""
        self._looks = {role: self._looks.get(role, deque(maxlen=_LOOKS)) for role in suspects if role in pids}
        for role, looks in self._looks.items():
            looks.append((now, read_facts(pids[role], self._root)))
        found = {
            role: compare(looks[0][1], looks[-1][1], now - looks[0][0])
            for role, looks in self._looks.items()
            if now - looks[0][0] >= _LEAST_S
        }
        for role, doing in found.items():
            if self._told.get(role) is not doing:
                _log.warning("worker_suspected", model=self._name, role=role, pid=pids[role], doing=str(doing))
        self._told = found
        return found


def _thread_states(tasks: Path) -> set[str]:
    """A thread that ends between the listing and the look is no fault of its process. Raises OSError."""
    found = set()
    for each in tasks.iterdir():
        with contextlib.suppress(OSError):
            found.add(_columns(each / "stat")[_STATE])
    return found


def _columns(path: Path) -> list[str]:
    """Those behind the name, which may hold anything. Raises OSError."""
    text = path.read_text(errors="replace")
    columns = text[text.rfind(")") + 1 :].split()
    if len(columns) <= _SYSTEM:
        raise OSError(f"{path} is cut short")
    return columns


def _is_frozen(home: Path, groups: Path) -> bool:
    """Version 1 and 2; a path that is not there, as in a namespace of its own, freezes nothing."""
    for line in _text(home / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers and "frozen 1" in _text(groups / path.lstrip("/") / "cgroup.events").splitlines():
            return True
        if controllers == "freezer":
            return _text(groups / "freezer" / path.lstrip("/") / "freezer.state").strip() in {"FROZEN", "FREEZING"}
    return False


def _memory_full(pressure: Path) -> float:
    for line in _text(pressure).splitlines():
        kind, *pairs = line.split()
        found = dict(pair.split("=", 1) for pair in pairs)
        if kind == "full" and "avg10" in found:
            return float(found["avg10"])
    return 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
