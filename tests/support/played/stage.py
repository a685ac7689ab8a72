"""Where a test directs the played processes from: each asks here at every point of its life.

stage.order("load", "fail", role="engine", model="b", code="HRT-1016", message="no memory")
hold = stage.hold("generate", prompt="slow")
call = await hold.reached()
call.say("token")
hold.release()
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 10.0
WARMUP = "\0"  # the prompt of a generation's first token, as a played engine shows it


@dataclass(eq=False)
class Call:
    """One process at one point. `say` gives it an order; several may be given."""

    id: int
    role: str
    point: str
    pid: int
    model: str
    detail: dict[str, Any]
    writer: asyncio.StreamWriter

    def say(self, do: str = "go", **more: Any) -> None:
        if not self.writer.is_closing():
            self.writer.write(json.dumps({"id": self.id, "do": do, **more}).encode() + b"\n")


@dataclass(eq=False)
class Rule:
    """What to do at a point; `order` None holds the process there. `where` are details that must be
    equal, and `role` and `model` if given. `left` None: as often as it comes."""

    point: str
    where: dict[str, Any]
    order: dict[str, Any] | None
    left: int | None
    calls: list[Call] = field(default_factory=list)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _over: bool = False

    def takes(self, call: Call) -> bool:
        said = {"role": call.role, "model": call.model, **call.detail}
        matches = call.point == self.point and all(said.get(key) == value for key, value in self.where.items())
        return matches and self.left != 0 and not self._over

    def take(self, call: Call) -> None:
        self.left = None if self.left is None else self.left - 1
        self.calls.append(call)
        if self.order is not None:
            call.say(**self.order)
        self._arrived.set()

    async def reached(self, count: int = 1) -> Call:
        """The process that came there as the `count`-th."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.calls) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.calls[count - 1]

    def release(self, do: str = "go", **more: Any) -> None:
        """Whoever waits here goes on, and nobody is held any more."""
        self._over = True
        if self.order is None:
            for call in self.calls:
                call.say(do, **more)


class Stage:
    """`calls` is everything that was said, in order; `pids` every process that ever came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[Call] = []
        self.pids: set[int] = set()
        self._rules: list[Rule] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._talk, self.path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        for writer in list(self._writers):
            writer.close()

    def order(self, point: str, do: str, *, times: int | None = None, where: dict[str, Any], **order: Any) -> Rule:
        return self._add(Rule(point, where, {"do": do, **order}, times))

    def hold(self, point: str, *, times: int | None = None, **where: Any) -> Rule:
        return self._add(Rule(point, where, None, times))

    def at(self, point: str, role: str, model: str | None = None) -> list[Call]:
        """Everybody who ever came to this point."""
        return [c for c in self.calls if (c.point, c.role) == (point, role) and model in (None, c.model)]

    def loads(self, model: str | None = None) -> int:
        """How many engines began to load."""
        return len(self.at("load", "engine", model))

    def _add(self, rule: Rule) -> Rule:
        self._rules.insert(0, rule)
        return rule

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                self._hear(json.loads(line), writer)
        except ConnectionError:  # the process was killed
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    def _hear(self, said: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        named = {name: said.pop(name) for name in ("id", "role", "point", "pid")}
        call = Call(**named, model=Path(said.pop("path")).stem, detail=said, writer=writer)
        self.calls.append(call)
        self.pids.add(call.pid)
        rule = next((rule for rule in self._rules if rule.takes(call)), None)
        if rule is None:
            call.say()
        else:
            rule.take(call)
