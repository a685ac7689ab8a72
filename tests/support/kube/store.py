"""Objects, their revisions and what became of them: etcd and the watch cache, in one. Knows nothing of HTTP.

Objects here are never changed in place: a write stores another one. So an event may hold them as they are.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]  # (group, plural)
Place = tuple[str, str]  # (namespace or "", name)


@dataclass
class Change:
    """One write. `before` is None for a new object; a DELETED one is its last state, at the deletion's revision."""

    revision: int
    type: str
    object: Object
    before: Object | None
    _line: bytes = b""

    def line(self) -> bytes:
        """The event as a watch sends it, made once for all of them."""
        if not self._line:
            self._line = json.dumps({"type": self.type, "object": self.object}).encode() + b"\n"
        return self._line


@dataclass
class Waiter:
    """Somebody who wants to hear of writes to one resource."""

    key: Key | None
    heard: asyncio.Event = field(default_factory=asyncio.Event)


class Store:
    """Everything stored. Single-threaded: each method is one transaction."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.log: list[tuple[Key, Place, Change]] = []
        self._uids: dict[str, tuple[Key, Place]] = {}
        self._objects: dict[Key, dict[Place, Object]] = {}
        self._changes: dict[Key, list[Change]] = {}
        self._waiters: list[Waiter] = []

    def get(self, key: Key, place: Place) -> Object | None:
        return self._objects.get(key, {}).get(place)

    def all_of(self, key: Key, namespace: str = "") -> list[Object]:
        """In the order of etcd's keys: by namespace, then name."""
        held = self._objects.get(key, {})
        return [held[place] for place in sorted(held) if not namespace or place[0] == namespace]

    def everything(self) -> Iterator[tuple[Key, Place, Object]]:
        for key, held in list(self._objects.items()):
            for place, found in list(held.items()):
                yield key, place, found

    def put(self, key: Key, place: Place, new: Object) -> Object:
        """Store it under the next revision; returns it as stored."""
        held = self._objects.setdefault(key, {})
        before = held.get(place)
        stored = self._stamped(new)
        held[place] = stored
        self._uids[stored["metadata"]["uid"]] = key, place
        self._note(key, place, Change(self.revision, "MODIFIED" if before else "ADDED", stored, before))
        return stored

    def drop(self, key: Key, place: Place) -> Object:
        before = self._objects[key].pop(place)
        stored = self._stamped(before)
        self._uids.pop(stored["metadata"]["uid"], None)
        self._note(key, place, Change(self.revision, "DELETED", stored, before))
        return stored

    def _stamped(self, new: Object) -> Object:
        self.revision += 1
        return new | {"metadata": new["metadata"] | {"resourceVersion": str(self.revision)}}

    def _note(self, key: Key, place: Place, change: Change) -> None:
        self.log.append((key, place, change))
        self._changes.setdefault(key, []).append(change)
        for waiter in self._waiters:
            if waiter.key in {None, key}:
                waiter.heard.set()

    def changes(self, key: Key) -> list[Change]:
        """All of a resource's, oldest first; the list grows, so a position in it stays good."""
        return self._changes.setdefault(key, [])

    def compact(self) -> None:
        """From now on nobody may begin a watch, or go on with a list, before this revision: 410."""
        self.compacted = self.revision

    def listen(self, key: Key | None) -> Waiter:
        waiter = Waiter(key)
        self._waiters.append(waiter)
        return waiter

    def stop_listening(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)

    def wake_onlookers(self) -> None:
        """Those who listen to everything look again, though nothing was written."""
        for waiter in self._waiters:
            if waiter.key is None:
                waiter.heard.set()

    def of_uid(self, uid: str) -> tuple[Key, Place] | None:
        """Where the living object of this uid is stored."""
        return self._uids.get(uid)
