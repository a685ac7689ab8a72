"""An operator that runs in the test's event loop, and the HalogenModels it looks after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from halogen_operator import login
from halogen_operator.app import Started, run
from halogen_operator.settings import Settings

if TYPE_CHECKING:
    from fakekube import FakeKube

_KEYS = [{"name": "team", "secretKeyRef": {"name": "keys", "key": "team"}}]
MODEL = {"model": "/models/chat.gguf", "device": ["cpu:0"], "auth": {"keys": _KEYS}}


@dataclass
class Running:
    """One operator. `task` may be cancelled, which is as near to a kill as one gets in a process of its own."""

    started: Started
    task: asyncio.Task[None]
    stop: asyncio.Event


def quick(url: str, **changes: Any) -> Settings:
    """Settings of a test: nothing waits for long, and all listen on ports of their own."""
    told: dict[str, Any] = {
        "server": url,
        "host": "127.0.0.1",
        "port": 0,
        "follow_s": 0.02,
        "look_again_s": 0.3,
        "shortest_back_off_s": 0.02,
        "longest_back_off_s": 0.1,
        "workers": 4,
    }
    return Settings(**{**told, **changes})


async def start(settings: Settings, access: login.Access | None = None) -> Running:
    """Starts one, and returns when it listens."""
    stop, told = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(settings, stop, access=access, on_start=told.set_result))
    await asyncio.wait([told, task], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    return Running(await told, task, stop)


async def kill(operator: Running) -> None:
    """Ends it without a word."""
    operator.task.cancel()
    await asyncio.wait([operator.task])


@contextlib.asynccontextmanager
async def running(settings: Settings, access: login.Access | None = None) -> AsyncIterator[Running]:
    """One operator, which is asked to stop at the end and must do so in good order."""
    operator = await start(settings, access)
    try:
        yield operator
    finally:
        operator.stop.set()
        async with asyncio.timeout(60.0):
            await operator.task


def halogen_model(name: str = "chat", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """As a user writes it; a field that is None is left out."""
    merged = {key: value for key, value in {**MODEL, **spec}.items() if value is not None}
    return {
        "apiVersion": "halogen.dev/v1alpha1",
        "kind": "HalogenModel",
        "metadata": {"name": name, "namespace": namespace},
        "spec": merged,
    }


def conditions(kube: FakeKube, name: str = "chat", namespace: str = "default") -> dict[str, tuple[str, str]]:
    """Type -> status and reason; empty until there is a status of the present generation."""
    body = kube.objects.get("HalogenModel", name, namespace)
    status = body.get("status") or {}
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        return {}
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def is_ready(kube: FakeKube, name: str = "chat", namespace: str = "default") -> bool:
    """Ready, and nothing on its way."""
    found = conditions(kube, name, namespace)
    return found.get("Ready", ("", ""))[0] == "True" and found["Reconciling"][0] == "False"


async def eventually(holds: Callable[[], Any], seconds: float = 60.0, every_s: float = 0.01) -> Any:
    """What `holds` gives once that is true; for what is no write to the cluster (those: `FakeKube.until`), or is dear
    to look at.

    Raises:
        TimeoutError: it did not come to hold.
    """
    async with asyncio.timeout(seconds):
        while not (found := holds()):  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(every_s)
    return found


async def answer(session: aiohttp.ClientSession, url: str, status: int) -> str:
    """The text that comes with this status, asked again until it comes."""
    async with asyncio.timeout(60.0):
        while True:
            async with session.get(url) as told:
                if told.status == status:
                    return await told.text()
            await asyncio.sleep(0.01)
