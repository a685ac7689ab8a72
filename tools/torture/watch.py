"""What goes on beside the acts: policies turn, receipts are kept, memory is read."""

from __future__ import annotations

import asyncio
from typing import Any

from torture.document import Checkpoint
from torture.evidence import Evidence, Peak, Serving
from torture.processes import descendants, held_bytes, role_of
from torture.stage import Fault, Stage

_KEEP_EVERY_S = 1.0
_POLICY_EVERY_S = 1.0
_READ_EVERY_S = 0.1


async def turn_policies(stage: Stage) -> None:
    """Until it is cancelled."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due = max(due + _POLICY_EVERY_S, loop.time())
        await asyncio.sleep(due - loop.time())
        try:
            await stage.turn_policy()
        except Fault as fault:
            stage.evidence.faults.append(f"policy swap: {fault}")


class Keeper:
    """Keeps every receipt as it stands at its end: a daemon drops old ones."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._next = 1
        self._open: set[int] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_KEEP_EVERY_S)

    async def look(self) -> bool:
        """True when none is open."""
        await self._note_paths()
        newest = await self._stage.newest()
        self._open |= set(range(self._next, newest + 1))
        self._next = max(self._next, newest + 1)
        for number in sorted(self._open):
            receipt = await self._stage.receipt(f"r{number}")
            if "error" in receipt:
                self._stage.evidence.faults.append(f"receipt r{number} was dropped while it was open")
                self._open.discard(number)
                continue
            self._stage.evidence.receipts[receipt["id"]] = receipt
            if "closed" in receipt["milestones"]:
                self._open.discard(number)
        return not self._open

    async def _note_paths(self) -> None:
        """Which checkpoint each generation has."""
        model = await self._stage.model()
        for each in (model["serving"], model["loading"], *model["draining"]):
            if each is not None:
                self._stage.evidence.paths[each["generation"]] = each["path"]


class Memory:
    """Anonymous and shared memory of all generations together."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak: dict[int, int] = {}
        self._roles: dict[int, str] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_READ_EVERY_S)

    def look(self) -> None:
        """Processes are found anew each time: those of a small generation may have come, and its old one gone, in less
        than half a second."""
        held = {pid: held_bytes(pid) for pid in descendants(self._pid)}
        self._roles |= {pid: role_of(pid) for pid in held if not self._roles.get(pid)}
        if sum(held.values()) > sum(self._peak.values()):
            self._peak = held

    def begin(self) -> None:
        self._peak = {}

    def peak(self, change: str, plan: dict[str, Any]) -> Peak:
        """What was held since `begin`, beside what this plan said."""
        planned = sum(each["peak"]["total_bytes"] for each in plan["devices"])
        held = tuple(sorted((self._roles.get(pid, ""), count) for pid, count in self._peak.items()))
        return Peak(change, planned, sum(self._peak.values()), held)


def servings_of(evidence: Evidence, checkpoints: list[Checkpoint], first: Checkpoint) -> list[Serving]:
    """Which kind of checkpoint answered from when on, by the switches in the receipts. A restart of a dead
    engine is none: its checkpoint is the same."""
    kinds = {str(each.path): each.kind for each in checkpoints}
    steps = [step for receipt in evidence.receipts.values() for model in receipt["models"] for step in model["steps"]]
    switches = [(step["began_at"], step.get("generation")) for step in steps if step["name"] == "switch"]
    known = [(at, evidence.paths.get(generation, "")) for at, generation in sorted(switches)]
    return [Serving(0.0, first.kind), *(Serving(at, kinds[path]) for at, path in known if path in kinds)]
