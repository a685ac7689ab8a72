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
        self._failures = 0

    async def is_ready(self) -> bool:
        if not self._is_up:
            self._is_up = await self._ask("startupProbe")
        return self._is_up and await self._ask("readinessProbe")

    async def is_dead(self) -> bool:
        """As long in a row without an answer as the pod allows."""
        if not self._is_up or "livenessProbe" not in self._container:
            return False
        probe = self._container["livenessProbe"]
        self._failures = 0 if await self._ask("livenessProbe") else self._failures + 1
        return bool(self._failures * PERIOD_S > probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10))

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
