"""The engine process's life: import what every load needs, hello, load, serve, exit.

    imports --Hello--> takes orders --StartEngine--> loads --EngineReady--> serves

Imports and the load are done in threads that yield to others; the main thread answers control meanwhile and imports
nothing heavy itself. Nothing is opened before it is told what to load, and nothing depends on how long that takes: a
process that nobody told for an hour loads as one that found StartEngine in its socket.
"""

from __future__ import annotations

import errno
import gc
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from halogend.checkpoint.errors import CheckpointError
from halogend.engine.progress import Progress, tell
from halogend.engine.refusal import StartRefusedError
from halogend.sched.errors import InvariantError
from halogend.wire.channel import ChannelClosedError, WorkerChannel, wait
from halogend.wire.control import EngineReady, Hello, StartEngine, StartFailed, Stop
from halogend.wire.failure import Failure
from halogend.wire.frames import WireError
from halogend.wire.messages import WIRE_VERSION, AnyMessage
from halogend.wire.process import EXIT_PEER_LOST, nice_thread
from halogend.wire.specs import EngineSpec

if TYPE_CHECKING:
    from halogend.engine.interface import Loaded

EXIT_STOPPED = 0
EXIT_BUG = 1
EXIT_START_FAILED = 3
EXIT_BROKEN = 5

START_FAILED = "HRT-1010"
OUT_OF_MEMORY = "HRT-1016"
_GOODBYE_S = 5.0

log = structlog.get_logger(__name__)
T = TypeVar("T")


class EngineWorker:
    """Runs once. Owns both channels, and the threads that import and load."""

    def __init__(self, control: WorkerChannel, data: WorkerChannel, niceness: int = 0) -> None:
        """`niceness` is that of the imports."""
        self._control = control
        self._data = data
        self._niceness = niceness
        self._progress = Progress("importing")
        self._ended = threading.Event()
        self._heard: list[AnyMessage] = []  # on control, and not obeyed yet

    def run(self) -> int:
        """The exit status. Raises InvariantError for our own bugs, and WireError."""
        try:
            threading.Thread(
                target=tell, args=(self._progress, self._control, self._ended), name="progress", daemon=True
            ).start()
            return self._import_and_go_on()
        except ChannelClosedError:
            return EXIT_STOPPED  # the daemon is gone
        finally:
            self._ended.set()

    def _import_and_go_on(self) -> int:
        try:
            imported = self._until_done("import", partial(import_into, self._niceness, self._progress))
        except WireError:
            # What is said to it may be of another version. Who says so learns of that from the greeting.
            self._greet()
            self._await_goodbye()
            raise
        if imported is None:
            return EXIT_STOPPED
        if (error := imported.exception()) is not None:
            return self._fail(import_failure(error))
        self._greet()
        self._progress.begin("starting")
        self._progress.set_busy(busy=False)
        spec = self._await_start()
        return EXIT_STOPPED if spec is None else self._load_and_serve(spec)

    def _greet(self) -> None:
        self._control.send(Hello(version=WIRE_VERSION, role="engine", pid=os.getpid()))

    def _await_start(self) -> EngineSpec | None:
        """None when told to stop before."""
        while True:
            while self._heard:
                match self._heard.pop(0):
                    case StartEngine() as message:
                        return message.spec
                    case Stop():
                        return None
                    case message:
                        raise InvariantError(f"a {type(message).__name__} before StartEngine")
            wait((self._control,), None)
            self._heard += self._control.receive()

    def _load_and_serve(self, spec: EngineSpec) -> int:
        self._progress.set_busy(busy=True)
        loading = self._until_done("load", partial(load_into, spec, self._progress))
        if loading is None:
            return EXIT_STOPPED
        error = loading.exception()
        if error is not None:
            return self._fail(start_failure(spec, error))
        return self._serve(spec, loading.result())

    def _until_done(self, name: str, work: Callable[[Future[T]], None]) -> Future[T] | None:
        """Does `work` in a thread of its own, and hears control meanwhile. None when told to stop; the thread is left
        to die."""
        outcome: Future[T] = Future()
        done = os.eventfd(0)
        outcome.add_done_callback(lambda _: os.eventfd_write(done, 1))
        threading.Thread(target=work, args=(outcome,), name=name, daemon=True).start()
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(done, selectors.EVENT_READ)
            # Not until the future is done: that comes before the signal, which would then be written to
            # a descriptor that is closed or somebody else's.
            signalled = False
            while not signalled:
                if any(isinstance(message, Stop) for message in self._heard):
                    return None
                signalled = any(key.fileobj == done for key, _ in selector.select())
                self._heard += self._control.receive()
        os.close(done)
        return outcome

    def _fail(self, failure: Failure) -> int:
        log.error("start_failed", code=failure.code, message=failure.message)
        self._control.send(StartFailed(failure=failure))
        self._await_goodbye()
        return EXIT_START_FAILED

    def _await_goodbye(self) -> None:
        """Until the daemon has heard what was said last: it would otherwise see the exit first."""
        deadline = time.monotonic() + _GOODBYE_S
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                if any(isinstance(message, Stop) for message in self._control.receive()):
                    break
                wait((self._control,), left_s)
        except ChannelClosedError:
            pass

    def _serve(self, spec: EngineSpec, loaded: Loaded) -> int:
        # Heavy, and imported already.
        from halogend.engine.execute import EngineBrokenError  # noqa: PLC0415
        from halogend.engine.loop import Channels, EngineLoop, PeerLostError  # noqa: PLC0415

        # The thread count belongs to the thread: the loader's single one is not this one's.
        loaded.runner.set_threads(spec.threads)
        loop = EngineLoop(Channels(self._control, self._data), loaded, spec, self._progress)
        gc.freeze()  # the tables of its pool, too: to walk them takes several steps of a small model
        self._progress.begin("serving")
        self._progress.set_busy(busy=False)
        self._control.send(ready(loaded))
        try:
            with loaded.behind:  # not before `ready` has measured what is held
                loop.run(self._heard)
        except PeerLostError:
            log.exception("text_process_lost")
            return EXIT_PEER_LOST
        except EngineBrokenError:
            log.exception("engine_broken")
            return EXIT_BROKEN
        return EXIT_STOPPED


