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
        self._stage = stage
        self._counter = 0
        self._busy = True
        self._done = 0
        self._total = 0

    @property
    def stage(self) -> str:
        return self._stage

    @property
    def counter(self) -> int:
        return self._counter

    @property
    def done(self) -> int:
        return self._done

    @property
    def total(self) -> int:
        return self._total

    def read(self) -> Mark:
        """With the loader's processor time in the counter, so that a starved load still moves."""
        with self._lock:
            mark = Mark(self._stage, self._counter, self._busy, self._done, self._total)
        return replace(mark, counter=mark.counter + self.loader.ticks())

    def begin(self, stage: str, total: int = 0) -> None:
        """A new stage (importing, starting, compiling, loading, warming, serving); `total` bytes lie ahead in it."""
        with self._lock:
            self._counter += 1
            self._stage, self._done, self._total = stage, 0, total

    def bump(self) -> None:
        """One unit of work is done."""
        with self._lock:
            self._counter += 1

    def advance(self, done_bytes: int) -> None:
        """`done_bytes` more are loaded."""
        with self._lock:
            self._counter += 1
            self._done += done_bytes

    def set_busy(self, busy: bool) -> None:
        """Whether work is pending: a busy engine whose counter rests is wedged."""
        self._busy = busy


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
