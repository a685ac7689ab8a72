"""What the processes of a replica hold of memory: as measured, at rest, and what came back as they ended.

Owns the figures of one replica. What is granted to whom is the ledger's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from halogend.control.held import held_bytes, left_bytes
from halogend.control.ledger import Holding
from halogend.control.working import CONTEXT_BYTES

_FOLLOW_S, _LOOK_AGAIN_S = 1.0, 0.02


class ReplicaMemory:
    """`base_bytes` is what it holds but for its pool, `surplus_bytes` how much more working memory it took than
    was estimated, `returned_bytes` what came back as it was stopped. `pool_bytes` tells what its pool takes now.
    Single writer: the replica."""

    def __init__(self, root: Path, pool_bytes: Callable[[], int]) -> None:
        self.measured_bytes = self.returned_bytes = 0
        self.base_bytes = self.surplus_bytes = 0
        self._expected: Holding | None = None
        self._root = root
        self._pool_bytes = pool_bytes

    @property
    def working_bytes(self) -> int:
        """The most that it was measured to take beside weights and pool; 0 where that is not known."""
        return 0 if self._expected is None else max(0, self._expected.working_bytes + self.surplus_bytes)

    @property
    def expected_bytes(self) -> int:
        """What it should hold now, at rest; 0 before it was ready."""
        return self.base_bytes + self._pool_bytes() if self.base_bytes else 0

    async def look(self, pids: Iterable[int]) -> dict[int, int]:
        """By process, of these and of all that came from them."""
        return await asyncio.to_thread(held_bytes, list(pids), self._root)

    def take(self, held: Mapping[int, int], *, is_ready: bool) -> None:
        """What was looked up is the measure; of processes that are gone the last is kept."""
        found = sum(held.values())
        self.measured_bytes = found or self.measured_bytes
        if self._expected is not None and is_ready:
            self.base_bytes = self.measured_bytes - self._pool_bytes()
            self.surplus_bytes = max(self.surplus_bytes, self._surplus(self._expected, 0))

    def learn(self, expected: Holding, transient_bytes: int | None) -> None:
        """From the last measure: what it holds but for its pool, and how much more working memory than `expected`
        that and the largest steps, `transient_bytes`, are. Every later measure may raise it."""
        if not self.measured_bytes:  # the system does not say
            return
        self.base_bytes = self.measured_bytes - self._pool_bytes()
        if transient_bytes is not None:
            self._expected = expected
            self.surplus_bytes = self._surplus(expected, transient_bytes)

    def learn_of_device(self, expected: Holding, transient_bytes: int | None) -> None:
        """The same of an accelerator, whose memory nobody else sees: never less than was expected, for not all of it
        is measured."""
        if transient_bytes is not None:
            self.surplus_bytes = max(0, transient_bytes + CONTEXT_BYTES - expected.working_bytes)

    async def count_returned(self, before: Mapping[int, int]) -> None:
        """What the processes held and nobody holds any more. A process that one of them had started follows
        it within moments."""
        held = sum(before.values())
        deadline = time.monotonic() + _FOLLOW_S
        # Nobody tells of the end of another one's child.
        while (left := left_bytes(before, self._root)) and time.monotonic() < deadline:  # noqa: ASYNC110 - as said
            await asyncio.sleep(_LOOK_AGAIN_S)
        if held:  # else it was dead before, and is not asked twice
            self.measured_bytes, self.returned_bytes = held, held - left

    def _surplus(self, expected: Holding, transient_bytes: int) -> int:
        working = max(0, self.base_bytes - expected.weights_bytes) + transient_bytes
        return working - expected.working_bytes
