"""Creating, changing and deleting objects, as the API server's registry does: one write is one synchronous step.

Owns the order of a write (decode, keep what the writer may not touch, default, validate, book the fields, count the
generation, store). Knows nothing of HTTP, watches or garbage.
"""

import copy
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from support.kube import builtin_rules, cel, crd, managers, pod_security, structural
from support.kube.bodies import SYSTEM, addressed, kept, own_part, without_system
from support.kube.decoding import declared, decoded
from support.kube.errors import (
    MODIFIED,
    ApiError,
    Cause,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from support.kube.kinds import Kind, Kinds
from support.kube.managers import Manager
from support.kube.requests import Ask, Deletion
from support.kube.store import Object, Store
from support.kube.strategy import HOLDS, grace_s, is_held, is_new_generation, seen_by_rules, timeless

_BLOCKING = {
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
    "FieldValueNotSupported",
}
_NOT_CHECKED = (
    'Invalid value: "null": some validation rules were not checked because the object was invalid; correct the '
    "existing errors to complete validation"
)


def stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


class Writes:
    """The registry: the store's one writer."""

    def __init__(self, store: Store, kinds: Kinds, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._rules = cel.Rules()

    def _now(self) -> str:
        return stamp(self._clock())

    def live(self, ask: Ask) -> Object:
        """Raises: ApiError 404."""
        found = self._store.get(ask.kind.key, ask.place)
        if found is None:
            raise not_found(ask.kind, ask.name)
        return found

    def create(self, ask: Ask, body: dict[str, Any]) -> Object:
        """POST.

        Raises:
            ApiError: 400, 403, 404 (its namespace), 409, 422.
        """
        body = addressed(ask, copy.deepcopy(body))
        if self._store.get(ask.kind.key, ask.place) is not None:
            raise already_exists(ask.kind, ask.name)
        if body["metadata"].get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        body["metadata"].pop("managedFields", None)
        new = decoded(ask, self._fresh(ask, body), None)
        self._validate(ask, new, None)
        return self._finish(ask, managers.updated(ask.kind, None, new, self._author(ask, "Update")), None)

    def update(self, ask: Ask, body: dict[str, Any]) -> Object:
        """PUT.

        Raises:
            ApiError: 400, 404, 409, 422.
        """
        body = addressed(ask, copy.deepcopy(body))
        before = self.live(ask)
        version = body["metadata"].get("resourceVersion")
        if not version and ask.kind.needs_version_to_update:
            cause = Cause("metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")
            raise invalid(ask.kind, ask.name, [cause])
        return self._change(ask, before, body)

    def patched(self, ask: Ask, change: Callable[[Object], Any]) -> Object:
        """PATCH, other than apply: `change` makes the wanted object of a copy of the live one.

        Raises:
            ApiError: 400, 404, 409, 422.
        """
        before = self.live(ask)
        wanted = change(copy.deepcopy(before))
        if not isinstance(wanted, dict) or not isinstance(wanted.get("metadata"), dict):
            raise bad_request("the patched object has no metadata")
        if wanted["metadata"].get("name") != ask.name:
            cause = Cause("metadata.name", f'Invalid value: "{wanted["metadata"].get("name")}": field is immutable')
            raise invalid(ask.kind, ask.name, [cause])
        return self._change(ask, before, wanted)

    def apply(self, ask: Ask, body: dict[str, Any]) -> tuple[Object, bool]:
        """Server-side apply; True when it made the object.

        Raises:
            ApiError: 400, 404, 409, 422.
        """
        if not ask.author:
            cause = Cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
            raise invalid(replace(ask.kind, group="meta.k8s.io", kind="PatchOptions"), "", [cause])
        if (body.get("metadata") or {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        body = addressed(ask, copy.deepcopy(body))
        before = self._store.get(ask.kind.key, ask.place)
        if before is None and ask.subresource:
            raise not_found(ask.kind, ask.name)
        author = self._author(ask, "Apply")
        wanted = declared(ask, own_part(ask, without_system(body)))
        if before is None:
            new = managers.applied(ask.kind, None, wanted, author, force=ask.force)
            new = decoded(ask, self._fresh(ask, new), None)
            self._validate(ask, new, None)
            return self._finish(ask, new, None), True
        self._preconditions(ask, before, body)
        after = managers.applied(ask.kind, before, wanted, author, force=ask.force)
        after = kept(ask, before, after)
        after = decoded(ask, after, before)
        self._validate(ask, after, before)
        return self._finish(ask, after, before), False

    def _change(self, ask: Ask, before: Object, wanted: dict[str, Any]) -> Object:
        self._preconditions(ask, before, wanted)
        after = decoded(ask, kept(ask, before, wanted), before)
        self._validate(ask, after, before)
        after = managers.updated(ask.kind, before, after, self._author(ask, "Update"))
        return self._finish(ask, after, before)

    def _preconditions(self, ask: Ask, before: Object, wanted: dict[str, Any]) -> None:
        meta, held = wanted["metadata"], before["metadata"]
        if meta.get("uid") and meta["uid"] != held["uid"]:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {held['uid']}"
            raise conflict(ask.kind, ask.name, why)
        if meta.get("resourceVersion") and meta["resourceVersion"] != held["resourceVersion"]:
            raise conflict(ask.kind, ask.name, MODIFIED)

    def _fresh(self, ask: Ask, body: dict[str, Any]) -> dict[str, Any]:
        """A new object: identity, first generation, no status."""
        self._namespace_open(ask)
        meta = {name: value for name, value in body["metadata"].items() if name not in SYSTEM}
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._now()}
        if ask.kind.has_generation:
            meta["generation"] = 1
        new = body | {"metadata": meta}
        if ask.kind.has_status:
            new.pop("status", None)
        return new

    def _namespace_open(self, ask: Ask) -> None:
        if not ask.kind.namespaced:
            return
        namespaces = self._kinds.named("Namespace", "")
        space = self._store.get(namespaces.key, ("", ask.namespace))
        if space is None:
            raise not_found(namespaces, ask.namespace)
        if space["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {ask.namespace} because it is being terminated"
            raise ApiError(403, "Forbidden", f'{ask.kind.dotted} "{ask.name}" is forbidden: {why}')

    def _validate(self, ask: Ask, body: dict[str, Any], before: Object | None) -> None:
        found = list(builtin_rules.problems(ask.kind, body, before))
        if ask.kind.schema is not None:
            found += self._custom_problems(ask.kind, body, before)
        if ask.kind.kind == "CustomResourceDefinition":
            found += crd.problems(body)
        if found:
            raise invalid(ask.kind, ask.name, found)
        if before is None or before.get("spec") != body.get("spec"):
            pod_security.admit(ask, body, self._store.get(("", "namespaces"), ("", ask.namespace)))

    def _custom_problems(self, kind: Kind, body: dict[str, Any], before: Object | None) -> list[Cause]:
        schema, checked = kind.schema or {}, seen_by_rules(body)
        found = list(structural.problems(schema, checked))
        if any(cause.reason in _BLOCKING for cause in found):
            return [*found, Cause("<nil>", _NOT_CHECKED)]
        old = None if before is None else seen_by_rules(before)
        return found + list(self._rules.problems(schema, checked, old, has_old=before is not None))

    def _author(self, ask: Ask, operation: str) -> Manager:
        return Manager(ask.author, operation, ask.kind.api_version, ask.subresource, frozenset(), self._now())

    def _finish(self, ask: Ask, after: dict[str, Any], before: Object | None) -> Object:
        """Count the generation and store, unless nothing changed or nothing shall."""
        if before is not None:
            if is_new_generation(ask.kind, before, after):
                after = after | {
                    "metadata": after["metadata"] | {"generation": before["metadata"].get("generation", 0) + 1}
                }
            if timeless(after) == timeless(before):
                return before
        if ask.kind.kind == "CustomResourceDefinition" and not ask.subresource:
            after = crd.accepted(after, self._now())
        if ask.is_dry:
            return after
        if before is not None and after["metadata"].get("deletionTimestamp") and not is_held(after):
            return self._store.drop(ask.kind.key, ask.place)
        stored = self._store.put(ask.kind.key, ask.place, after)
        if ask.kind.kind == "CustomResourceDefinition":
            for served in crd.kinds(stored):
                self._kinds.add(served)
        return stored

    def delete(self, ask: Ask, options: Deletion) -> tuple[Object, bool]:
        """The object as it was or is now; True when it is gone.

        Raises:
            ApiError: 404, 409.
        """
        before = self.live(ask)
        held = before["metadata"]
        for wanted, name in ((options.uid, "uid"), (options.resource_version, "resourceVersion")):
            if wanted and wanted != held[name]:
                why = f"Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {held[name]}"
                raise conflict(ask.kind, ask.name, why)
        if ask.is_dry:
            return before, True
        meta = dict(held)
        if options.propagation in HOLDS:
            meta["finalizers"] = [*meta.get("finalizers", []), HOLDS[options.propagation]]
        time_s = grace_s(ask.kind, before, options)
        if time_s == 0 and not is_held(before | {"metadata": meta}):
            gone = self._store.drop(ask.kind.key, ask.place)
            self._forget(ask.kind, gone)
            return gone, True
        if "deletionTimestamp" in held and time_s >= held.get("deletionGracePeriodSeconds", 0):
            return before, False
        meta["deletionTimestamp"] = stamp(self._clock() + timedelta(seconds=time_s))
        meta["deletionGracePeriodSeconds"] = time_s
        if "generation" in meta and "deletionTimestamp" not in held:
            meta["generation"] += 1
        after = before | {"metadata": meta}
        if ask.kind.kind == "Namespace":
            after["status"] = {**after.get("status", {}), "phase": "Terminating"}
        return self._store.put(ask.kind.key, ask.place, after), False

    def _forget(self, kind: Kind, gone: Object) -> None:
        """With its definition a custom kind goes, and all of it."""
        if kind.kind != "CustomResourceDefinition":
            return
        group, plural = gone["spec"]["group"], gone["spec"]["names"]["plural"]
        for found in self._store.all_of((group, plural)):
            meta = found["metadata"]
            self._store.drop((group, plural), (meta.get("namespace", ""), meta["name"]))
        self._kinds.remove(group, plural)
