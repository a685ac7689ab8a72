"""Watches: the stream of a resource's changes from a revision on, with bookmarks, selectors and an end.

The stand-in can be told to misbehave as real servers do: cut a stream, say 410 in it, or fall silent with the
connection open.
"""

import asyncio
import bisect
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from support.kube.errors import expired
from support.kube.kinds import Kind
from support.kube.selectors import Test
from support.kube.store import Change, Object, Store

INITIAL_END = "k8s.io/initial-events-end"
Shown = Callable[[str, Object], bytes]


@dataclass(eq=False)
class Watch:
    """One open stream. Tests reach it through the stand-in: `cut`, `expire` and `silence` are theirs to set."""

    kind: Kind
    namespace: str
    writer: str
    chosen: Test | None
    with_bookmarks: bool
    bookmark_s: float
    timeout_s: float | None
    is_cut: bool = False
    is_abrupt: bool = False
    is_expired: bool = False
    is_silent: bool = False
    wants_bookmark: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)


def event(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def plain(type_: str, body: Object) -> bytes:
    return event(type_, body)


class Stream:
    """A watch's events, as lines. One reader."""

    def __init__(self, store: Store, watch: Watch, shown: Shown | None = None) -> None:
        self._store = store
        self._watch = watch
        self._shown = shown
        self._changes = store.changes(watch.kind.key)

    async def lines(self, since: int | None, *, with_initial: bool) -> AsyncIterator[bytes]:
        """From `since` on; None, or `with_initial`: the state now, as ADDED events, and then what follows.

        `with_initial` marks the end of that state by a bookmark. Ends when cut, expired or out of time.
        """
        watch, position = self._watch, len(self._changes)
        if since is None or with_initial:
            for found in self._selected():
                yield self._line("ADDED", found)
            if with_initial:
                yield self._bookmark({INITIAL_END: "true"})
        elif since < self._store.compacted:
            watch.is_expired = True
        else:
            position = bisect.bisect_right(self._changes, since, key=lambda change: change.revision)
        now = asyncio.get_running_loop().time
        end = now() + (math.inf if watch.timeout_s is None else watch.timeout_s)
        bookmark_at = now() + watch.bookmark_s
        while not (watch.is_cut or watch.is_expired or now() >= end):
            watch.wake.clear()
            lines, position = self._heard(position)
            for line in lines:
                yield line
            if self._is_bookmark_due(bookmark_at <= now()):
                bookmark_at = now() + watch.bookmark_s
                yield self._bookmark({})
            await self._rest(min(bookmark_at, end) - now())
        if watch.is_expired:
            yield self._too_old(since or 0)

    def _heard(self, position: int) -> tuple[list[bytes], int]:
        """What was written since, as this watch sees it, and where to read on."""
        if self._watch.is_silent:
            return [], position
        lines = [self._event(change) for change in self._changes[position:]]
        return [line for line in lines if line is not None], len(self._changes)

    def _is_bookmark_due(self, is_time: bool) -> bool:
        if not self._watch.with_bookmarks or self._watch.is_silent:
            return False
        is_due = is_time or self._watch.wants_bookmark
        self._watch.wants_bookmark = False
        return is_due

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._watch.wake.wait()
        except TimeoutError:
            return

    def _selected(self) -> list[Object]:
        found = self._store.all_of(self._watch.kind.key, self._watch.namespace)
        return [one for one in found if self._is_in(one)]

    def _is_in(self, body: Object | None) -> bool:
        if body is None or (self._watch.namespace and body["metadata"].get("namespace") != self._watch.namespace):
            return False
        return self._watch.chosen is None or self._watch.chosen(body)

    def _event(self, change: Change) -> bytes | None:
        """As this watch sees it: what begins to fit was added, what ceases to fit was deleted."""
        was, now = self._is_in(change.before), change.type != "DELETED" and self._is_in(change.object)
        type_ = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get((was, now))
        if type_ is None:
            return None
        if type_ == change.type and self._shown is None:
            return change.line()
        if type_ == "DELETED" and change.type != "DELETED":
            last = dict(change.before or {})
            last["metadata"] = last["metadata"] | {"resourceVersion": str(change.revision)}
            return self._line("DELETED", last)
        return self._line(type_, change.object)

    def _line(self, type_: str, body: Object) -> bytes:
        return (self._shown or plain)(type_, body)

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        kind = self._watch.kind
        return self._line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})

    def _too_old(self, since: int) -> bytes:
        status = expired(f"too old resource version: {since} ({self._store.revision})").body
        return event("ERROR", status)
