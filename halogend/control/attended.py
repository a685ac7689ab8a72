"""Work that goes on in the background for replicas that died: one piece for each, until it is done or nobody needs it.

What the work does is `mend`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from halogend.control.replica import Replica


class Attended:
    """Those of one generation. Single writer: the generation, and who looks after it."""

    def __init__(self) -> None:
        self._works: dict[Replica, asyncio.Task[None]] = {}

    def begin(self, dead: Replica, work: Coroutine[Any, Any, None]) -> None:
        """`work` is dropped where one goes on for this replica."""
        if dead in self._works:
            work.close()
            return
        task = self._works[dead] = asyncio.create_task(work)
        task.add_done_callback(lambda done: self._works.pop(dead, None))

    def cancel(self, replica: Replica) -> None:
        """Nobody is to stand in its place."""
        if (work := self._works.get(replica)) is not None:
            work.cancel()

    async def over(self, replica: Replica) -> None:
        """Returns when nobody starts another in its place, who would have its bytes."""
        if (work := self._works.get(replica)) is not None:
            await asyncio.wait([work])

    async def end(self) -> None:
        """Returns when all were cancelled and are gone."""
        works = list(self._works.values())
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
