"""The daemon, its document and its load: what acts do things to, and what they look at.

`lock` is held by whoever has put something into the mount that is not `wish`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from halogend.config import canonical
from halogend.config.parse import parse
from torture.clock import Clock
from torture.daemon import Daemon
from torture.document import Wish
from torture.evidence import Count, Evidence, Window
from torture.load import LoadProcess
from torture.mount import Mount
from torture.processes import descendants, descriptors, held_bytes
from torture.prompts import MODEL
from torture.windows import POLICY

LOOK_S = 0.05
PATIENCE_S = 240.0
TRAILING_S = 0.2  # that a daemon waits for the end of a burst: before it, to look is load for nothing
NOTICE_S = 15.0  # for a daemon to see that its file has changed
T = TypeVar("T")


class Fault(Exception):  # noqa: N818  the daemon's, found by an act; nothing is wrong with the torture
    """The daemon did not do what it documents."""


class Stage:
    """Single writer of `wish` and the mount: whoever holds `lock`."""

    def __init__(self, daemon: Daemon, mount: Mount, load: LoadProcess, evidence: Evidence, wish: Wish) -> None:
        self.daemon = daemon
        self.mount = mount
        self.load = load
        self.evidence = evidence
        self.wish = wish
        self.clock = Clock()
        self.lock = asyncio.Lock()

    # --- what is there ----------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        return dict((await self.daemon.call("GET", "/status"))[1])

    async def model(self) -> dict[str, Any]:
        return dict((await self.status())["models"][MODEL])

    async def receipt(self, receipt_id: str, wait: str = "none") -> dict[str, Any]:
        return dict((await self.daemon.call("GET", f"/receipts/{receipt_id}?wait={wait}"))[1])

    async def newest(self) -> int:
        """Number of the newest receipt."""
        receipt = (await self.status())["last_receipt"]
        return 0 if receipt is None else int(receipt["id"].removeprefix("r"))

    async def plan(self, text: str) -> dict[str, Any]:
        return dict((await self.daemon.call("POST", "/plan?file=torture", text.encode()))[1])

    def count(self) -> Count:
        pid = self.daemon.pid
        return Count(len(descendants(pid)), descriptors(pid), held_bytes(pid))

    # --- waiting ----------------------------------------------------------------------------------

    async def until(self, look: Callable[[], Awaitable[T | None]], what: str, patience_s: float = PATIENCE_S) -> T:
        """The first thing that is true. Raises Fault when it takes too long, or the daemon ends."""
        deadline = self.clock.now() + patience_s
        while not (found := await look()):
            if self.daemon.ended is not None:
                raise Fault(f"the daemon ended with {self.daemon.ended}: {self.daemon.log_tail()}")
            if self.clock.now() > deadline:
                raise Fault(f"not within {patience_s:g} s: {what}")
            await asyncio.sleep(LOOK_S)
        return found

    async def until_settled(self, what: str, besides: int = 0) -> dict[str, Any]:
        """The model as status shows it: what is wished for serves alone, and is not generation `besides`."""

        async def look() -> dict[str, Any] | None:
            model = await self.model()
            serving = model["serving"]
            is_alone = not model["loading"] and not model["draining"] and model["state"] == "serving"
            is_it = serving and serving["path"] == str(self.wish.checkpoint.path) and serving["generation"] != besides
            return model if is_alone and is_it else None

        return await self.until(look, what)

    async def until_spare(self) -> None:
        """A spare worker stands by, as it does whenever nothing goes on: processes are counted with it."""

        async def look() -> bool | None:
            return (await self.status())["spare_worker"]["state"] == "ready" or None

        await self.until(look, "a spare worker stands by")

    # --- changes ----------------------------------------------------------------------------------

    async def publish(self, text: str) -> str:
        """Puts a document into the mount; the id of the receipt that the daemon leaves of it. For who holds the lock.
        Who asked before, and is answered late, may be the one who makes the daemon read it."""
        before, revision = await self.newest(), _revision(text)
        self.mount.write(text)
        await asyncio.sleep(TRAILING_S)

        async def look() -> str | None:
            for number in range(before + 1, await self.newest() + 1):
                receipt = await self.receipt(f"r{number}")
                if receipt["trigger"] == "file" or (revision and receipt["revision"] == revision):
                    return f"r{number}"
            return None

        return await self.until(look, "a change of the mount leaves a receipt", NOTICE_S)

    async def edit(self, **changes: Any) -> str:
        """Wishes for something else, and publishes it."""
        async with self.lock:
            self.wish = dataclasses.replace(self.wish, **changes)
            return await self.publish(self.wish.text())

    async def turn_policy(self) -> None:
        """One swap of the mount that changes live fields alone."""
        with self.window(POLICY):
            await self.edit(policy=self.wish.policy + 1)
        self.evidence.policies += 1

    @contextmanager
    def window(self, kind: str) -> Iterator[None]:
        began_at = self.clock.now()
        try:
            yield
        finally:
            self.evidence.windows.append(Window(kind, began_at, self.clock.now()))


def _revision(text: str) -> str | None:
    """None for what is no document."""
    document = parse(text.encode(), "torture", {}).document
    return None if document is None else canonical.revision(document)
