"""kopf, and all that is asked of it: to watch, and to stand back for a peer.

Owns kopf's settings, handlers, session and tasks. Events alone are handled, so that kopf writes nothing to any
object: no finalizer, no annotation. kopf takes an event loop for its own: its signals, and at the end all tasks that
are in it. So it has a loop to itself, in a thread, and what it tells is called in the operator's. What an event means
is the store's; must never write to the cluster itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from typing import Any, Final, Self

import aiohttp
import kopf

from halogen_operator import login
from halogen_operator.hearing import Hearing, Tell
from halogen_operator.resources import CHILDREN, HALOGEN_MODEL, WATCHED
from halogen_operator.settings import Settings

Noticed = Callable[[str, Mapping[str, Any]], None]
"""Told of every watch event: its type (ADDED, MODIFIED, DELETED) and the object. Lists come by `Hearing`."""

_REQUEST_S: Final = 30.0
_CONNECT_S: Final = 5.0
_SILENCE_S: Final = 70.0  # the API server sends a bookmark each minute
_LAST_S: Final = 5.0
_LONGEST_S: Final = 30.0  # between attempts at one request: a server that comes back is heard soon
_STREAM_S: Final = 290  # whole seconds; a stream is begun anew before something on the way cuts it


async def watch(
    settings: Settings, access: login.Access, hearing: Hearing, noticed: Noticed, stop: asyncio.Event
) -> None:
    """Watches until `stop` is set. Raises whatever ends it before: the caller begins anew.

    `hearing` and `noticed` are called in the loop of the caller. However this ends, kopf has ended before.
    """
    loop = asyncio.get_running_loop()
    thread = _Thread(loop, lambda its_stop: _kopf(settings, access, hearing, noticed, loop, its_stop))
    stopped = asyncio.create_task(stop.wait())
    either: list[asyncio.Future[Any]] = [thread.ended, stopped]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        await thread.end()
    thread.ended.result()


async def _kopf(
    settings: Settings,
    access: login.Access,
    hearing: Hearing,
    noticed: Noticed,
    loop: asyncio.AbstractEventLoop,
    stop: asyncio.Event,
) -> None:
    """In kopf's own loop; `loop` is the operator's."""
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it warns that a thread hears no signals
    registry = kopf.OperatorRegistry()
    async with _Sessions(settings, access, hearing, loop.call_soon_threadsafe) as sessions:

        async def log_in(**_: object) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=access.server, aiohttp_session=await sessions.make())

        async def notice(event: Mapping[str, Any], **_: object) -> None:
            if event["type"] is not None:
                loop.call_soon_threadsafe(noticed, event["type"], event["object"])

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
        await kopf.run_tasks(tasks, ignored=_Everything())


class _Thread:
    """A thread with an event loop that runs one coroutine, made of the event that asks it to end.

    `ended` is a future of the starter's loop: done when the thread is, with what the coroutine raised.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, made: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
    ) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._made = made
        self._asked = threading.Event()
        self._ask: Callable[[], object] = self._asked.set
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._thread.start()

    async def end(self) -> None:
        """Asks it to end and waits until it has, whoever cancels the waiting meanwhile."""
        self._asked.set()
        self._ask()
        while not self.ended.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self.ended])
        self._thread.join()

    def _run(self) -> None:
        outcome: BaseException | None = None
        try:
            loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(self._main())
                loop.run_until_complete(loop.shutdown_asyncgens())
            finally:
                loop.close()
        except BaseException as error:  # noqa: BLE001  handed over to who waits for the thread
            outcome = error
        self._loop.call_soon_threadsafe(self._set, outcome)

    async def _main(self) -> None:
        own, stop = asyncio.get_running_loop(), asyncio.Event()

        def ask() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                own.call_soon_threadsafe(stop.set)

        self._ask = ask
        if self._asked.is_set():
            stop.set()
        await self._made(stop)

    def _set(self, outcome: BaseException | None) -> None:
        if outcome is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(outcome)


class _Sessions:
    """The sessions that kopf was given. kopf closes one that the server did not let in and asks for another: at once
    the first time, later after a while. Those it forgets when it is cancelled are closed here."""

    def __init__(self, settings: Settings, access: login.Access, hearing: Hearing, tell: Tell) -> None:
        self._access = access
        self._answers = hearing.answers(tell)
        self._connector = login.connector(access)
        self._made: list[aiohttp.ClientSession] = []
        self._delays = iter(_Delays(settings.shortest_back_off_s, settings.longest_back_off_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await _end_all()
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


async def _end_all() -> None:
    """A watch that fails ends kopf, but not the other watches. Each ends its own workers, which must not be ended
    before it: it would wait for them for ever. What is left then is ended at once, and given up after a while."""
    watches = {task for task in _others() if task.get_name().startswith(("watcher for ", "peering "))}
    for tasks in (watches, None):
        left = _others() if tasks is None else tasks
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_LAST_S)


def _others() -> set[asyncio.Task[Any]]:
    current = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not current}


class _Everything(Collection[Any]):
    """The tasks that kopf is to leave alone at its end: it would wait five seconds for each that it left behind."""

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
    longest_s = min(_LONGEST_S, settings.longest_back_off_s)
    made.networking.error_backoffs = _Delays(settings.shortest_back_off_s, longest_s)
    made.watching.server_timeout = _STREAM_S
    made.watching.connect_timeout = _CONNECT_S
    made.watching.inactivity_timeout = _SILENCE_S
    for kind in WATCHED:
        if kind is not HALOGEN_MODEL:
            made.watching.label_selectors[kind.group, kind.version, kind.plural] = CHILDREN
    return made
