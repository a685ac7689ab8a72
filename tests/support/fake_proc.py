"""A folder that looks like /proc and /sys to whoever asks what a process does."""

from __future__ import annotations

import os
from pathlib import Path

_STAT = "{pid} (python -m :) S) {state} 1 1 1 0 -1 4194560 900 0 {faults} 0 {user} {system} 0 0 20 0 9 0 77 0 0\n"
_TICKS = os.sysconf("SC_CLK_TCK")


class FakeProc:
    """`process` writes one process; what it did before is overwritten."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def process(self, pid: int, states: str = "S", cpu_s: float = 0.0, major_faults: int = 0) -> None:
        """A thread for each letter of `states`; the first is the process's own."""
        home = self.root / "proc" / str(pid)
        user = int(cpu_s * _TICKS * 0.75)
        system = int(cpu_s * _TICKS) - user
        for number, state in enumerate(states):
            thread = home / "task" / str(pid + number)
            if not thread.exists():
                thread.mkdir(parents=True)
            text = _STAT.format(pid=pid, state=state, faults=major_faults, user=user, system=system)
            (thread / "stat").write_text(text)
            if number == 0:
                (home / "stat").write_text(text)

    def group(self, pid: int, line: str, file: str, text: str) -> None:
        """Its line in `cgroup`, and what a file of that control group says."""
        (self.root / "proc" / str(pid) / "cgroup").write_text(line + "\n")
        path = self.root / "sys/fs/cgroup" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def pressure(self, full: float) -> None:
        folder = self.root / "proc/pressure"
        folder.mkdir(parents=True, exist_ok=True)
        kinds = {"some": 99.0, "full": full}
        lines = [f"{kind} avg10={share:.2f} avg60=0.00 avg300=0.00 total=5\n" for kind, share in kinds.items()]
        (folder / "memory").write_text("".join(lines))
