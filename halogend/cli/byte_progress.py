"""How far work over many bytes is: one line drawn over itself on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from halogend.cli.show import mib

_CLEAR = "\r\x1b[K"
_DRAWN_EVERY_S = 0.2
_WRITTEN_EVERY_S = 10.0


class ByteProgress:
    """`what` is what is done, as "verifying". For the lines of a `with`; `advance` may be called from several
    threads. `clock` gives seconds."""

    def __init__(
        self, what: str, total_bytes: int, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._total = total_bytes
        self._out = sys.stderr if out is None else out
        self._clock = clock
        self._is_terminal = self._out.isatty()
        self._every = _DRAWN_EVERY_S if self._is_terminal else _WRITTEN_EVERY_S
        self._began = self._told = clock()
        self._done = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_terminal:
            self._out.write(_CLEAR)
            self._out.flush()

    def advance(self, nbytes: int) -> None:
        """So many bytes more are done."""
        with self._lock:
            self._done += nbytes
            if (now := self._clock()) - self._told >= self._every:
                self._told = now
                self._out.write(f"{_CLEAR}{self.line(now)}" if self._is_terminal else f"{self.line(now)}\n")
                self._out.flush()

    def line(self, now: float) -> str:
        """Bytes done and wanted, the rate since the beginning, and what the rest takes at that."""
        rate = self._done / max(now - self._began, 1e-9)
        left = f", {(self._total - self._done) / rate:.0f} s left" if self._done else ""
        return f"{self._what}: {mib(self._done)} of {mib(self._total)}, {mib(int(rate))}/s{left}"
