"""How far the engine has come, for the thread that tells the daemon each second."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """One reading. `counter` only grows; `done` of `total` bytes are loaded."""

    stage: str
    counter: int
    busy: bool
    done: int
    total: int


class Progress:
    """A counter that moves with every layer run, tensor loaded or kernel compiled.

    Safe from any thread: the loader and the loop write, the sender reads.
    """

    def __init__(self, stage: str = "starting") -> None:
        self._lock = threading.Lock()
        self._mark = Mark(stage=stage, counter=0, busy=True, done=0, total=0)

    @property
    def stage(self) -> str:
        return self._mark.stage

    @property
    def counter(self) -> int:
        return self._mark.counter

    @property
    def done(self) -> int:
        return self._mark.done

    @property
    def total(self) -> int:
        return self._mark.total

    def read(self) -> Mark:
        return self._mark

    def begin(self, stage: str, total: int = 0) -> None:
        """A new stage (starting, loading, warming, serving); `total` bytes lie ahead in it."""
        with self._lock:
            self._mark = Mark(stage=stage, counter=self._mark.counter + 1, busy=self._mark.busy, done=0, total=total)

    def bump(self) -> None:
        """One unit of work is done."""
        self.advance(0)

    def advance(self, done_bytes: int) -> None:
        """`done_bytes` more are loaded."""
        with self._lock:
            mark = self._mark
            self._mark = Mark(
                stage=mark.stage,
                counter=mark.counter + 1,
                busy=mark.busy,
                done=mark.done + done_bytes,
                total=mark.total,
            )

    def set_busy(self, busy: bool) -> None:
        """Whether work is pending: a busy engine whose counter rests is wedged."""
        with self._lock:
            mark = self._mark
            self._mark = Mark(stage=mark.stage, counter=mark.counter, busy=busy, done=mark.done, total=mark.total)
