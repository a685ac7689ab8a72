"""Where requests arrive: who may come in, what is asked for, what the test had in mind for it, and then the answer.

kmock takes the connections and reads the requests; a test may set reactions of its own on it, which come first.
"""

import kmock
from aiohttp import web
from support.kube import discovery
from support.kube.errors import ApiError, method_not_allowed, no_such_path, unauthorized
from support.kube.faults import Call, CutError, Faults
from support.kube.kinds import Kinds
from support.kube.patches import APPLY
from support.kube.paths import Target, target, verb
from support.kube.requests import Ask
from support.kube.serving import Serving, refusal
from support.kube.store import Store


class Front(kmock.RawHandler):
    """`calls` grows by each request for a resource, before it is served. `tokens` None: everybody may come in."""

    def __init__(self, store: Store, kinds: Kinds, serving: Serving, faults: Faults, tokens: set[str] | None) -> None:
        super().__init__(strict=True)
        self.calls: list[Call] = []
        self.faults = faults
        self.tokens = tokens
        self._store = store
        self._kinds = kinds
        self._serving = serving

    async def __call__(self, raw_request: web.BaseRequest) -> web.StreamResponse:
        """kmock 0.8 cannot read the path of all namespaces; it is served past it."""
        if raw_request.path.rstrip("/").endswith("/namespaces"):
            return await self._respond(raw_request, await raw_request.read())
        return await super().__call__(raw_request)

    async def _handle(self, request: kmock.Request) -> web.StreamResponse:
        """A test's own kmock reactions come first; whatever they leave is served here."""
        try:
            return await super()._handle(request)
        except NotImplementedError:
            if request._raw_request is None:
                raise
            return await self._respond(request._raw_request, request.body)

    async def _respond(self, raw: web.BaseRequest, body: bytes) -> web.StreamResponse:
        try:
            return await self._serve(raw, body)
        except ApiError as error:
            return refusal(error)
        except CutError:
            if raw.transport is not None:
                raw.transport.abort()
            return web.Response()

    async def _serve(self, raw: web.BaseRequest, body: bytes) -> web.StreamResponse:
        self._admit(raw)
        found = target(self._kinds, raw.path)
        if found is None:
            return self._elsewhere(raw)
        params = raw.query
        wanted = verb(raw.method, found, is_watch=params.get("watch") in {"true", "1"})
        if wanted is None:
            raise method_not_allowed()
        call = self._call(wanted, found, raw)
        self.calls.append(call)
        self._store.wake_onlookers()
        try:
            await self.faults.strike(call, is_after=False)
            response = await self._serving.serve(wanted, self._ask(found, call, raw), raw, body)
            await self.faults.strike(call, is_after=True)
        except ApiError as error:
            call.status = error.status
            raise
        finally:
            self._store.wake_onlookers()
        call.status = response.status
        return response

    def _admit(self, raw: web.BaseRequest) -> None:
        if self.tokens is None:
            return
        scheme, _, token = raw.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in self.tokens:
            raise unauthorized()

    def _elsewhere(self, raw: web.BaseRequest) -> web.Response:
        body = discovery.answer(self._kinds, raw.path)
        if raw.method not in {"GET", "HEAD"} or body is None:
            raise no_such_path()
        return web.Response(text=body) if isinstance(body, str) else web.json_response(body)

    @staticmethod
    def _call(wanted: str, found: Target, raw: web.BaseRequest) -> Call:
        client = raw.headers.get("User-Agent", "unknown").partition("/")[0]
        return Call(
            verb=wanted,
            group=found.kind.group,
            plural=found.kind.plural,
            kind=found.kind.kind,
            namespace=found.namespace,
            name=found.name,
            subresource=found.subresource,
            writer=raw.query.get("fieldManager") or client,
            is_apply=raw.content_type == APPLY,
        )

    def _ask(self, found: Target, call: Call, raw: web.BaseRequest) -> Ask:
        params = raw.query
        stored = self._kinds.of_key(found.kind.key) or found.kind
        return Ask(
            kind=stored if found.kind.group == "events.k8s.io" else found.kind,
            alias=found.kind if found.kind.group == "events.k8s.io" else None,
            namespace=found.namespace,
            name=found.name,
            subresource=found.subresource,
            author=call.writer,
            is_dry=params.get("dryRun") == "All",
            force=params.get("force") in {"true", "1"},
            validation=params.get("fieldValidation") or "Warn",
            labels=params.get("labelSelector", ""),
            fields=params.get("fieldSelector", ""),
        )
