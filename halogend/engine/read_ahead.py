"""Reading what a load will look at, in load order, before it is asked for: a disk is read in long pieces, and
the first request finds everything in memory.

Several loads that read one file from a disk take turns, by a lock on the file that nobody else needs to heed.
Where others serve meanwhile, as much time is left to them as reading takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.mapping import WeightMap

WINDOW_BYTES = 16 << 20
_ASKED_BYTES = 128 << 10  # of a longer piece Linux reads only as far as the device's read-ahead
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
    """A thread's work over `spans`; each must lie in a file of `descriptors`. `advance` is told the bytes read of
    those that stay; what is only asked for is told by whoever takes it. `yields`: others serve meanwhile."""

    def __init__(
        self,
        spans: Sequence[Span],
        mapped: WeightMap,
        descriptors: Sequence[int],
        advance: Callable[[int], None],
        *,
        yields: bool,
    ) -> None:
        self._spans = spans
        self._mapped = mapped
        self._descriptors = descriptors
        self._advance = advance
        self._yields = yields
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_done = False

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

    def finish(self) -> None:
        """Everything was read: waits for the thread, or reads here. Raises CheckpointError."""
        if self._thread is None and not self._is_done:
            self._read()
        elif self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            if self._yields:
                yield_disk()
            self._read()
        except BaseException as error:  # noqa: BLE001 (whatever it is, who waits gets it)
            self._error = error

    def _read(self) -> None:
        is_slow = False
        for span, start, nbytes in self._windows():
            descriptor = self._descriptors[span.tensor.file]
            if not span.stays:
                if not self._yields:  # the thread that takes it is slow enough
                    _ask_for(descriptor, span.tensor.offset + start, nbytes)
                continue
            with turn(descriptor, self._stopped) if is_slow else contextlib.nullcontext():
                began = time.monotonic()
                self._mapped.populate(span.tensor, start, nbytes)
                took_s = time.monotonic() - began
            is_slow = came_from_a_disk(nbytes, took_s)
            self._advance(nbytes)
            if self._yields:
                self._stopped.wait(took_s)
        self._is_done = True

    def _windows(self) -> Iterator[tuple[Span, int, int]]:
        for span in self._spans:
            for start in range(0, span.tensor.nbytes, WINDOW_BYTES):
                if self._stopped.is_set():
                    return
                yield span, start, min(WINDOW_BYTES, span.tensor.nbytes - start)


def _ask_for(descriptor: int, offset: int, nbytes: int) -> None:
    for start in range(offset, offset + nbytes, _ASKED_BYTES):
        os.posix_fadvise(descriptor, start, min(_ASKED_BYTES, offset + nbytes - start), os.POSIX_FADV_WILLNEED)


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
