"""Where the models of an atomic change wait for each other: all switch at one moment, or none does.

Owns who has come and how it ends. What a model makes ready, and how that is undone, is `turns`' business;
what opens the barrier is the reconciler's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from halogend.control.generation import Generation
from halogend.control.replica_changes import UpdateError
from halogend.control.retired import Retired
from halogend.control.waits import first_of


class Turn(Protocol):
    """A model's way to its target, made ready. `commit` waits for nothing and does not fail but by a fault of ours,
    after which it may be made all the same; it returns the generation that served and does not any more. `undo` is
    possible until it `is_made`. The death of what it `relies_on` breaks it. It may have to wait for long: whoever
    serves must not be bound by what is to come before it is `arm`ed, which raises UpdateError."""

    @property
    def relies_on(self) -> Generation | None: ...

    @property
    def is_made(self) -> bool: ...

    def rest(self) -> None: ...

    async def arm(self) -> None: ...

    def commit(self) -> Retired | None: ...

    async def undo(self) -> None: ...


class NotTogether(Exception):  # noqa: N818  the fault is another model's, or a newer document came
    """The barrier will not open: what was made ready is to be undone."""


class Barrier:
    """Of the models with these `names`. `come` is called once, when all have come and are armed: whoever opens it must
    `begin`, and then either `commit` or `fail`. `broken` is called when nobody will switch; `failure` is why, and empty
    where a newer document came. Single writer: the models' tasks and the reconciler, on one loop."""

    def __init__(self, names: Iterable[str], come: Callable[[Barrier], None], broken: Callable[[], None]) -> None:
        self.names = frozenset(names)
        self.failure = ""
        self.is_broken = False
        self._come = come
        self._broken = broken
        self._turns: dict[str, Turn] = {}
        self._armed: set[str] = set()
        self._all_here = asyncio.Event()
        self._retired: dict[str, Retired | None] = {}
        self._begun = False
        self._settled = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        return self._settled.is_set()

    @property
    def is_open(self) -> bool:
        """Has everybody switched?"""
        return self.is_settled and not self.is_broken

    async def join(self, name: str, turn: Turn) -> Retired | None:
        """Waits for the others. What `turn.commit` returned; raises NotTogether."""
        self._turns[name] = turn
        turn.rest()
        if self._turns.keys() == self.names:
            self._all_here.set()
        died = asyncio.Event() if turn.relies_on is None else turn.relies_on.died
        await first_of(self._all_here.wait(), self._settled.wait(), died.wait())
        if self._all_here.is_set() and not self.is_settled:
            await first_of(self._arm(name, turn), self._settled.wait(), died.wait())
        await first_of(self._settled.wait(), died.wait())
        if not self.is_settled:
            self.fail(f"{name}: what was ready died while it waited for the others")
            await self._settled.wait()
        if self.is_broken:
            raise NotTogether(self.failure)
        return self._retired[name]

    async def _arm(self, name: str, turn: Turn) -> None:
        try:
            await turn.arm()
        except UpdateError as error:
            self.fail(f"{name}: {error}")
        self._armed.add(name)
        if self._armed == self.names and not self.is_settled:
            self._come(self)

    def begin(self) -> bool:
        """False where it is broken. From here on only whoever opens it may break it."""
        self._begun = not self.is_broken
        return self._begun

    def commit(self) -> None:
        """Every model at once, without a wait between two of them. Raises what one of them did: then it is `fail`
        that follows, and each that is made goes back."""
        self._retired = {name: turn.commit() for name, turn in self._turns.items()}
        self._settled.set()

    def fail(self, reason: str, *, while_opening: bool = False) -> None:
        """Nobody switches. Idempotent: the first reason stays; too late once it began to open."""
        if not self.is_settled and (while_opening or not self._begun):
            self.failure, self.is_broken = reason, True
            self._settled.set()
            self._broken()

    def abandon(self) -> None:
        """A newer document is in its place."""
        self.fail("")
