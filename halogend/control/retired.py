"""What served and is followed by another, a generation or one replica: until it is taken back, or its memory is.

Owns where it stands. Must never decide what happens to it: convergence does.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection
from typing import Protocol

from halogend.control.drain import Drain
from halogend.control.generation import Generation
from halogend.control.replica import Replica
from halogend.control.target import Target
from halogend.control.waits import first_of


class Stage(enum.StrEnum):
    """parked: it stands by, and takes no request. draining: its requests end where they began. taken: it is made
    ready to serve again, and drains on if that fails. returned: it serves. ending: its processes are told to go,
    and nothing brings it back."""

    PARKED = "parked"
    DRAINING = "draining"
    TAKEN = "taken"
    RETURNED = "returned"
    ENDING = "ending"


class Holder(Protocol):
    """What requests are held by."""

    @property
    def is_alive(self) -> bool: ...

    @property
    def leases(self) -> Collection[object]: ...

    async def drained(self) -> None: ...


class Leaving:
    """`drain` is how long requests of the `holder` may go on. Single writer: the model's own task and its reclaim."""

    def __init__(self, holder: Holder, drain: Drain) -> None:
        self.drain = drain
        self.stage = Stage.DRAINING
        self._holder = holder
        self._moved = asyncio.Event()

    @property
    def leases(self) -> Collection[object]:
        """Of the requests that hold it."""
        return self._holder.leases

    @property
    def may_return(self) -> bool:
        return self.stage in (Stage.PARKED, Stage.DRAINING) and self._holder.is_alive

    def take(self) -> None:
        """Its drain stands still."""
        self.drain.stand()
        self._enter(Stage.TAKEN)

    def put_back(self) -> None:
        """The inverse of `take`."""
        self.drain.go_on()
        self._enter(Stage.DRAINING)

    def returned(self) -> None:
        self._enter(Stage.RETURNED)

    async def over(self) -> bool:
        """True when no request holds it any more or its time is over, and it is `ending`; False when it
        serves again."""
        while self.stage is not Stage.RETURNED:
            moved = self._moved
            if self.stage is not Stage.DRAINING:
                await moved.wait()
            elif self.drain.left_s <= 0 or not self._holder.leases:
                self._enter(Stage.ENDING)
                return True
            else:
                left_s = self.drain.left_s
                await first_of(moved.wait(), self._holder.drained(), self.drain.hurried(), asyncio.sleep(left_s))
        return False

    async def cut_short(self) -> bool:
        """As `over`, and no request is waited for: where it is not taken back now, it is `ending`."""
        while self.stage is Stage.TAKEN:
            await self._moved.wait()
        if self.stage is Stage.RETURNED:
            return False
        self._enter(Stage.ENDING)
        return True

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self._moved.set()
        self._moved = asyncio.Event()


class Leaver(Leaving):
    """A replica that its `generation` goes on without; `part` is what it was when it served last."""

    def __init__(self, generation: Generation, replica: Replica, part: Target | None, drain: Drain) -> None:
        super().__init__(replica, drain)
        self.generation = generation
        self.replica = replica
        self.part = part

    def does_for(self, part: Target) -> bool:
        """Could it serve again as this part of its generation? Then that need not be loaded."""
        spec = self.replica.spec
        return self.may_return and spec.device == part.device and spec.cores == part.spec.cores

    def serve_again(self) -> None:
        """One assignment: it takes requests as before."""
        self.returned()
        self.generation.keep(self.replica)


class Retired(Leaving):
    """A generation; `target` is what it was when it served last."""

    def __init__(self, generation: Generation, target: Target, drain: Drain) -> None:
        super().__init__(generation, drain)
        self.generation = generation
        self.target = target

    def take(self) -> None:
        """That of one which stood by begins with this."""
        self.unpark()
        super().take()

    def park(self) -> None:
        """Until `unpark` it is neither drained nor ended."""
        self._enter(Stage.PARKED)

    def unpark(self) -> None:
        """Its drain begins now."""
        if self.stage is Stage.PARKED:
            self.drain = Drain(self.drain.limit_s)
            self._enter(Stage.DRAINING)

    async def unparked(self) -> None:
        """Returns when it is parked no more."""
        while self.stage is Stage.PARKED:
            await self._moved.wait()
