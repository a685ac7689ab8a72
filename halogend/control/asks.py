"""What was asked for and has not been accepted yet: documents in one line, keys and certificates in another.

    documents   | a | b | c |     one at a time, as long as its files answer; else those behind it pass, but for one
                                  that names the document which it replaces: that is not known before
    rereads     | d | e |         one at a time

Owns the lines and what becomes of a fault of ours; what accepting means is the reconciler's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from halogend.config.codes import Code
from halogend.config.problems import Problem
from halogend.control.planning import Given
from halogend.control.push import Push
from halogend.control.receipts import Outcome, Receipt
from halogend.control.records import Records
from halogend.control.source import Content

_log = structlog.get_logger()
_PATIENCE_S = 1.0  # with the files of a document: then those that were asked for after it are looked at
_SIDE_BY_SIDE = 8  # documents whose files do not answer: then the next one waits for one of them

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class Ask:
    """`seen` is what a watch saw, `given` a document that is not read, `push` one that is handed in. `silent` files
    do not answer."""

    receipt: Receipt
    seen: Content | None = None
    given: Given | None = None
    push: Push | None = None
    is_sources: bool = True
    silent: frozenset[Path] = frozenset()

    @property
    def names_what_it_replaces(self) -> bool:
        return self.push is not None and bool(self.push.expects)


Work = Callable[[Ask], Awaitable[None]]


class Asks:
    """Single writer: the reconciler."""

    def __init__(self, records: Records, accept: Work, reread: Work, spawn: Spawn) -> None:
        self._records = records
        self._accept = accept
        self._reread = reread
        self._spawn = spawn
        self._documents: asyncio.Queue[Ask] = asyncio.Queue()
        self._rereads: asyncio.Queue[Ask] = asyncio.Queue()

    def put(self, ask: Ask) -> None:
        self._documents.put_nowait(ask)

    def put_reread(self, ask: Ask) -> None:
        self._rereads.put_nowait(ask)

    def begin(self) -> tuple[asyncio.Task[None], ...]:
        """The tasks that take them, for whoever ends them."""
        return asyncio.create_task(self._take_documents()), asyncio.create_task(self._take_rereads())

    async def _take_documents(self) -> None:
        accepting: set[asyncio.Task[None]] = set()
        while True:
            ask = await self._documents.get()
            before = frozenset(accepting) if ask.names_what_it_replaces else frozenset[asyncio.Task[None]]()
            accepting.add(task := self._spawn(self._work(ask, self._accept, before)))
            await asyncio.wait([task], timeout=_PATIENCE_S)
            accepting = {each for each in accepting if not each.done()}
            if len(accepting) >= _SIDE_BY_SIDE:
                await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)

    async def _take_rereads(self) -> None:
        """Files are looked at before anything is judged: one that never answers holds up no document."""
        while True:
            await self._work(await self._rereads.get(), self._reread)

    async def _work(self, ask: Ask, work: Work, after: Collection[asyncio.Task[None]] = ()) -> None:
        try:
            if after:
                await asyncio.wait(after)
            await work(ask)
        except Exception as error:  # noqa: BLE001  the daemon serves on whatever a document does to us
            _log.exception("accept_failed", receipt=ask.receipt.id)
            problem = Problem(Code.INTERNAL, f"halogend could not work out this document: {error!r}", "report this")
            self._records.end(ask.receipt, Outcome.FAILED, (problem,))
