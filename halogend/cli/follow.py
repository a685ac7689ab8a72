"""The daemon's events as a client reads them, one connection at a time; `Follower` comes back where it was cut off."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from halogend.cli import admin

_SILENCE_S = 30.0  # comments come every 10 s
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Told:
    """One event. `kind` is hello first, and lost where there is no daemon, with its reason as `message`."""

    kind: str
    data: dict[str, Any]
    id: str | None = None


def parsed(lines: Iterable[bytes]) -> Iterator[Told]:
    """Server-sent events, without comments (WHATWG HTML, 9.2.6)."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line.strip():
            if "data" in fields:
                yield Told(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
            fields = {}


class Follower:
    """Follows for ever. `last` is the id of the newest event it was told."""

    def __init__(self, where: admin.Endpoint, wait: Callable[[float], None] = time.sleep) -> None:
        self.last: str | None = None
        self._where = where
        self._wait = wait

    def events(self) -> Iterator[Told]:
        """Raises AdminError where there was no daemon to begin with; later that is a `lost`, once, until it is back."""
        yield from self._once()
        is_lost = False
        while True:
            try:
                for told in self._once():
                    is_lost = False
                    yield told
            except admin.AdminError as error:
                if not is_lost:
                    is_lost = True
                    yield Told("lost", {"message": str(error)})
            self._wait(_AGAIN_S)

    def _once(self) -> Iterator[Told]:
        """One connection. An end on the way ends it; raises AdminError where there is none to be had."""
        headers = {} if self.last is None else {"last-event-id": self.last}
        with admin.asked(self._where, "GET", "/events", headers=headers, silence_s=_SILENCE_S) as response:
            if response.status != http.client.OK:
                raise admin.AdminError(_refusal(response))
            try:
                for told in parsed(iter(response.readline, b"")):
                    self.last = told.id or self.last
                    yield told
            except (OSError, http.client.HTTPException):
                return


def _refusal(response: http.client.HTTPResponse) -> str:
    try:
        return str(json.loads(response.read())["error"]["message"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"the daemon answered with {response.status}"
