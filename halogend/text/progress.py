"""How far the text process has come, told to the daemon by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from halogend.wire import control
from halogend.wire.channel import ChannelClosedError
from halogend.wire.process import ThreadClock

_EVERY_S = 0.5


class Progress:
    """A counter that moves with every request encoded, every step turned into text and every bit of
    processor time that the loader gets, so that a load on a busy machine still counts as moving.

    Written by the loader and then by the event loop, never by both; read by the sending thread.
    """

    def __init__(self, send: Callable[[control.Progress], None], every_s: float = _EVERY_S) -> None:
        self.loader = ThreadClock()
        self._send = send
        self._every_s = every_s
        self._stage = "starting"
        self._counter = 0
        self._busy = True
        self._ended = threading.Event()

    def start(self) -> None:
        """Begins to tell. The thread ends with the process, or when the daemon is gone."""
        threading.Thread(target=self._tell, name="progress", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def begin(self, stage: str) -> None:
        self._stage = stage
        self.bump()

    def bump(self) -> None:
        self._counter += 1

    def set_busy(self, busy: bool) -> None:
        self._busy = busy

    def _tell(self) -> None:
        while True:
            try:
                counter = self._counter + self.loader.ticks()
                self._send(control.Progress(stage=self._stage, counter=counter, busy=self._busy))
            except ChannelClosedError:
                return
            if self._ended.wait(self._every_s):
                return
