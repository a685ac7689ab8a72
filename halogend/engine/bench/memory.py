"""How much memory this process has resident, and the most it had meanwhile."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_EVERY_S = 0.01
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes: `total` is `anonymous` plus `file` (pages of mapped files) plus shared memory; `high_water` is the
    most that `total` has been since the process began."""

    total: int
    anonymous: int
    file: int
    high_water: int


def resident() -> Resident:
    """Now. Raises OSError without procfs."""
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    found = {words[0]: int(words[1]) << 10 for words in lines if len(words) == 3 and words[2] == "kB"}
    return Resident(found["VmRSS:"], found["RssAnon:"], found["RssFile:"], found["VmHWM:"])


class Peaks:
    """The highest samples while it is entered, taken by a thread of its own, their only writer."""

    def __init__(self) -> None:
        self.anonymous = 0
        self.file = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            now = resident()
            self.anonymous, self.file = max(self.anonymous, now.anonymous), max(self.file, now.file)
            if self._done.wait(_EVERY_S):
                return
