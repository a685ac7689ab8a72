"""Replicas that were ended and whose processes are still there: SIGKILL takes effect when the kernel lets go.

A process that waits for a dead file server or a device holds its memory until that answers. Nobody waits for it;
its bytes stay in the ledger, and who asks is told which process it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from halogend.control.replica import Replica

_log = structlog.get_logger()


class Lingering:
    """Single writer: the house."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Replica, float]] = {}
        self._waits: set[asyncio.Task[None]] = set()

    def keep(self, replica: Replica, gone: Callable[[str], None]) -> str:
        """A name for its bytes, which no other replica will ever have; `gone` is told it when they are back."""
        name = f"{replica.name} (pid {', '.join(str(pid) for pid in replica.lingering.values())})"
        self._since[name] = replica, time.monotonic()
        wait = asyncio.create_task(self._until_gone(name, replica, gone))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)
        return name

    def view(self) -> list[dict[str, Any]]:
        """JSON-ready, oldest first."""
        now = time.monotonic()
        return [
            {"replica": each.name, "pids": each.lingering, "for_s": round(now - since, 1)}
            for each, since in self._since.values()
        ]

    async def stop(self) -> None:
        """Nobody looks after them any more: they end when the kernel lets go."""
        for wait in self._waits:
            wait.cancel()
        await asyncio.gather(*self._waits, return_exceptions=True)

    async def _until_gone(self, name: str, replica: Replica, gone: Callable[[str], None]) -> None:
        await replica.gone()
        del self._since[name]
        _log.info("processes_ended", replica=replica.name)
        gone(name)
