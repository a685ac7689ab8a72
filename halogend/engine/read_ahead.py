"""Reading what a load will look at, in load order, before it is asked for: a disk is read in long pieces, and
the first request finds everything in memory.

    page cache   | layer 0 | layer 1 | ...        | output |
    mapped       ' layer 0 ' layer 1 '  not while `apart`  ' the rest at once |

Several loads that read one file from a disk take turns, by a lock on the file that nobody else needs to heed.
Where others serve meanwhile, as much time is left to them as reading takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.mapping import WeightMap
from halogend.engine.passing import Passing

WINDOW_BYTES = 16 << 20
_MEMORY_BYTES_PER_S = 1.5e9
_PATIENCE_S, _LOOK_AGAIN_S = 2.0, 0.005
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # ioprio_set(2) has no name in the C library
_THIS_THREAD, _IDLE = 1, 3 << 13


@dataclass(frozen=True, slots=True)
class Span:
    """A tensor that will be looked at. One that `stays` is used where it is mapped."""

    tensor: TensorInfo
    stays: bool


class ReadAhead:
    """A thread's work over `spans`; each must lie in a file of `passing`. `advance` is told the bytes read of
    those that stay; what else is read is told by whoever takes it. `yields`: others serve meanwhile.

    What stays is mapped as soon as it was read, by this thread. That takes a few milliseconds a gigabyte."""

    def __init__(
        self,
        spans: Sequence[Span],
        mapped: WeightMap,
        passing: Passing,
        advance: Callable[[int], None],
        *,
        yields: bool,
    ) -> None:
        self._spans = spans
        self._mapped = mapped
        self._passing = passing
        self._advance = advance
        self._yields = yields
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._change = threading.Condition()  # of what follows
        self._unmapped: deque[tuple[TensorInfo, int, int]] = deque()
        self._is_apart = False
        self._read_spans = 0
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The thread has ended."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def begin(self) -> None:
        """In a thread of its own."""
        self._thread = threading.Thread(target=self._work, name="read-ahead", daemon=True)
        self._thread.start()

    def until(self, spans: int) -> None:
        """So many of the first spans were read: waits for the thread, which has begun. Raises CheckpointError."""
        with self._change:
            self._change.wait_for(lambda: self._read_spans >= spans or self._is_over)
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Meanwhile nothing that is read adds to what this process has mapped."""
        self._keep_apart(True)
        try:
            yield
        finally:
            self._keep_apart(False)

    def finish(self) -> None:
        """Everything was read and is mapped: waits for the thread, or reads here. Raises CheckpointError."""
        if self._thread is None and not self._is_over:
            self._read()
        elif self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        with self._change:
            self._map()

    def _keep_apart(self, is_apart: bool) -> None:
        with self._change:
            self._is_apart = is_apart

    def _work(self) -> None:
        try:
            if self._yields:
                yield_disk()
            self._read()
        except BaseException as error:  # noqa: BLE001 (whatever it is, who waits gets it)
            self._error = error
        with self._change:
            self._is_over = True
            self._change.notify_all()

    def _read(self) -> None:
        is_slow = False
        for number, span in enumerate(self._spans):
            if span.stays or not self._yields:  # the thread that takes what does not stay is slow enough
                is_slow = self._read_span(span, is_slow=is_slow)
            with self._change:
                self._read_spans = number + 1
                self._change.notify_all()
        self._is_over = True

    def _read_span(self, span: Span, *, is_slow: bool) -> bool:
        """Whether it came from a slow disk, as the one before it did or not."""
        for start in range(0, span.tensor.nbytes, WINDOW_BYTES):
            if self._stopped.is_set():
                break
            window = span.tensor, start, min(WINDOW_BYTES, span.tensor.nbytes - start)
            with (
                turn(self._passing.descriptors[span.tensor.file], self._stopped)
                if is_slow
                else contextlib.nullcontext()
            ):
                began = time.monotonic()
                self._passing.read(*window)
                took_s = time.monotonic() - began
            is_slow = came_from_a_disk(window[2], took_s)
            if span.stays:
                with self._change:
                    self._unmapped.append(window)
                    if not self._is_apart:
                        self._map()
                self._advance(window[2])
            if self._yields:
                self._stopped.wait(took_s)
        return is_slow

    def _map(self) -> None:
        """What was read. Raises CheckpointError."""
        while self._unmapped:
            self._mapped.populate(*self._unmapped.popleft())


@contextlib.contextmanager
def turn(descriptor: int, stopped: threading.Event) -> Iterator[None]:
    """While no other load reads this file, as far as a few moments' patience goes: what holds the lock may be
    stopped, or nothing of ours. On a file system without locks it is always one's turn."""
    deadline, is_held = time.monotonic() + _PATIENCE_S, False
    while not is_held and time.monotonic() < deadline and not stopped.is_set():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = True
        except BlockingIOError:
            stopped.wait(_LOOK_AGAIN_S)
        except OSError:
            break
    try:
        yield
    finally:
        if is_held:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def came_from_a_disk(nbytes: int, took_s: float) -> bool:
    """Nothing in memory takes as long."""
    return took_s > nbytes / _MEMORY_BYTES_PER_S


def yield_disk() -> None:
    """The calling thread reads when nobody else wants to. Where the system does not let us, it reads as all do."""
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, _THIS_THREAD, 0, _IDLE)
