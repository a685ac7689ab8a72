"""The engine process's life: hello, load in a thread that yields to everybody, serve, exit.

Until the model is loaded the main thread answers control and imports nothing heavy. One that is told to imports ahead
what a load needs, and opens nothing before it is told what to load.
"""

from __future__ import annotations

import errno
import gc
import os
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.progress import Progress, tell
from halogend.engine.refusal import StartRefusedError
from halogend.sched.errors import InvariantError
from halogend.wire.channel import ChannelClosedError, WorkerChannel, wait
from halogend.wire.messages import (
    AHEAD,
    WIRE_VERSION,
    AnyMessage,
    EngineReady,
    EngineSpec,
    Failure,
    Hello,
    ImportAhead,
    StartEngine,
    StartFailed,
    Stop,
)
from halogend.wire.process import EXIT_PEER_LOST, nice_thread

if TYPE_CHECKING:
    from halogend.engine.interface import Loaded

EXIT_STOPPED = 0
EXIT_BUG = 1
EXIT_START_FAILED = 3
EXIT_BROKEN = 5

START_FAILED = "HRT-1010"
OUT_OF_MEMORY = "HRT-1016"
_GOODBYE_S = 5.0
_NICEST = 19

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Start:
    """What was asked, and what else came on control while it was being done."""

    spec: EngineSpec
    backlog: list[AnyMessage]


class EngineWorker:
    """Runs once. Owns both channels and the loader thread."""

    def __init__(self, control: WorkerChannel, data: WorkerChannel) -> None:
        self._control = control
        self._data = data
        self._progress = Progress()
        self._ended = threading.Event()
        self._ahead: threading.Thread | None = None

    def run(self) -> int:
        """The exit status. Raises InvariantError for our own bugs."""
        try:
            self._control.send(Hello(version=WIRE_VERSION, role="engine", pid=os.getpid()))
            threading.Thread(
                target=tell, args=(self._progress, self._control, self._ended), name="progress", daemon=True
            ).start()
            start = self._await_start()
            return EXIT_STOPPED if start is None else self._load_and_serve(start)
        except ChannelClosedError:
            return EXIT_STOPPED  # the daemon is gone
        finally:
            self._ended.set()

    def _await_start(self) -> _Start | None:
        """None when told to stop before."""
        while True:
            messages = self._control.receive()
            for place, message in enumerate(messages):
                match message:
                    case StartEngine():
                        return _Start(message.spec, messages[place + 1 :])
                    case ImportAhead():
                        self._import_ahead()
                    case Stop():
                        return None
                    case _:
                        raise InvariantError(f"a {type(message).__name__} before StartEngine")
            wait((self._control,), None)

    def _import_ahead(self) -> None:
        self._ahead = threading.Thread(target=import_ahead, args=(self._progress,), name="ahead", daemon=True)
        self._ahead.start()

    def _load_and_serve(self, start: _Start) -> int:
        loading: Future[Loaded] = Future()
        if not self._await_loaded(start, loading):
            return EXIT_STOPPED
        error = loading.exception()
        if error is not None:
            return self._fail(start_failure(start.spec, error))
        return self._serve(start, loading.result())

    def _await_loaded(self, start: _Start, loading: Future[Loaded]) -> bool:
        """Loads in a thread of its own. False when told to stop meanwhile; the thread is left to die."""
        done = os.eventfd(0)
        loading.add_done_callback(lambda _: os.eventfd_write(done, 1))
        threading.Thread(
            target=load_into,
            args=(start.spec, self._progress, loading, self._ahead),
            name="load",
            daemon=True,
        ).start()
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(done, selectors.EVENT_READ)
            # Not until the future is done: that comes before the signal, which would then be written to
            # a descriptor that is closed or somebody else's.
            signalled = False
            while not signalled:
                if any(isinstance(message, Stop) for message in start.backlog):
                    return False
                signalled = any(key.fileobj == done for key, _ in selector.select())
                start.backlog.extend(self._control.receive())
        os.close(done)
        return True

    def _fail(self, failure: Failure) -> int:
        """Says why and waits for the daemon to have heard it: it would otherwise see the exit first."""
        log.error("start_failed", code=failure.code, message=failure.message)
        self._control.send(StartFailed(failure=failure))
        deadline = time.monotonic() + _GOODBYE_S
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                if any(isinstance(message, Stop) for message in self._control.receive()):
                    break
                wait((self._control,), left_s)
        except ChannelClosedError:
            pass
        return EXIT_START_FAILED

    def _serve(self, start: _Start, loaded: Loaded) -> int:
        # Heavy, and imported by the loader thread already.
        from halogend.engine.execute import EngineBrokenError  # noqa: PLC0415
        from halogend.engine.loop import Channels, EngineLoop, PeerLostError  # noqa: PLC0415

        # The thread count belongs to the thread: the loader's single one is not this one's.
        loaded.runner.set_threads(start.spec.threads)
        loop = EngineLoop(Channels(self._control, self._data), loaded, start.spec, self._progress)
        self._progress.begin("serving")
        self._progress.set_busy(busy=False)
        self._control.send(ready(loaded))
        try:
            loop.run(start.backlog)
        except PeerLostError:
            log.exception("text_process_lost")
            return EXIT_PEER_LOST
        except EngineBrokenError:
            log.exception("engine_broken")
            return EXIT_BROKEN
        return EXIT_STOPPED


