"""Blocking work in a thread of its own, which nothing waits for longer than it wants to.

For what may never return: a file on a mount that is gone, a name server that is silent. A pool would
fill with such threads, and its end would wait for them; these are abandoned, and end with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], limit_s: float | None = None) -> T:
    """What `work` returns or raises. Raises TimeoutError after `limit_s`; the thread goes on then, so `work`
    must change nothing."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(result: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            loop.call_soon_threadsafe(lambda: None if done.done() else result())

    def run() -> None:
        try:
            found = context.run(work)
        except BaseException as error:  # noqa: BLE001  whoever waits gets it
            failure = error
            tell(lambda: done.set_exception(failure))
        else:
            tell(lambda: done.set_result(found))

    threading.Thread(target=run, name="aside", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await done
