"""kopf, and all that is asked of it: to watch, and to stand back for a peer.

Owns kopf's settings, handlers, session and tasks. Events alone are handled, so that kopf writes nothing to any
object: no finalizer, no annotation. What an event means is the store's; must never write to the cluster itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Self

import aiohttp
import kopf

from halogen_operator import login
from halogen_operator.hearing import Hearing
from halogen_operator.resources import CHILDREN, HALOGEN_MODEL, WATCHED
from halogen_operator.settings import Settings

Noticed = Callable[[str, Mapping[str, Any]], None]
"""Told of every watch event: its type (ADDED, MODIFIED, DELETED) and the object. Lists come by `Hearing`."""

_REQUEST_S: Final = 30.0
_CONNECT_S: Final = 5.0
_SILENCE_S: Final = 70.0  # the API server sends a bookmark each minute
_STREAM_S: Final = 290.0  # a stream is begun anew before something on the way cuts it
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def watch(
    settings: Settings, access: login.Access, hearing: Hearing, noticed: Noticed, stop: asyncio.Event
) -> None:
    """Watches until `stop` is set. Raises whatever ends it before: the caller begins anew.

    kopf takes SIGINT and SIGTERM for itself where it starts; they set `stop` instead.
    """
    registry = kopf.OperatorRegistry()
    async with _Sessions(settings, access, hearing) as sessions:

        async def log_in(**_: object) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=access.server, aiohttp_session=await sessions.make())

        async def notice(event: Mapping[str, Any], **_: object) -> None:
            if event["type"] is not None:
                noticed(event["type"], event["object"])

        kopf.on.login(registry=registry, id="login")(log_in)
        for kind in WATCHED:
            kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(notice)
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=_kopf_settings(settings),
            identity=settings.identity,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
            standalone=settings.peering is None,
            peering_name=settings.peering,
            priority=settings.priority,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            stop_flag=stop,
        )
        _take_signals_back(stop)
        await kopf.run_tasks(tasks, ignored=_Everything())


class _Sessions:
    """The sessions that kopf was given. kopf closes one that the server did not let in and asks for another: at once
    the first time, later after a while. Those it forgets when it is cancelled are closed here."""

    def __init__(self, settings: Settings, access: login.Access, hearing: Hearing) -> None:
        self._access = access
        self._answers = hearing.answers()
        self._connector = login.connector(access)
        self._made: list[aiohttp.ClientSession] = []
        self._delays = iter(_Delays(settings.shortest_back_off_s, settings.longest_back_off_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._made:
            await session.close()
        await self._connector.close()

    async def make(self) -> aiohttp.ClientSession:
        if self._made:
            await asyncio.sleep(next(self._delays))
        session = login.session(self._access, self._connector, response_class=self._answers)
        self._made = [*(each for each in self._made if not each.closed), session]
        return session


class _Delays:
    """Seconds between attempts, without an end: kopf gives up where these do. A new count for every `iter`."""

    def __init__(self, shortest_s: float, longest_s: float) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s

    def __iter__(self) -> Iterator[float]:
        delay = self._shortest_s
        while True:
            yield delay
            delay = min(self._longest_s, delay * 2.0)


class _Everything(Collection[Any]):
    """kopf ends, with its own, every task that began after it did, unless this holds it. The loop is not its alone,
    and its own are ended before it looks for others."""

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.process.ultimate_exiting_timeout = None
    made.scanning.disabled = True  # neither namespaces nor CRDs need be watched, nor may they be everywhere
    made.peering.stealth = True
    made.networking.request_timeout = _REQUEST_S
    made.networking.connect_timeout = _CONNECT_S
    made.networking.error_backoffs = _Delays(settings.shortest_back_off_s, settings.longest_back_off_s)
    made.watching.server_timeout = _STREAM_S
    made.watching.connect_timeout = _CONNECT_S
    made.watching.inactivity_timeout = _SILENCE_S
    for kind in WATCHED:
        if kind is not HALOGEN_MODEL:
            made.watching.label_selectors[kind.group, kind.version, kind.plural] = CHILDREN
    return made


def _take_signals_back(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):  # not the main thread: none were taken
            loop.add_signal_handler(number, stop.set)
