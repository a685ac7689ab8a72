"""Threads that work through large files for one who waits, and end when he does: told to, he does not wait for all
the bytes that are left.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from halogend.checkpoint.v2.digests import Advance


class _EndedError(Exception):
    """Nobody waits for this thread's result any more."""


@contextlib.contextmanager
def ending_together(pool: ThreadPoolExecutor, advance: Advance | None = None) -> Iterator[Advance]:
    """The lines of a `with` in which `pool` works. Gives what its threads are to tell their bytes to, which passes
    them on to `advance`. Once an exception leaves these lines, be it of one thread or a signal's, what has not begun
    is not begun, and the others end where they tell bytes next."""
    ended = threading.Event()

    def told(nbytes: int) -> None:
        if ended.is_set():
            raise _EndedError
        if advance is not None:
            advance(nbytes)

    with pool:
        try:
            yield told
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
