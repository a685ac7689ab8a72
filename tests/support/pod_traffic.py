"""Requests to the pods of a model, as they come through a Service; and what the daemon of a pod says of itself."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Self

import aiohttp
from support.kube_client import Body, KubeClient

TOKENS = 24
_BREATH_S = 0.05  # of a client, between two requests: two cores are for what is changed, too


async def ask(session: aiohttp.ClientSession, url: str, model: str, prompt: str, tokens: int = TOKENS) -> str:
    """A whole streamed answer, its first token included. Raises AssertionError on anything else."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    text, is_done = "", False
    async with session.post(f"{url}/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b"data: [DONE]"):
                is_done = True
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                assert "error" not in event, event
                text += "".join(choice["text"] for choice in event["choices"])
    assert is_done
    return text


class Traffic:
    """Clients that ask one prompt after the other, each of any pod that is ready, until the block ends.

    `answers` are what they got, `failures` what went wrong, no pod being ready included."""

    def __init__(self, endpoints: Callable[[], Sequence[str]], model: str, clients: int = 4) -> None:
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._endpoints = endpoints
        self._model = model
        self._clients = clients
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self._clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def until(self, count: int) -> None:
        """So many more answers, or one that went wrong."""
        wanted = len(self.answers) + count
        async with asyncio.timeout(60):
            while len(self.answers) < wanted and not self.failures:  # noqa: ASYNC110  plainer than an event
                await asyncio.sleep(0.02)

    async def _client(self, number: int) -> None:
        turn = number
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            while not self._is_over:
                try:
                    ready = self._endpoints()
                    self.answers.append(await ask(session, ready[turn % len(ready)], self._model, "alpha"))
                    await asyncio.sleep(_BREATH_S)
                except (aiohttp.ClientError, AssertionError, ValueError, TimeoutError, ZeroDivisionError) as error:
                    self.failures.append(repr(error))
                    await asyncio.sleep(0.1)
                turn += 1


async def daemon_status(client: KubeClient, pod: Body, name: str) -> dict[str, Any]:
    """`GET /admin/v1/status` of a pod, with what the Secret of its HalogenModel holds."""
    secret = {
        key: base64.b64decode(text) for key, text in (await client.get("Secret", f"{name}-admin"))["data"].items()
    }
    trust = ssl.create_default_context(cadata=secret["ca.crt"].decode())
    headers = {"authorization": f"Bearer {secret['admin.key'].decode().strip()}"}
    url = f"https://{pod['status']['podIP']}:8443/admin/v1/status"
    whom = f"{name}.{client.namespace}.halogend"
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url, ssl=trust, server_hostname=whom) as got,
    ):
        assert got.status == 200, await got.text()
        found: dict[str, Any] = await got.json()
        return found
