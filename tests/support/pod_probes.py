"""A container's HTTP probes, asked as a kubelet asks them but more often: tests want to know soon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

PERIOD_S = 0.1


class Probes:
    """Readiness and liveness count once the start-up probe was right."""

    def __init__(self, address: str, container: Mapping[str, Any]) -> None:
        self._address = address
        self._container = container
        self._is_up = "startupProbe" not in container
        self._is_ready = False
        self._failures = {"readinessProbe": 0, "livenessProbe": 0}

    async def is_ready(self) -> bool:
        """One that was ready is, until it failed as often in a row as the pod allows."""
        if not self._is_up:
            self._is_up = await self._ask("startupProbe")
        if self._is_up and await self._count("readinessProbe") == 0:
            self._is_ready = True
        elif self._failures["readinessProbe"] >= self._container.get("readinessProbe", {}).get("failureThreshold", 3):
            self._is_ready = False
        return self._is_ready

    async def is_dead(self) -> bool:
        """As long in a row without an answer as the pod allows."""
        if not self._is_up or "livenessProbe" not in self._container:
            return False
        probe = self._container["livenessProbe"]
        failed_s = await self._count("livenessProbe") * PERIOD_S
        return bool(failed_s > probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10))

    async def _count(self, kind: str) -> int:
        """Asks; how often in a row it failed."""
        self._failures[kind] = 0 if await self._ask(kind) else self._failures[kind] + 1
        return self._failures[kind]

    async def _ask(self, kind: str) -> bool:
        probe = self._container.get(kind)
        if probe is None:
            return True
        asked = probe["httpGet"]
        numbers = {each.get("name"): each["containerPort"] for each in self._container.get("ports", [])}
        url = f"http://{self._address}:{numbers.get(asked['port'], asked['port'])}{asked.get('path', '/')}"
        timeout = aiohttp.ClientTimeout(total=probe.get("timeoutSeconds", 1))
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
                return answer.status < 400
        except (aiohttp.ClientError, TimeoutError):
            return False
