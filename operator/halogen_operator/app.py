"""The whole operator in one call: everything is built here, started, and stopped in order.

Owns the tasks of one operator and the gate before them: nobody looks at a model before the whole cluster was read, or
while another operator goes first. May run in an event loop that others use too.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from halogen_operator import login, peers
from halogen_operator.engines import Engines
from halogen_operator.health import Health, Listener
from halogen_operator.hearing import Hearing, items, streams
from halogen_operator.house import House
from halogen_operator.kube import Kube, KubeError
from halogen_operator.memory import Memory
from halogen_operator.metrics import Metrics
from halogen_operator.queue import BackOff, Queue
from halogen_operator.reconcile import World
from halogen_operator.resources import CHILDREN, HALOGEN_MODEL, WATCHED, Kind
from halogen_operator.settings import Settings
from halogen_operator.store import Store
from halogen_operator.watching import watch
from halogen_operator.working import Pace, work

_LOG = structlog.get_logger()
_LAST_LOOKS_S: Final = 10.0
_WATCH_AGAIN_S: Final = 30.0


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True)
class Started:
    """An operator that runs: where it listens, what it holds. For those who run it in their own process."""

    address: str
    store: Store
    queue: Queue
    metrics: Metrics


async def run(
    settings: Settings,
    stop: asyncio.Event,
    *,
    access: login.Access | None = None,
    on_start: Callable[[Started], None] = lambda _: None,
    now: Callable[[], dt.datetime] = _now,
) -> None:
    """Runs until `stop` is set: then watches end, looks under way are finished, and connections are closed.

    Without `access` the way to the server is what the settings name: `server` or `kubeconfig`. `stop` is set at the
    end whatever ended it. Raises `OSError` if it cannot listen, `LoginError`. Whatever ends a task that should go on
    ends the operator.
    """
    access = access or login.chosen(settings.server, settings.kubeconfig, settings.context)
    async with _built(settings, access, now) as parts:
        address = await parts.listener.start(settings.host, settings.port)
        on_start(Started(address, parts.world.store, parts.queue, parts.world.metrics))
        namespaces = settings.namespaces or "all"
        _LOG.info("operator_started", address=address, server=access.server, namespaces=namespaces)
        try:
            await _until(stop, parts, settings, access)
        finally:
            await parts.listener.close()
        _LOG.info("operator_stopped")


@dataclass
class _Parts:
    """One writer: the operator's tasks. `is_paused`: another operator goes first. `is_sure`: whether one does is
    known; what is not known keeps this one from acting, and is no excuse for watches that are silent."""

    world: World
    queue: Queue
    hearing: Hearing
    namespaces: tuple[str | None, ...]
    listener: Listener = field(init=False)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    is_complete: bool = False
    is_paused: bool = False
    is_sure: bool = True

    @property
    def rests(self) -> bool:
        """Do its watches rest, and with reason?"""
        return self.is_paused and self.is_sure

    def judge(self) -> None:
        """Opens or closes the gate."""
        if self.is_complete and self.is_sure and not self.is_paused:
            self.gate.set()
        else:
            self.gate.clear()


@contextlib.asynccontextmanager
async def _built(settings: Settings, access: login.Access, now: Callable[[], dt.datetime]) -> AsyncIterator[_Parts]:
    loop = asyncio.get_running_loop()
    metrics, store = Metrics(settings.version), Store()
    back_off = BackOff(settings.shortest_back_off_s, settings.longest_back_off_s, random.random)
    queue = Queue(loop.time, back_off)
    house = House(settings.image, settings.namespace, settings.labels, settings.version, settings.bind)
    connector = login.connector(access)
    async with connector, login.session(access, connector) as session, Engines(port=settings.admin_port) as engines:
        kube = Kube(session, access.server, metrics.called)
        world = World(kube, store, engines, Memory(house), metrics, now, settings.identity)
        hearing = Hearing(loop.time, streams(WATCHED, _namespaces(settings)), lambda *told: _on_list(parts, *told))
        parts = _Parts(world, queue, hearing, _namespaces(settings), is_sure=settings.peering is None)
        health = Health(
            hearing.ages, settings.oldest_event_s, lambda: parts.rests, lambda: parts.is_complete or parts.rests
        )
        parts.listener = Listener(health, metrics)
        metrics.before_scrape(lambda: _tell_moment(parts))
        yield parts


async def _until(stop: asyncio.Event, parts: _Parts, settings: Settings, access: login.Access) -> None:
    """Runs every task until `stop`, then ends them: those that bring work first, those that do it when they have."""
    pace = Pace(settings.follow_s, settings.look_again_s, random.random)
    bringing = [_watch(stop, parts, settings, access), _heed_peers(parts, settings)]
    working = [work(parts.queue, parts.world, parts.gate, pace) for _ in range(settings.workers)]
    sources, workers = [asyncio.create_task(each) for each in bringing], [asyncio.create_task(each) for each in working]
    stopped = asyncio.create_task(stop.wait())
    try:
        ended, _ = await asyncio.wait([stopped, *sources, *workers], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        sources[1].cancel()  # who heeds peers might close the gate again, before which a worker waits
        parts.queue.close()
        parts.gate.set()
        await asyncio.wait([sources[0], *workers], timeout=_LAST_LOOKS_S)
        for task in ended:
            task.result()
    finally:
        every = [stopped, *sources, *workers]
        for task in every:
            task.cancel()
        await asyncio.gather(*every, return_exceptions=True)


async def _watch(stop: asyncio.Event, parts: _Parts, settings: Settings, access: login.Access) -> None:
    """Watches, and begins anew whatever ended that; returns when `stop` is set."""
    back_off = BackOff(settings.shortest_back_off_s, min(_WATCH_AGAIN_S, settings.longest_back_off_s), random.random)
    failures = 0
    while not stop.is_set():
        began = time.monotonic()
        try:
            await _until_served(parts.world.kube)
            await watch(settings, access, parts.hearing, lambda *told: _notice(parts, *told), stop)
            stop.set()
        except Exception as error:  # noqa: BLE001  kopf raises whatever an answer made of it: nothing may end watching
            failures = 1 if time.monotonic() - began > _WATCH_AGAIN_S else failures + 1
            parts.world.metrics.watch_restarted()
            delay_s = back_off.seconds(failures)
            _LOG.warning("watching_again", error=repr(error), after_s=round(delay_s, 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await stop.wait()


async def _until_served(kube: Kube) -> None:
    """Raises `LookupError` if the server has no HalogenModels: kopf would watch nothing, and say nothing of it."""
    if not await kube.is_served(HALOGEN_MODEL):
        raise LookupError("the API server knows no HalogenModel: apply crds/halogenmodels.halogen.dev.yaml")


async def _heed_peers(parts: _Parts, settings: Settings) -> None:
    """Closes the gate while another operator goes first or that is not known, and opens it when all that happened
    meanwhile is known. Never ends by itself."""
    while True:
        try:
            first = await peers.goes_first(parts.world.kube, settings, parts.world.now())
            if first is None and parts.is_paused:
                await _read_again(parts)
        except KubeError as error:
            if parts.is_sure:
                _LOG.warning("peers_unknown", error=str(error))
            parts.is_sure = False
            parts.judge()
        else:
            parts.is_sure = True
            _pause(parts, first)
        await asyncio.sleep(settings.heed_peers_s)


async def _read_again(parts: _Parts) -> None:
    """kopf's watches rested, and begin again at their own time. Raises `KubeError`."""
    for kind, namespace in parts.hearing.ages():
        selector = "" if kind is HALOGEN_MODEL else CHILDREN
        _on_list(parts, kind, namespace, await parts.world.kube.list(kind, namespace, selector))


