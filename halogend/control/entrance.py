"""Where requests come in: the listeners of a document and the names of its models, changed together.

Owns the order of the two. What answers behind a name is the router's business.
"""

from __future__ import annotations

from collections.abc import Mapping

from halogend.config.problems import Problem
from halogend.control.acceptance import Sockets
from halogend.control.planning import Draft
from halogend.control.router import Router
from halogend.control.target import Target


class Entrance:
    """`sockets` are changed under the reconciler's lock only, and what is prepared is discarded or committed
    before it is given up."""

    def __init__(self, sockets: Sockets, router: Router) -> None:
        self.sockets = sockets
        self._router = router

    async def prepare(self, drafted: Draft) -> tuple[Problem, ...]:
        """Binds what is new."""
        if drafted.document is None:
            return drafted.problems
        problem = await self.sockets.prepare(drafted.document.server, drafted.access)
        return () if problem is None else (problem,)

    async def commit(self, wanted: Mapping[str, Target]) -> tuple[Problem, ...]:
        """Names first: a request may come as soon as a listener is there, and waits for its model."""
        new = [name for name in wanted if self._router.route(name) is None]
        for name in new:
            self._router.open(name, wanted[name].settings)
        problem = await self.sockets.commit()
        if problem is None:
            return ()
        for name in new:
            self._router.close(name)
        return (problem,)

    async def discard(self) -> None:
        """What was prepared and is not in force; nothing, where it was committed."""
        await self.sockets.discard()
