"""What goes on while a command waits for a change: one line on a terminal, drawn over itself; elsewhere nothing."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from types import TracebackType
from typing import Self, TextIO

from halogend.cli import admin
from halogend.cli.event_line import event_line
from halogend.cli.follow import Follower, Told
from halogend.cli.show import mib

_TOLD = frozenset({"step", "progress"})
_CLEAR = "\r\x1b[K"


class Progress:
    """Follows the daemon's events in a thread from the first to the last line of a `with`."""

    def __init__(self, where: admin.Endpoint, out: TextIO | None = None, columns: int | None = None) -> None:
        self._where = where
        self._out = sys.stderr if out is None else out
        self._columns = columns or shutil.get_terminal_size().columns
        self._began: dict[tuple[str, int], tuple[float, int]] = {}
        self._lock = threading.Lock()
        self._is_over = False

    def __enter__(self) -> Self:
        if self._out.isatty():
            threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_over = True
            if self._out.isatty():
                self._out.write(_CLEAR)
                self._out.flush()

    def _listen(self) -> None:
        with contextlib.suppress(admin.AdminError):  # the command itself says what is wrong
            for told in Follower(self._where).events():
                if self._is_over:
                    return
                self.hear(told)

    def hear(self, told: Told) -> None:
        if told.kind not in _TOLD:
            return
        line = event_line(told.kind, told.data).partition("  ")[2]
        if told.kind == "progress":
            line += self._rate(told)
        with self._lock:
            if not self._is_over:
                self._out.write(_CLEAR + line[: self._columns - 1])
                self._out.flush()

    def _rate(self, told: Told) -> str:
        """Since the first that was heard of this load: bytes a second, and the time the rest takes at that."""
        data = told.data
        at, done = data["at"], data["loaded_bytes"]
        began_at, began = self._began.setdefault((data["model"], data["generation"]), (at, done))
        if done <= began or at <= began_at:
            return ""
        rate = (done - began) / (at - began_at)
        return f", {mib(int(rate))}/s, {(data['total_bytes'] - done) / rate:.0f} s left"