def import_ahead(progress: Progress) -> None:
    """The thread of one that is to load later, nobody knows what. Where an import fails, the load will say so."""
    gc.disable()
    try:
        nice_thread(_NICEST)
        progress.loader.follow()
        _import_all()
        _keep()
        progress.begin(AHEAD)
        progress.set_busy(busy=False)
    finally:
        progress.loader.leave()
        gc.enable()


def _keep() -> None:
    """What is there lives as long as the process: it is never walked again to look for garbage, not even at the end
    of a load that follows."""
    gc.collect()
    gc.freeze()


def load_into(
    spec: EngineSpec, progress: Progress, loading: Future[Loaded], ahead: threading.Thread | None = None
) -> None:
    """The loader thread: imports what is heavy, so that the main thread never waits for it, and loads. What is
    imported `ahead` it waits for: two threads do not import one thing well."""
    if ahead is not None:
        ahead.join()
        progress.begin("starting")
        progress.set_busy(busy=True)
    # Imports and weights make many objects and no garbage: looking for some takes a tenth of the time.
    gc.disable()
    try:
        nice_thread(spec.loader_niceness)
        progress.loader.follow()
        load = _import_all()
        loaded = load(spec, progress)
        _keep()
        loading.set_result(loaded)
    except BaseException as error:  # noqa: BLE001 (whatever it is, the main thread reports it)
        loading.set_exception(error)
    finally:
        progress.loader.leave()
        gc.enable()


def _import_all() -> Callable[[EngineSpec, Progress], Loaded]:
    """What every load needs, here so that the main thread never waits for it. Returns what loads."""
    import halogend.engine.loop  # noqa: F401, PLC0415 (heavy)
    from halogend.engine.loading import load  # noqa: PLC0415 (heavy)

    return load


def start_failure(spec: EngineSpec, error: BaseException) -> Failure:
    """What the daemon is told when loading raised `error`."""
    match error:
        case CheckpointError():
            return Failure(code=error.code, message=error.message)
        case StartRefusedError():
            return Failure(code=error.code, message=f"{spec.path}: {error.message}")
        case MemoryError():
            return Failure(code=OUT_OF_MEMORY, message=f"{spec.path}: memory ran out while loading: {error}")
        case OSError() if error.errno == errno.ENOMEM:
            return Failure(code=OUT_OF_MEMORY, message=f"{spec.path}: no memory for the KV pool: {error.strerror}")
        case _:
            log.error("load_raised", exc_info=error)
            return Failure(code=START_FAILED, message=f"{spec.path}: loading failed: {type(error).__name__}: {error}")


def ready(loaded: Loaded) -> EngineReady:
    return EngineReady(
        weights_bytes=loaded.weights_bytes,
        mapped_bytes=loaded.mapped_bytes,
        pool_bytes=loaded.pool_bytes,
        block_bytes=loaded.block_bytes,
        block_count=loaded.block_count,
        load_s=loaded.load_s,
        warmup_s=loaded.warmup_s,
        kernels=loaded.kernels,
        pool_touched_bytes=loaded.runner.touched_bytes,
        transient_bytes=None if loaded.peak is None else loaded.peak.over_now_bytes(),
    )
