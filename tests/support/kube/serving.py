"""HTTP to the registry and back, a method a verb. Knows the wire forms (lists, tables, Status, options), no faults."""

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import yaml
from aiohttp import web
from support.kube import event_forms, patches, scale, tables
from support.kube.errors import ApiError, Cause, bad_request, expired, invalid, method_not_allowed, unsupported_media
from support.kube.kinds import Kind
from support.kube.requests import Ask, Deletion
from support.kube.selectors import both
from support.kube.store import Object, Store
from support.kube.watching import Stream, Watch, plain
from support.kube.writes import Writes

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)
_FOREIGN = {"application/vnd.kubernetes.protobuf", "application/cbor"}
Params = Mapping[str, str]


def _answer(body: Any, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    response = web.json_response(body, status=status)
    for warning in warnings or []:
        response.headers.add("Warning", f"299 - {json.dumps(warning)}")
    return response


def refusal(error: ApiError) -> web.Response:
    response = _answer(error.body, error.status)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


class Serving:
    """Serves requests for resources. `watches` are those open now; once `is_closed`, a new one ends at once."""

    def __init__(self, store: Store, writes: Writes, clock: Callable[[], datetime], bookmark_s: float) -> None:
        self._store = store
        self._writes = writes
        self._clock = clock
        self._bookmark_s = bookmark_s
        self._continued: dict[str, tuple[list[Object], int]] = {}
        self.watches: list[Watch] = []
        self.is_closed = False

    async def serve(self, verb: str, ask: Ask, request: web.BaseRequest, raw: bytes) -> web.StreamResponse:
        """The answer; a watch's is streamed before this returns.

        Raises:
            ApiError: the refusal, for the caller to render.
        """
        params = request.query
        if verb == "watch":
            return await self._watch(ask, request)
        if verb == "list":
            return self._list(ask, params, request.headers.get("Accept", ""))
        if verb == "get":
            return self._get(ask, request)
        if verb in {"delete", "deletecollection"}:
            return self._delete(verb, ask, params, raw)
        if verb == "patch":
            return self._patch(ask, request, raw)
        if request.headers.get("Content-Type", "").partition(";")[0] in _FOREIGN:
            raise unsupported_media(["application/json", "application/yaml"])
        body = self._body(ask, raw)
        if verb == "create":
            return _answer(self._shown(ask, self._writes.create(ask, body)), 201, ask.warnings)
        if verb == "update":
            return self._update(ask, body)
        raise method_not_allowed()

    @staticmethod
    def _body(ask: Ask, raw: bytes) -> dict[str, Any]:
        try:
            body = yaml.load(raw, Loader=yaml.CSafeLoader) if raw[:1] not in {b"{", b"["} else json.loads(raw)
        except (ValueError, yaml.YAMLError) as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error
        if not isinstance(body, dict):
            raise bad_request("the object provided is unrecognized: no kind")
        return event_forms.stored(body) if ask.alias else body

    def _shown(self, ask: Ask, body: Object) -> Object:
        return event_forms.shown(body) if ask.alias else body

    def _get(self, ask: Ask, request: web.BaseRequest) -> web.Response:
        body = self._shown(ask, self._writes.live(ask))
        if ask.subresource == "scale":
            return _answer(scale.read(ask.kind, body))
        if "as=Table" in request.headers.get("Accept", ""):
            meta = {"resourceVersion": body["metadata"]["resourceVersion"]}
            return _answer(self._table(ask.kind, [body], meta, request.query))
        return _answer(body)

    def _table(self, kind: Kind, items: list[Object], meta: dict[str, Any], params: Params) -> dict[str, Any]:
        return tables.table(kind, items, meta, self._clock(), params.get("includeObject", "Metadata"))

    def _selected(self, ask: Ask) -> list[Object]:
        chosen = both(ask.labels, ask.fields, ask.kind.plural)
        found = self._store.all_of(ask.kind.key, ask.namespace)
        return [one for one in found if chosen is None or chosen(one)]

    def _list(self, ask: Ask, params: Params, accept: str) -> web.Response:
        if "continue" in params:
            held = self._continued.get(params["continue"])
            if held is None or held[1] < self._store.compacted:
                raise expired(_TOO_OLD)
            found, revision = held
        else:
            found, revision = self._selected(ask), self._store.revision
        limit = int(params.get("limit") or 0)
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if limit and len(found) > limit:
            token = uuid.uuid4().hex
            self._continued[token] = found[limit:], revision
            meta |= {"continue": token, "remainingItemCount": len(found) - limit}
            found = found[:limit]
        items = [self._shown(ask, one) for one in found]
        if "as=Table" in accept:
            return _answer(self._table(ask.kind, items, meta, params))
        if not ask.kind.is_custom:
            items = [
                {name: value for name, value in one.items() if name not in {"kind", "apiVersion"}} for one in items
            ]
        kind = ask.shown_kind
        return _answer({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items})

    def _update(self, ask: Ask, body: dict[str, Any]) -> web.Response:
        if ask.subresource == "scale":
            return self._scaled(ask, lambda live: body)
        return _answer(self._shown(ask, self._writes.update(ask, body)), 200, ask.warnings)

    def _scaled(self, ask: Ask, wanted: Callable[[dict[str, Any]], dict[str, Any]]) -> web.Response:
        main = Ask(ask.kind, ask.namespace, ask.name, author=ask.author, is_dry=ask.is_dry)
        change = wanted(scale.read(ask.kind, self._writes.live(main)))
        stored = self._writes.patched(main, lambda live: scale.write(ask.kind, live, change))
        return _answer(scale.read(ask.kind, stored))

    def _patch(self, ask: Ask, request: web.BaseRequest, raw: bytes) -> web.Response:
        form = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if form not in patches.ALL or (form == patches.STRATEGIC and ask.kind.is_custom):
            known = [name for name in patches.ALL if name != patches.STRATEGIC or not ask.kind.is_custom]
            raise unsupported_media(known)
        if form == patches.APPLY:
            ask.author = request.query.get("fieldManager", "")
            stored, is_new = self._writes.apply(ask, self._body(ask, raw))
            return _answer(self._shown(ask, stored), 201 if is_new else 200, ask.warnings)
        try:
            patch = json.loads(raw)
        except ValueError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        change: dict[str, Callable[[dict[str, Any]], Any]] = {
            patches.JSON: lambda live: patches.json_patch(live, patch),
            patches.MERGE: lambda live: patches.merge_patch(live, patch),
            patches.STRATEGIC: lambda live: patches.strategic(ask.kind, live, patch),
        }
        if ask.subresource == "scale":
            return self._scaled(ask, change[form])
        return _answer(self._shown(ask, self._writes.patched(ask, change[form])), 200, ask.warnings)

    def _delete(self, verb: str, ask: Ask, params: Params, raw: bytes) -> web.Response:
        options = self._body(ask, raw) if raw.strip() else {}
        if "gracePeriodSeconds" in params:
            options["gracePeriodSeconds"] = int(params["gracePeriodSeconds"])
        options |= {name: params[name] for name in ("propagationPolicy",) if name in params}
        ask.is_dry = ask.is_dry or options.get("dryRun") == ["All"]
        if verb == "deletecollection":
            gone = self._selected(ask)
            for one in gone:
                meta = one["metadata"]
                self._writes.delete(
                    Ask(ask.kind, meta.get("namespace", ""), meta["name"], is_dry=ask.is_dry), Deletion.of(options)
                )
            kind = ask.kind
            return _answer({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {}, "items": gone})
        body, is_gone = self._writes.delete(ask, Deletion.of(options))
        if not is_gone or body["kind"] == "Pod":
            return _answer(self._shown(ask, body))
        details = {"name": ask.name, "group": ask.kind.group, "kind": ask.kind.plural, "uid": body["metadata"]["uid"]}
        details = {name: value for name, value in details.items() if value}
        return _answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    async def _watch(self, ask: Ask, request: web.BaseRequest) -> web.StreamResponse:
        params = request.query
        fields = ask.fields if not ask.name else f"metadata.name={ask.name}"
        watch = Watch(
            kind=ask.kind,
            namespace=ask.namespace,
            writer=ask.author,
            chosen=both(ask.labels, fields, ask.kind.plural),
            with_bookmarks=params.get("allowWatchBookmarks") in {"true", "1"},
            bookmark_s=self._bookmark_s,
            is_cut=self.is_closed,
            timeout_s=float(params["timeoutSeconds"]) if params.get("timeoutSeconds") else None,
        )
        initial = params.get("sendInitialEvents") == "true"
        since = self._since(params, initial, watch)
        waiter = self._store.listen(ask.kind.key)
        watch.wake = waiter.heard
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        self.watches.append(watch)
        self._store.wake_onlookers()
        try:
            await response.prepare(request)
            stream = Stream(self._store, watch, self._shown_as(ask, request))
            async for line in stream.lines(since, with_initial=initial):
                await response.write(line)
            if watch.is_abrupt and request.transport is not None:
                request.transport.abort()
            else:
                await response.write_eof()
        except ConnectionError:
            pass  # the client went away first
        finally:
            self.watches.remove(watch)
            self._store.stop_listening(waiter)
        return response

    @staticmethod
    def _since(params: Params, initial: bool, watch: Watch) -> int | None:
        if initial and (params.get("resourceVersionMatch") != "NotOlderThan" or not watch.with_bookmarks):
            why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, and bookmarks"
            raise invalid(watch.kind, "", [Cause("resourceVersionMatch", why, "FieldValueForbidden")])
        version = params.get("resourceVersion", "")
        if version and not version.isdigit():
            raise bad_request(f'Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax')
        return None if version in {"", "0"} else int(version)

    def _shown_as(self, ask: Ask, request: web.BaseRequest) -> Callable[[str, Object], bytes] | None:
        if "as=Table" in request.headers.get("Accept", ""):

            def as_table(type_: str, body: Object) -> bytes:
                meta = {"resourceVersion": body["metadata"]["resourceVersion"]}
                items = [] if type_ == "BOOKMARK" else [body]
                return plain(type_, self._table(ask.kind, items, meta, request.query))

            return as_table
        if ask.alias:
            return lambda type_, body: plain(type_, body if type_ == "BOOKMARK" else event_forms.shown(body))
        return None
