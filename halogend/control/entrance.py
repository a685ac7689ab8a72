"""Where requests come in: the listeners of a document and the names of its models, changed together.

Owns the order of the two. What answers behind a name is the router's business.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from halogend.config.problems import Problem
from halogend.config.schema import Document
from halogend.control.acceptance import Sockets
from halogend.control.access import Access
from halogend.control.planning import Draft
from halogend.control.router import Router
from halogend.control.target import Target

_log = structlog.get_logger()


class Entrance:
    """`sockets` are changed under the reconciler's lock only, and what is prepared is discarded or committed
    before it is given up."""

    def __init__(self, sockets: Sockets, router: Router) -> None:
        self.sockets = sockets
        self._router = router
        self._opened: list[str] = []  # by the last commit

    async def prepare(self, drafted: Draft) -> tuple[Problem, ...]:
        """Binds what is new."""
        if drafted.document is None:
            return drafted.problems
        problem = await self.sockets.prepare(drafted.document.server, drafted.access)
        return () if problem is None else (problem,)

    async def commit(self, wanted: Mapping[str, Target]) -> tuple[Problem, ...]:
        """Names first: a request may come as soon as a listener is there, and waits for its model."""
        self._opened = [name for name in wanted if self._router.route(name) is None]
        for name in self._opened:
            self._router.open(name, wanted[name].settings)
        problem = await self.sockets.commit()
        if problem is None:
            return ()
        for name in self._opened:
            self._router.close(name)
        return (problem,)

    async def back(self, document: Document | None, access: Access) -> None:
        """The inverse of a commit: to the listeners of this document, which was in force before. Where something has
        taken an address meanwhile, the log says so."""
        for name in self._opened:
            self._router.close(name)
        if document is None:
            return
        problem = await self.sockets.prepare(document.server, access) or await self.sockets.commit()
        if problem is not None:
            _log.error("listeners_not_taken_back", problem=str(problem))

    async def discard(self) -> None:
        """What was prepared and is not in force; nothing, where it was committed."""
        await self.sockets.discard()
