"""The stand-in from inside: what tests, and stand-ins for controllers, use without HTTP. Same rules, same refusals.

Nothing here is counted among the calls, and no fault strikes it. Everything given and returned is the caller's own.
"""

import copy
from typing import Any

from support.kube import patches
from support.kube.kinds import Kind, Kinds
from support.kube.requests import Ask, Deletion
from support.kube.selectors import both
from support.kube.store import Object, Store
from support.kube.writes import Writes


class Objects:
    """Kinds are named as in manifests ("Pod"); every method raises ApiError as the API server refuses."""

    def __init__(self, store: Store, kinds: Kinds, writes: Writes) -> None:
        self._store = store
        self._kinds = kinds
        self._writes = writes

    def _kind(self, body: dict[str, Any]) -> Kind:
        found = self._kinds.of_body(body)
        if found is None:
            raise LookupError(f"no kind {body.get('apiVersion')}/{body.get('kind')} is served")
        return found

    def _of(self, body: dict[str, Any], **more: Any) -> Ask:
        meta = body.get("metadata", {})
        return Ask(self._kind(body), meta.get("namespace", "default"), meta.get("name", ""), **more)

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        return copy.deepcopy(self._writes.live(Ask(self._kinds.named(kind), namespace, name)))

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """Like `get`, but None for what is not there."""
        named = self._kinds.named(kind)
        found = self._store.get(named.key, (namespace if named.namespaced else "", name))
        return copy.deepcopy(found)

    def list(self, kind: str, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        named = self._kinds.named(kind)
        chosen = both(labels, fields, named.plural)
        return copy.deepcopy([one for one in self._store.all_of(named.key, namespace) if chosen is None or chosen(one)])

    def create(self, body: dict[str, Any], author: str = "test") -> Object:
        return copy.deepcopy(self._writes.create(self._of(body, author=author), body))

    def update(self, body: dict[str, Any], subresource: str = "", author: str = "test") -> Object:
        return copy.deepcopy(self._writes.update(self._of(body, subresource=subresource, author=author), body))

    def apply(
        self, body: dict[str, Any], author: str = "test", *, force: bool = False, subresource: str = ""
    ) -> Object:
        ask = self._of(body, author=author, force=force, subresource=subresource)
        return copy.deepcopy(self._writes.apply(ask, body)[0])

    def patch(
        self,
        kind: str,
        name: str,
        patch: Any,
        namespace: str = "default",
        *,
        subresource: str = "",
        author: str = "test",
    ) -> Object:
        """A list is a JSON patch, a mapping a merge patch."""
        ask = Ask(self._kinds.named(kind), namespace, name, subresource, author)
        change = patches.json_patch if isinstance(patch, list) else patches.merge_patch
        return copy.deepcopy(self._writes.patched(ask, lambda live: change(live, copy.deepcopy(patch))))

    def delete(self, kind: str, name: str, namespace: str = "default", **options: Any) -> None:
        """`options` as in Deletion: grace_s, propagation, uid, resource_version."""
        self._writes.delete(Ask(self._kinds.named(kind), namespace, name), Deletion(**options))
