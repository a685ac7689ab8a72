"""Reading what a load does not wait for: tables of which a step looks at a few rows.

They come into the page cache in long pieces while the model serves already, where nobody else wants the disk or the
processor. A row that is wanted sooner is read by whoever looks at it, as any page of a mapped file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.passing import Passing
from halogend.engine.read_ahead import came_from_a_disk, turn, yield_disk
from halogend.wire.process import nice_thread

_PIECE_BYTES = 1 << 20
_NICENESS = 19

_log = structlog.get_logger(__name__)


class ReadBehind:
    """A thread's work over `tensors` while this is entered; nobody waits for its end. It reads with descriptors
    of its own, which are closed then, and looks at no mapped page: a file that was cut short is a line in the log, and
    what was mapped may be gone."""

    def __init__(self, tensors: Sequence[TensorInfo], files: Sequence[Path], descriptors: Sequence[int]) -> None:
        """`descriptors` are of the `files`, and may be closed afterwards."""
        self._tensors = tensors
        self._descriptors = [os.dup(each) for each in descriptors] if tensors else []
        self._passing = Passing(files, self._descriptors)
        self._stopped = threading.Event()
        self._close = weakref.finalize(self, _close, self._descriptors)

    def __enter__(self) -> Self:
        if self._tensors:
            threading.Thread(target=self._work, name="read-behind", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()

    def _work(self) -> None:
        nice_thread(_NICENESS)
        yield_disk()
        try:
            self._read()
        except CheckpointError as error:
            _log.error("weights_unreadable", code=error.code, message=error.message)
        finally:
            self._close()

    def _read(self) -> None:
        """As much time is left to others as reading takes. Raises CheckpointError."""
        is_slow = False
        for tensor, start, nbytes in self._pieces():
            with turn(self._descriptors[tensor.file], self._stopped) if is_slow else contextlib.nullcontext():
                began = time.monotonic()
                self._passing.read(tensor, start, nbytes)
                took_s = time.monotonic() - began
            is_slow = came_from_a_disk(nbytes, took_s)
            self._stopped.wait(took_s)

    def _pieces(self) -> Iterator[tuple[TensorInfo, int, int]]:
        for tensor in self._tensors:
            for start in range(0, tensor.nbytes, _PIECE_BYTES):
                if self._stopped.is_set():
                    return
                yield tensor, start, min(_PIECE_BYTES, tensor.nbytes - start)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
