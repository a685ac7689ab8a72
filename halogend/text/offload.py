"""Where text is worked on: in the event loop while it is short, in a thread when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LONG_BYTES = 16 << 10  # a millisecond or so; more would hold up everybody's tokens
T = TypeVar("T")


class Offload:
    """One thread, so that long texts wait for each other and the short ones for none."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "encode")

    async def run(self, text_bytes: int, work: Callable[[], T]) -> T:
        """`work`, which deals with so many bytes of text. What it raises comes back."""
        if text_bytes <= LONG_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
