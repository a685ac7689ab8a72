"""The worker's hand-over from the loader thread to the one that serves."""

from __future__ import annotations

import gc
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.engine_client import PATIENCE_S, EngineClient
from support.engine_driver import engine_spec

from halogend.engine import worker
from halogend.engine.progress import Progress
from halogend.engine.worker import EXIT_START_FAILED, EngineWorker
from halogend.wire.channel import WorkerChannel
from halogend.wire.control import Hello, SetThreads, StartEngine, StartFailed, Stop

NO_FILE = engine_spec(Path("/nowhere/model.gguf"))


@contextmanager
def running_worker() -> Iterator[EngineClient]:
    """In a thread of this process; its start must fail."""
    pairs = [[WorkerChannel(end) for end in socket.socketpair()] for _ in range(2)]
    (control, their_control), (data, their_data) = pairs
    statuses: list[int] = []
    engine = EngineWorker(their_control, their_data)
    thread = threading.Thread(target=lambda: statuses.append(engine.run()), name="worker")
    thread.start()
    try:
        yield EngineClient(control, data)
        control.send(Stop())
        thread.join(PATIENCE_S)
        assert statuses == [EXIT_START_FAILED]
    finally:
        for channel in (control, their_control, data, their_data):
            channel.close()


class _LateSignal:
    """Sends a message when the loader wants to signal its end, and lets it only when the worker has
    gone back to waiting, or has closed the descriptor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, client: EngineClient) -> None:
        self.closed_too_early = False
        self._descriptor = -1
        self._settled = threading.Event()
        write, close, select = os.eventfd_write, os.close, selectors.DefaultSelector.select

        def late_write(descriptor: int, value: int) -> None:
            self._descriptor = descriptor
            client.control.send(SetThreads(threads=1))
            assert self._settled.wait(PATIENCE_S)
            if not self.closed_too_early:
                write(descriptor, value)

        def seen_close(descriptor: int) -> None:
            if descriptor == self._descriptor and not self._settled.is_set():
                self.closed_too_early = True
                self._settled.set()
            close(descriptor)

        def seen_select(
            selector: selectors.DefaultSelector, timeout: float | None = None
        ) -> list[tuple[selectors.SelectorKey, int]]:
            if self._descriptor >= 0 and threading.current_thread().name == "worker":
                self._settled.set()
            return select(selector, timeout)

        monkeypatch.setattr(os, "eventfd_write", late_write)
        monkeypatch.setattr(os, "close", seen_close)
        monkeypatch.setattr(selectors.DefaultSelector, "select", seen_select)


def test_a_message_between_the_end_of_loading_and_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_worker() as client:
        client.until_told(Hello)
        late = _LateSignal(monkeypatch, client)
        client.control.send(StartEngine(spec=NO_FILE))
        client.until_told(StartFailed)
    assert not late.closed_too_early


def test_loading_leaves_the_collector_on() -> None:
    loading: Future[object] = Future()
    worker.load_into(NO_FILE, Progress(), loading)
    assert "model.gguf" in str(loading.exception())
    assert gc.isenabled()
