"""The key and certificate files of the document in force, taken as they are now.

Neither the source nor a model's file is looked at: what is wrong there must not keep an old key in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from halogend.config.codes import Code
from halogend.config.facts import FileFact
from halogend.config.fit import file_problems
from halogend.config.problems import Problem
from halogend.config.schema import ServerConfig
from halogend.control.acceptance import Sockets
from halogend.control.access import Access, changes, look
from halogend.control.aside import aside
from halogend.control.in_force import InForce
from halogend.control.planning import LOOK_LIMIT_S
from halogend.control.receipts import Outcome, Receipt
from halogend.control.records import Records


@dataclass(frozen=True, slots=True)
class Rereading:
    """`judging` is the reconciler's lock: what is in force changes under it only. `revision` tells that of
    the accepted document."""

    in_force: InForce
    sockets: Sockets
    records: Records
    judging: asyncio.Lock
    revision: Callable[[], str | None]

    async def reread(self, receipt: Receipt, file: str, silent: frozenset[Path]) -> None:
        """Ends the receipt; `file` is what problems call the source, `silent` files are not touched. Files are looked
        at outside the lock, and again where a document came meanwhile."""
        while (document := self.in_force.document) is not None:
            receipt.revision = receipt.previous_revision = self.revision()
            server, before = document.server, self.in_force.access
            try:
                access, facts = await aside(partial(look, server, in_force=before, silent=silent), LOOK_LIMIT_S)
            except TimeoutError:
                text = f"the files of keys and certificates did not answer within {LOOK_LIMIT_S:g} s"
                problem = Problem(Code.KEY_FILE, text, "look for a mount whose server is gone", file)
                return self.records.end(receipt, Outcome.REJECTED, (problem,))
            async with self.judging:
                if self.in_force.document is document and self.in_force.access is before:
                    return await self._take(receipt, server, access, facts)
        return self.records.end(receipt, Outcome.REJECTED, ())

    async def _take(self, receipt: Receipt, server: ServerConfig, access: Access, facts: tuple[FileFact, ...]) -> None:
        self.in_force.warn(facts)
        problems = file_problems(facts, self.in_force.places)
        differs = changes((server, self.in_force.access), (server, access))
        if not problems and differs:
            try:
                problem = await self.sockets.prepare(server, access) or await self.sockets.commit()
            finally:
                await self.sockets.discard()
            problems = () if problem is None else (problem,)
        if problems:
            return self.records.end(receipt, Outcome.REJECTED, problems)
        self.in_force.access, receipt.server_changes = access, differs
        return self.records.end(receipt, Outcome.APPLIED if differs else Outcome.UNCHANGED, ())
