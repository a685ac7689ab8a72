"""How far the engine has come, and the thread that tells the daemon."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from halogend.wire import control
from halogend.wire.channel import ChannelClosedError, WorkerChannel
from halogend.wire.process import ThreadClock

TELL_EVERY_S = 0.5


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
        self.loader = ThreadClock()
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
        """With the loader's processor time in the counter, so that a starved load still moves."""
        mark = self._mark
        return replace(mark, counter=mark.counter + self.loader.ticks())

    def begin(self, stage: str, total: int = 0) -> None:
        """A new stage (importing, starting, compiling, loading, warming, serving); `total` bytes lie ahead in it."""
        with self._lock:
            mark = self._mark
            self._mark = replace(mark, stage=stage, counter=mark.counter + 1, done=0, total=total)

    def bump(self) -> None:
        """One unit of work is done."""
        self.advance(0)

    def advance(self, done_bytes: int) -> None:
        """`done_bytes` more are loaded."""
        with self._lock:
            mark = self._mark
            self._mark = replace(mark, counter=mark.counter + 1, done=mark.done + done_bytes)

    def set_busy(self, busy: bool) -> None:
        """Whether work is pending: a busy engine whose counter rests is wedged."""
        with self._lock:
            self._mark = replace(self._mark, busy=busy)


def tell(progress: Progress, channel: WorkerChannel, ended: threading.Event) -> None:
    """Sends the progress every TELL_EVERY_S until `ended` is set or the daemon is gone: for a thread
    of its own, so that a long step does not silence it."""
    while True:
        mark = progress.read()
        message = control.Progress(
            stage=mark.stage, counter=mark.counter, busy=mark.busy, done=mark.done, total=mark.total
        )
        try:
            channel.send(message)
        except ChannelClosedError:
            return
        if ended.wait(TELL_EVERY_S):
            return
