"""Who may come in: one guard before an application, one key for each request.

Where nobody wrote who may, the listener is loopback's: then it is for who is on this machine, and not for a page in a
browser there that came from elsewhere. Knows keys by name and scope. What a key's file is, and when it changes, is none
of its business: it asks for the keyring anew at every request, so that a change of keys touches no request that runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from halogend.api.errors import response_to
from halogend.api.own_names import is_own
from halogend.api.quotas import Quotas
from halogend.control.keys import Key, Keyring
from halogend.control.requests import RequestError
from halogend.obs.metrics import Metrics

log = structlog.get_logger(__name__)

PROBES = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})
"""Need no key: kubelets, monitors and scrapers have none, and they tell of no request's content."""

_FOREIGN = (
    "`{host}` is no name of this machine. Without `server.auth` only requests to an IP address, to localhost or to the "
    "machine's own name are answered: otherwise any web page could use this server through a name that it has point "
    "here. Behind a proxy let that send `Host: localhost`, list keys under `server.auth`, or write `auth: none` there, "
    "which states that open access is meant."
)
_REALM = 'Bearer realm="halogend"'
_LOG_EVERY_S = 10.0


class Guard:
    """Passes what may come in, with the key in the scope's state as `grant` and its name as `key`; answers the rest.
    Where everybody may, that is for inference alone: a guarded admin listener always wants a key. `names` are the
    machine's own."""

    def __init__(
        self,
        app: ASGIApp,
        keyring: Callable[[], Keyring],
        scope: str,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        names: Collection[str] = (),
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._scope = scope
        self._metrics = metrics
        self._clock = clock
        self._names = names
        self._quotas = Quotas()
        self._logged_at: float | None = None
        self._unlogged = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keyring = self._keyring()
        if scope["type"] == "http" and keyring.is_unstated and not is_own(host := _host(scope), self._names):
            error = RequestError("host_not_allowed", _FOREIGN.format(host=host), param="Host")
            self._refused(error, None, scope)
            await response_to(error)(scope, receive, send)
            return
        if scope["type"] != "http" or (self._scope == "infer" and (keyring.is_open or scope["path"] in PROBES)):
            await self._app(scope, receive, send)
            return
        key: Key | None = None
        with ExitStack() as stack:
            try:
                key = keyring.find(bearer(scope), self._clock())
                key = admit(key, self._scope)
                if self._scope == "infer" and scope["method"] == "POST":
                    stack.enter_context(self._quotas.entered(key, self._clock()))
            except RequestError as error:
                self._refused(error, key, scope)
                await response_to(error, challenge(error))(scope, receive, send)
                return
            scope["state"] = {**(scope.get("state") or {}), "key": key.name, "grant": key}
            stack.enter_context(structlog.contextvars.bound_contextvars(key=key.name))
            await self._app(scope, receive, send)

    def _refused(self, error: RequestError, key: Key | None, scope: Scope) -> None:
        """Counted always, logged now and then: whoever tries keys must not fill the disk."""
        self._metrics.access_refused(self._scope, error.code)
        now = self._clock()
        if self._logged_at is not None and now - self._logged_at < _LOG_EVERY_S:
            self._unlogged += 1
            return
        name = None if key is None else key.name
        client = (scope.get("client") or ("",))[0]
        log.warning("access_refused", code=error.code, key=name, client=client, others_since=self._unlogged)
        self._logged_at, self._unlogged = now, 0


def _host(scope: Scope) -> str:
    """As the client wrote it; empty for HTTP/1.0 without one."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")


def bearer(scope: Scope) -> bytes:
    """The key the request carries. Raises RequestError when there is none, or more than one."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if not values:
        raise RequestError("missing_api_key", "This server wants an API key: send `Authorization: Bearer KEY`.")
    scheme, _, token = values[0].partition(b" ")
    if len(values) > 1 or scheme.lower() != b"bearer" or not token.strip():
        raise RequestError("invalid_api_key", "The Authorization header must be one `Bearer KEY`.")
    return bytes(token.strip())


def admit(key: Key | None, scope: str) -> Key:
    """The key, which opens this listener. Raises RequestError when it does not."""
    if key is None:
        raise RequestError("invalid_api_key", "The API key is not valid here.")
    if scope not in key.scopes:
        text = f"The API key `{key.name}` lacks the scope `{scope}`, which this listener wants."
        raise RequestError("insufficient_scope", text)
    return key


def challenge(error: RequestError) -> dict[str, str]:
    """RFC 6750, section 3: a request that carried no key is told no more than the scheme. None for who came in and
    asks for too much."""
    told = {
        "missing_api_key": "",
        "invalid_api_key": ', error="invalid_token"',
        "insufficient_scope": ', error="insufficient_scope"',
    }
    return {"www-authenticate": _REALM + told[error.code]} if error.code in told else {}
