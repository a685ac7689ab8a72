"""What comes in on the watches, heard below kopf: when each said anything last, and every whole list.

kopf keeps bookmarks to itself and says nothing of what a list no longer holds. Both are in the answers it reads, so
the session it is given hands it answers that tell us as well. Owns the ages of watches. Must never know what is in a
list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import aiohttp
from aiohttp.streams import AsyncStreamIterator

from halogen_operator.resources import KINDS, Kind

Stream = tuple[Kind, str | None]
"""A kind and the namespace it is watched in; None: all of them."""
OnList = Callable[[Kind, str | None, Mapping[str, Any]], None]
Tell = Callable[..., object]
"""Calls a function with these arguments, now or soon: `loop.call_soon_threadsafe` is one."""

_OK = 200


class Hearing:
    """`clock` counts seconds; `on_list` is told of every whole list as it is read. One writer: the event loop."""

    def __init__(self, clock: Callable[[], float], streams: Iterable[Stream], on_list: OnList) -> None:
        self._clock = clock
        self._on_list = on_list
        self._heard = dict.fromkeys(streams, clock())
        self._paths = {kind.path(namespace): (kind, namespace) for kind, namespace in self._heard}

    def ages(self) -> dict[Stream, float]:
        """Seconds since each watch said anything: an event, a bookmark, a list; since the start if it never did."""
        now = self._clock()
        return {stream: now - heard for stream, heard in self._heard.items()}

    def reset(self) -> None:
        """Every watch counts from now on: they were paused."""
        self._heard = dict.fromkeys(self._heard, self._clock())

    def stream_at(self, path: str) -> Stream | None:
        """Which watch has this path."""
        return self._paths.get(path)

    def heard(self, stream: Stream) -> None:
        """A watch said something."""
        self._heard[stream] = self._clock()

    def listed(self, stream: Stream, answer: Mapping[str, Any]) -> None:
        """A whole list came in."""
        self.heard(stream)
        self._on_list(*stream, answer)

    def answers(self, tell: Tell) -> type[aiohttp.ClientResponse]:
        """The class of answers for the session that kopf is given; `tell` brings what is heard to this one's loop."""
        hearing = self

        class Heard(aiohttp.ClientResponse):
            """Tells of watches and lists that succeed."""

            async def start(self, connection: Any) -> aiohttp.ClientResponse:
                await super().start(connection)
                stream = hearing.stream_at(self.url.path)
                if stream is not None and self.status == _OK and "watch" in self.url.query:
                    told = _Told(self.content, lambda: tell(hearing.heard, stream))
                    self.content = cast(aiohttp.StreamReader, told)
                return self

            async def json(self, **options: Any) -> Any:
                answer = await super().json(**options)
                stream = hearing.stream_at(self.url.path)
                if stream is not None and self.status == _OK and self.method == "GET":
                    tell(hearing.listed, stream, answer)
                return answer

        return Heard


def streams(kinds: Iterable[Kind], namespaces: Iterable[str | None]) -> tuple[Stream, ...]:
    """Every kind in every namespace."""
    places = tuple(namespaces)
    return tuple((kind, namespace) for kind in kinds for namespace in places)


def items(kind: Kind, answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Objects of a list, each with the kind and version that a list leaves out."""
    row = KINDS[kind.name]
    return [{"kind": row.name, "apiVersion": row.api_version} | item for item in answer.get("items") or ()]


class _Told:
    """A stream of an answer's bytes that tells when some come in; all else is the stream's own."""

    def __init__(self, stream: aiohttp.StreamReader, tell: Callable[[], object]) -> None:
        self._stream = stream
        self._tell = tell

    def iter_chunked(self, size: int) -> AsyncStreamIterator[bytes]:
        return AsyncStreamIterator(lambda: self._read(size))

    async def _read(self, size: int) -> bytes:
        some = await self._stream.read(size)
        if some:
            self._tell()
        return some

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
