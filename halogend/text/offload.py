"""Where text is worked on: in the event loop while it is short, in a thread when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LONG_CHARS = 16 << 10  # a millisecond or so; more would hold up everybody's tokens
T = TypeVar("T")


class Offload:
    """One thread, so that long texts wait for each other and the short ones for none.

    `on_done` is called in the event loop after each piece of work, as a sign of life.
    """

    def __init__(self, on_done: Callable[[], None]) -> None:
        self._on_done = on_done
        self._executor = ThreadPoolExecutor(1, "encode")

    async def run(self, chars: int, work: Callable[[], T]) -> T:
        """`work`, which deals with so many characters. What it raises comes back. Work that has not
        begun when the caller is cancelled is not done."""
        try:
            if chars <= LONG_CHARS:
                return work()
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._on_done()
