"""How far compiling is: one line drawn over itself on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TextIO

_CLEAR = "\r\x1b[K"
_WRITTEN_EVERY_S = 10.0


class KernelProgress:
    """For the lines of a `with`. `clock` gives seconds."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = sys.stderr if out is None else out
        self._clock = clock
        self._is_terminal = self._out.isatty()
        self._began = self._told = clock()
        self._wanted = self._there = self._ended = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_terminal:
            self._out.write(_CLEAR)
            self._out.flush()

    def follow(self, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same events, shown on the way."""
        for event in events:
            self._count(event)
            yield event

    def _count(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "found":
                self._wanted += event["wanted"]
                self._there += event["there"]
            case "compiled" | "failed":
                self._ended += 1
                self._tell(f"{event['target']} {event['op']}")

    def _tell(self, what: str) -> None:
        now = self._clock()
        if not self._is_terminal and now - self._told < _WRITTEN_EVERY_S:
            return
        self._told = now
        line = f"compiling: {self._ended} of {self._wanted - self._there} kernels{self._left(now)}, {what}"
        self._out.write(f"{_CLEAR}{line}" if self._is_terminal else f"{line}\n")
        self._out.flush()

    def _left(self, now: float) -> str:
        seconds = (now - self._began) / self._ended * (self._wanted - self._there - self._ended)
        return f", {seconds:.0f} s left"
