"""The garbage collector: what is left when an owner, or a namespace, is gone. Works behind the writers.

An object goes when every owner it names is gone (or never was, or lives in another namespace). Orphaned dependents lose
the reference; an owner deleted in the foreground waits for those that are left of it.
"""

from support.kube.kinds import Kinds
from support.kube.requests import Ask, Deletion
from support.kube.store import Key, Object, Place, Store
from support.kube.writes import Writes

_AUTHOR = "garbage-collector"


class Garbage:
    """Follows the store's log and writes through the registry, as any controller does."""

    def __init__(self, store: Store, kinds: Kinds, writes: Writes) -> None:
        self._store = store
        self._kinds = kinds
        self._writes = writes
        self._read = 0
        self._dependents: dict[str, set[tuple[Key, Place]]] = {}
        self._closing: set[str] = set()

    def collect(self) -> None:
        """Read the log to its end; what this writes is read, too."""
        while self._read < len(self._store.log):
            key, place, change = self._store.log[self._read]
            self._read += 1
            meta = change.object["metadata"]
            for owner in meta.get("ownerReferences", []):
                self._dependents.setdefault(owner["uid"], set()).add((key, place))
            if change.type == "DELETED":
                self._gone(change.object)
            elif meta.get("deletionTimestamp"):
                self._deleting(key, place, change.object)
            else:
                self._judge(key, place)
            self._close_namespaces()

    def _gone(self, body: Object) -> None:
        meta = body["metadata"]
        for key, place in sorted(self._dependents.pop(meta["uid"], set())):
            self._judge(key, place)
        for owner in meta.get("ownerReferences", []):
            found = self._store.of_uid(owner["uid"])
            if found is not None:
                self._release(*found)

    def _deleting(self, key: Key, place: Place, body: Object) -> None:
        if body["kind"] == "Namespace":
            self._closing.add(place[1])
        self._release(key, place)

    def _judge(self, key: Key, place: Place) -> None:
        body = self._store.get(key, place)
        owners = body["metadata"].get("ownerReferences", []) if body else []
        if owners and not any(self._is_there(owner["uid"], place) for owner in owners):
            self._delete(key, place)

    def _is_there(self, uid: str, dependent: Place) -> bool:
        found = self._store.of_uid(uid)
        return found is not None and found[1][0] in {"", dependent[0]}

    def _ask(self, key: Key, place: Place) -> Ask | None:
        kind = self._kinds.of_key(key)
        return None if kind is None else Ask(kind, namespace=place[0], name=place[1], author=_AUTHOR)

    def _delete(self, key: Key, place: Place) -> None:
        ask = self._ask(key, place)
        if ask is not None and self._store.get(key, place) is not None:
            self._writes.delete(ask, Deletion())

    def _release(self, key: Key, place: Place) -> None:
        """Take our finalizers off an owner that is being deleted, when its dependents allow it."""
        body = self._store.get(key, place)
        if body is None or "deletionTimestamp" not in body["metadata"]:
            return
        finalizers = body["metadata"].get("finalizers", [])
        below = [one for one in sorted(self._dependents.get(body["metadata"]["uid"], set())) if self._store.get(*one)]
        if "orphan" in finalizers:
            for one in below:
                self._orphan(*one, body["metadata"]["uid"])
            self._drop_finalizer(key, place, "orphan")
        elif "foregroundDeletion" in finalizers:
            for one in below:
                self._delete(*one)
            if not any(self._store.get(*one) for one in below):
                self._drop_finalizer(key, place, "foregroundDeletion")

    def _orphan(self, key: Key, place: Place, uid: str) -> None:
        def disown(body: Object) -> Object:
            left = [owner for owner in body["metadata"].get("ownerReferences", []) if owner["uid"] != uid]
            return body | {"metadata": body["metadata"] | {"ownerReferences": left}}

        ask = self._ask(key, place)
        if ask is not None:
            self._writes.patched(ask, disown)

    def _drop_finalizer(self, key: Key, place: Place, name: str) -> None:
        def drop(body: Object) -> Object:
            left = [held for held in body["metadata"].get("finalizers", []) if held != name]
            return body | {"metadata": body["metadata"] | {"finalizers": left}}

        ask = self._ask(key, place)
        if ask is not None and self._store.get(key, place) is not None:
            self._writes.patched(ask, drop)

    def _close_namespaces(self) -> None:
        """A namespace under deletion: everything in it, then itself."""
        for name in sorted(self._closing):
            inside = [(key, place) for key, place, _ in self._store.everything() if place[0] == name]
            for key, place in inside:
                if (
                    "deletionTimestamp"
                    not in (self._store.get(key, place) or {"metadata": {"deletionTimestamp": 1}})["metadata"]
                ):
                    self._delete(key, place)
            if not any(self._store.get(key, place) for key, place in inside):
                self._closing.discard(name)
                self._store.drop(("", "namespaces"), ("", name))
