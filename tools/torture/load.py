"""The session's end of the load: starts its process, orders the pace, keeps what it says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import msgspec

from torture.messages import Asked, Order, Rest, Said

_LINE_BYTES = 1 << 20


class LoadProcess:
    """`asked` grows as requests end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.asked: list[Asked] = []
        self._process = process
        self._resting = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, seed: int, cores: frozenset[int]) -> LoadProcess:
        command = [sys.executable, "-m", "torture.client", str(seed)]
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LINE_BYTES)
        os.sched_setaffinity(process.pid, cores)
        return cls(process)

    def order(self, order: Order) -> None:
        if self._process.stdin is None or self._process.returncode is not None:
            raise RuntimeError("the load's process has ended")
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")

    async def rest(self) -> None:
        """Returns when nothing is on its way. Raises RuntimeError when the process ends first."""
        self._resting.clear()
        self.order(Rest())
        await self._resting.wait()
        if self._reading.done():
            raise RuntimeError("the load's process has ended")

    async def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        try:
            while self._process.stdout is not None and (line := await self._process.stdout.readline()):
                said: Said = msgspec.json.decode(line, type=Said)
                if isinstance(said, Asked):
                    self.asked.append(said)
                else:
                    self._resting.set()
        finally:
            self._resting.set()
