"""The API server as the operator speaks to it: read, apply, delete, write a status, post an event.

Owns paths, content types, time limits and the errors of an answer. Watching is kopf's (`watching`). Must never know
what an object means, retry (the queue does), or keep anything between two calls.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp

from halogen_operator.names import FIELD_MANAGER
from halogen_operator.resources import EVENT, Kind, kind_of

Body = dict[str, Any]
Observe = Callable[[str, str, int, float], None]
"""Told of every call: verb, kind, HTTP status (0: no answer), seconds."""

_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"
_LIMIT: Final = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0)
_OK, _CONFLICT, _NOT_FOUND, _INVALID, _ERROR = 200, 409, 404, 422, 400
_A_FAULT = "is invalid: "
"""Of an object that breaks a rule. A patch whose test failed is a 422 as well, without a word of the test."""
_MESSAGE_CHARS: Final = 1000
_PAGE: Final = 500


class KubeError(Exception):
    """An answer that is no success, or none within the time limit (status 0, reason `NoAnswer`).

    `retry_after_s` is what the server asked to wait, 0 without a word of it.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class ConflictError(KubeError):
    """Somebody was quicker: the object is not the one that was read. Look again; nothing is wrong."""


def _ignore(verb: str, kind: str, status: int, seconds: float) -> None:
    """Nobody counts."""


class Kube:
    """One API server. The session is the caller's, who closes it; any number of calls may run at once."""

    def __init__(self, session: aiohttp.ClientSession, server: str, observe: Observe = _ignore) -> None:
        self._session = session
        self._server = server.rstrip("/")
        self._observe = observe

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        """The object, None if there is none (or no such kind). Raises `KubeError`."""
        try:
            return await self._call("get", kind, kind.path(namespace, name))
        except KubeError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> Body:
        """All objects of a kind (in one namespace or in all) with these labels, as a list whose `items` are whole,
        however many pages the server makes of them. Raises `KubeError`."""
        found: list[Body] = []
        query = {"limit": str(_PAGE)} | ({"labelSelector": selector} if selector else {})
        while True:
            answer = await self._call("list", kind, kind.path(namespace), query=query)
            found += answer.get("items") or ()
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                return {**answer, "items": found}
            query["continue"] = following

    async def is_served(self, kind: Kind) -> bool:
        """Whether the server knows the kind at all (its CRD is there). Raises `KubeError`."""
        path = kind.path(None).removesuffix(f"/{kind.plural}")
        try:
            answer = await self._call("discover", kind, path)
        except KubeError as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return any(row.get("name") == kind.plural for row in answer.get("resources", ()))

    async def apply(self, manifest: Mapping[str, Any]) -> Body:
        """Server-side apply, by force: the fields written are the operator's. Returns the object as it stands now.

        A field the server does not know is refused (500, its schema has none such), not dropped: a pod without its
        volume would be worse. Raises `KubeError`.
        """
        kind, meta = kind_of(manifest), manifest["metadata"]
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        path = kind.path(meta["namespace"], meta["name"])
        return await self._call("apply", kind, path, query=query, content=manifest, content_type=_APPLY)

    async def delete(self, body: Mapping[str, Any]) -> None:
        """Deletes this very object (by its uid); one that is gone is no error. Raises `KubeError`, `ConflictError`."""
        kind, meta = kind_of(body), body["metadata"]
        options = {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": "Background"}
        try:
            await self._call("delete", kind, kind.path(meta["namespace"], meta["name"]), content=options)
        except KubeError as error:
            if error.status != _NOT_FOUND:
                raise

    async def patch_status(self, body: Mapping[str, Any], status: Mapping[str, Any]) -> Body:
        """Puts the whole status there if the object is still the one in `body`. Returns the object as it stands now.

        Raises `ConflictError` if it changed meanwhile or is gone, `KubeError` otherwise.
        """
        kind, meta = kind_of(body), body["metadata"]
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = kind.path(meta["namespace"], meta["name"], "status")
        query = {"fieldManager": FIELD_MANAGER}
        try:
            return await self._call("patch", kind, path, query=query, content=patch, content_type=_JSON_PATCH)
        except KubeError as error:
            if error.status == _NOT_FOUND or (error.status == _INVALID and _A_FAULT not in error.message):
                raise ConflictError(error.status, error.reason, error.message) from error
            raise

    async def create_event(self, event: Mapping[str, Any]) -> None:
        """Posts one Event; one of the same name there already is the same event. Raises `KubeError`."""
        try:
            await self._call("create", EVENT, EVENT.path(event["metadata"]["namespace"]), content=event)
        except ConflictError:
            return

    async def _call(
        self,
        verb: str,
        kind: Kind,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: object = None,
        content_type: str = "application/json",
    ) -> Body:
        began, status = time.monotonic(), 0
        body = None if content is None else json.dumps(content).encode()
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body is not None else {})
        url = self._server + path
        try:
            async with self._session.request(
                _METHODS[verb], url, params=query, data=body, headers=headers, timeout=_LIMIT
            ) as answer:
                status = answer.status
                text = await answer.text()
                retry_after = answer.headers.get("Retry-After", "")
        except (aiohttp.ClientError, TimeoutError) as error:
            why = str(error) or f"{type(error).__name__}, {time.monotonic() - began:.1f} s"
            raise KubeError(0, "NoAnswer", f"{verb} {path}: {why}") from error
        finally:
            self._observe(verb, kind.name, status, time.monotonic() - began)
        return _read(status, text, retry_after)


_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "discover": "GET",
    "apply": "PATCH",
    "patch": "PATCH",
    "create": "POST",
    "delete": "DELETE",
}


def _read(status: int, text: str, retry_after: str) -> Body:
    """The object of an answer. Raises `KubeError`, `ConflictError`."""
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if isinstance(content, dict) and _OK <= status < _ERROR:
        return content
    told = content if isinstance(content, dict) else {}
    reason = str(told.get("reason") or "Unknown")
    message = str(told.get("message") or text)[:_MESSAGE_CHARS]
    if status == _CONFLICT:
        raise ConflictError(status, reason, message)
    raise KubeError(status, reason, message, _seconds(retry_after))


def _seconds(retry_after: str) -> float:
    """Of a Retry-After header; a date there (nobody sends one) counts as no word of it."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return 0.0