def _pause(parts: _Parts, first: str | None) -> None:
    if parts.is_paused != (first is not None):
        _LOG.info("operator_paused" if first else "operator_goes_on", first=first)
        parts.hearing.reset()
    parts.is_paused = first is not None
    parts.world.metrics.paused(is_paused=parts.is_paused)
    parts.judge()


def _on_list(parts: _Parts, kind: Kind, namespace: str | None, answer: Mapping[str, Any]) -> None:
    version = (answer.get("metadata") or {}).get("resourceVersion", "0")
    for uid in parts.world.store.replace(kind, namespace, items(kind, answer), version):
        parts.queue.add(uid)
    if not parts.is_complete and parts.world.store.has_listed(WATCHED, parts.namespaces):
        parts.is_complete = True
        _LOG.info("cluster_read", models=sum(1 for _ in parts.world.store.models()))
        for body in parts.world.store.models():
            parts.queue.add(body["metadata"]["uid"])
        parts.judge()


def _notice(parts: _Parts, event: str, body: Mapping[str, Any]) -> None:
    store = parts.world.store
    uid = store.remove(body) if event == "DELETED" else store.put(body)
    if uid is not None:
        parts.queue.add(uid)


def _namespaces(settings: Settings) -> tuple[str | None, ...]:
    return settings.namespaces or (None,)


def _tell_moment(parts: _Parts) -> None:
    metrics = parts.world.metrics
    if parts.is_paused:
        metrics.forget_all()
    metrics.queue_depth(parts.queue.depth)
    metrics.models(sum(1 for _ in parts.world.store.models()))
    for (kind, namespace), age in parts.hearing.ages().items():
        metrics.event_age(kind.name, namespace, age)
