"""The operator's own listener: is it alive, does it know the cluster, what has it counted.

Owns the three paths. Judges by values that are handed in; must never ask the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from halogen_operator.hearing import Stream
from halogen_operator.metrics import Metrics
from halogend.obs.exposition import CONTENT_TYPE

_BAD: Final = 503


@dataclass(frozen=True)
class Health:
    """What health is judged by; each is asked at each request.

    `ages` in seconds of every watch, `oldest_s` the age at which one is dead. `is_paused`: another operator goes
    first, and this one's watches rest. `is_ready`: every list came in once.
    """

    ages: Callable[[], dict[Stream, float]]
    oldest_s: float
    is_paused: Callable[[], bool]
    is_ready: Callable[[], bool]

    def silent(self) -> list[str]:
        """Watches that are dead, in words."""
        if self.is_paused():
            return []
        return [
            f"the watch of {kind.plural} {_where(namespace)} said nothing for {age:.0f} s"
            for (kind, namespace), age in self.ages().items()
            if age > self.oldest_s
        ]


def _where(namespace: str | None) -> str:
    return f"in {namespace}" if namespace else "everywhere"


class Listener:
    """Serves /livez, /readyz and /metrics from `start` to `close`."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self, host: str, port: int) -> str:
        """Returns the address it listens on, `http://HOST:PORT`. Raises `OSError` if it cannot."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        bound = self._runner.addresses[0]
        return f"http://{bound[0]}:{bound[1]}"

    async def close(self) -> None:
        """Closes the listener."""
        await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        silent = self._health.silent()
        return web.Response(text="; ".join(silent) + "\n" if silent else "ok\n", status=_BAD if silent else 200)

    async def _readyz(self, _: web.Request) -> web.Response:
        is_ready = self._health.is_ready()
        text = "ok\n" if is_ready else "the cluster has not been read yet\n"
        return web.Response(text=text, status=200 if is_ready else _BAD)

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})