def import_into(niceness: int, progress: Progress, imported: Future[None]) -> None:
    """The thread that imports what every load needs, so that no load waits for it."""
    try:
        with _making_objects(niceness, progress):
            _import_all()
            gc.freeze()  # with what little garbage imports make: to find it takes a tenth of their time
        imported.set_result(None)
    except BaseException as error:  # noqa: BLE001 (whatever it is, the main thread reports it)
        imported.set_exception(error)


def load_into(spec: EngineSpec, progress: Progress, loading: Future[Loaded]) -> None:
    """The loader thread."""
    try:
        with _making_objects(spec.loader_niceness, progress):
            load = _import_all()
            loaded = load(spec, progress)
            gc.collect()
            gc.freeze()
        loading.set_result(loaded)
    except BaseException as error:  # noqa: BLE001 (whatever it is, the main thread reports it)
        loading.set_exception(error)


@contextmanager
def _making_objects(niceness: int, progress: Progress) -> Iterator[None]:
    """The calling thread imports or loads, and its processor time is progress. Both make many objects and hardly any
    garbage: looking for some takes a tenth of the time. What is there at the end (frozen) lives as long as the process,
    and is never walked again to look for garbage."""
    gc.disable()
    try:
        nice_thread(niceness)
        progress.loader.follow()
        yield
    finally:
        progress.loader.leave()
        gc.enable()


def _import_all() -> Callable[[EngineSpec, Progress], Loaded]:
    """What every load needs, here so that the main thread never waits for it. Returns what loads."""
    import halogend.engine.loop  # noqa: F401, PLC0415 (heavy)
    from halogend.engine.loading import load  # noqa: PLC0415 (heavy)

    return load


def import_failure(error: BaseException) -> Failure:
    """What the daemon is told when the imports raised `error`: nothing can be loaded, whatever it is."""
    log.error("import_raised", exc_info=error)
    code = OUT_OF_MEMORY if isinstance(error, MemoryError) else START_FAILED
    message = f"an engine cannot import what it needs: {type(error).__name__}: {error}"
    return Failure(code=code, message=message)


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
