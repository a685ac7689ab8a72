"""Changes of a generation that runs, in two phases: its workers check and hold one, then all take it or none does.

Owns which changes are held and their numbers; what they change and why is the caller's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from halogend.control.replica import Replica, State
from halogend.control.replica_changes import UpdateError
from halogend.control.waits import all_of
from halogend.wire.control import PrepareEngine, PrepareText


class LiveChanges:
    """Of the `replicas` of one generation of `model`, as they are at the time. Single writer: convergence."""

    def __init__(self, model: str, replicas: Sequence[Replica]) -> None:
        self._model = model
        self._replicas = replicas
        self._next_update = 1
        self._held = 0
        self._settled = asyncio.Event()

    async def prepare(
        self,
        text: PrepareText | None,
        engines: Mapping[Replica, PrepareEngine],
        beside: Sequence[Replica] = (),
    ) -> None:
        """All workers check and hold the change, those of replicas `beside` too, which belong to it when it is
        committed. Raises UpdateError; then nothing is held. A replica that is dead is passed over: it is started
        again with what was committed."""
        asked = [replica for replica in (*self._replicas, *beside) if replica.state is State.READY]
        if not asked:
            raise UpdateError(f"{self._model} does not serve")
        self._held += 1
        try:
            await all_of(replica.changes.prepare(text, engines.get(replica)) for replica in asked)
        except BaseException:
            self.discard(text, engines, beside)
            raise

    def commit(
        self,
        text: PrepareText | None,
        engines: Mapping[Replica, PrepareEngine],
        settled: Callable[[Replica], None] = lambda replica: None,
    ) -> None:
        """Takes effect between two steps. `settled` is called for each replica when its engine has taken it, and
        what its pool gave back is free: at once where it is not asked. A worker that died meanwhile is the
        supervisor's case."""
        for replica in self._replicas:
            engine = engines.get(replica)
            is_asked = engine is not None and replica.state is State.READY
            replica.changes.commit(text, engine, partial(settled, replica) if is_asked else None)
            if not is_asked:
                settled(replica)
        self._settle()

    def discard(
        self,
        text: PrepareText | None,
        engines: Mapping[Replica, PrepareEngine],
        beside: Sequence[Replica] = (),
    ) -> None:
        for replica in (*self._replicas, *beside):
            replica.changes.discard(text, engines.get(replica))
        self._settle()

    async def until_settled(self) -> None:
        """Returns when no change is held that may yet be committed: a replica may join now."""
        while self._held:
            self._settled.clear()
            await self._settled.wait()

    def next_update(self) -> int:
        self._next_update += 1
        return self._next_update

    def _settle(self) -> None:
        self._held -= 1
        self._settled.set()
