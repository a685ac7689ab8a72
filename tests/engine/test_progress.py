"""What the engine tells of itself while a step takes long."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from halogend.engine import progress as module
from halogend.engine.progress import Progress, tell
from halogend.wire import control
from halogend.wire.channel import WorkerChannel, wait


@contextmanager
def told(progress: Progress) -> Iterator[WorkerChannel]:
    """The daemon's end, while a thread tells."""
    ours, theirs = socket.socketpair()
    channel, ended = WorkerChannel(ours), threading.Event()
    teller = threading.Thread(target=tell, args=(progress, WorkerChannel(theirs), ended))
    teller.start()
    try:
        yield channel
    finally:
        ended.set()
        teller.join()
        channel.close()
        theirs.close()


def marks(channel: WorkerChannel, count: int) -> list[control.Progress]:
    found: list[control.Progress] = []
    while len(found) < count:
        wait((channel,), 10.0)
        found += [each for each in channel.receive() if isinstance(each, control.Progress)]
    return found


def test_s2_a_step_that_does_not_return_is_told_of_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tick depends on the loop: it is in the step, and does not come back before three of them are heard."""
    monkeypatch.setattr(module, "TELL_EVERY_S", 0.01)
    progress = Progress("serving")
    with told(progress) as channel:
        first = marks(channel, 3)
        progress.bump()
        while marks(channel, 1)[0].counter == first[0].counter:
            pass
    assert {(each.stage, each.busy, each.counter) for each in first} == {("serving", True, 0)}


def test_s2_it_tells_at_least_every_two_seconds() -> None:
    assert module.TELL_EVERY_S <= 2.0
