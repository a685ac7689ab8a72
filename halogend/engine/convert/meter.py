"""How far a conversion is, told as it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Told what is done ("converting", "hashing", "verifying"), bytes of it done, and bytes of it in all."""
_MOST_TOLD = 200  # times a phase


class Meter:
    """Counts bytes from several threads, and reports a few hundred times a phase. One phase at a time."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._what, self._total, self._done, self._told = "", 0, 0, 0

    def begin(self, what: str, total_bytes: int) -> None:
        self._what, self._total, self._done, self._told = what, total_bytes, 0, 0
        if self._report is not None:
            self._report(what, 0, total_bytes)

    def advance(self, nbytes: int) -> None:
        """So many bytes more are done."""
        with self._lock:
            self._done += nbytes
            is_news = self._done == self._total or self._done - self._told >= self._total // _MOST_TOLD
            if is_news and self._report is not None:
                self._told = self._done
                self._report(self._what, self._done, self._total)
