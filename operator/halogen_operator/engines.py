"""The daemons of pods, asked over their admin API: what they are at, a document for them, a plan of one.

Owns the connections, their limits and whom they trust: the authority of the HalogenModel's own Secret, for the name
that its certificate has, at a pod's address. Must never know when a document is to be handed over.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

from halogen_operator import answers
from halogen_operator.engine_view import EngineView, ReceiptView
from halogen_operator.names import ADMIN_KEY, ADMIN_PORT, CA_CERT, server_name
from halogen_operator.pods import PodState, PodView
from halogen_operator.wanted import Ref, Wanted

T = TypeVar("T")
_KEPT_RECEIPTS = 8
_MOST_BYTES = 16 << 20
_MOST_CONTEXTS = 1024
MOST_AT_ONCE = 64
_MESSAGE_CHARACTERS = 500
_NOT_YET = "it does not run yet; `kubectl describe pod` names what it waits for, such as a Secret or a volume"
_KEEP_S = 5.0  # from one look to the next during a change, not for ever: a thousand pods are a thousand files
_OK, _ACCEPTED, _CONFLICT, _REJECTED = 200, 202, 409, 422


class EngineError(Exception):
    """A daemon did not answer, or not as expected. The text is for people, and `it` is the pod."""


class OvertakenError(EngineError):
    """The daemon has another document by now than the one that was to be replaced, or a later generation of this
    HalogenModel: look again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: to connect, for one answer, and for the plan of a document, whose files are looked at."""

    connect_s: float = 3.0
    answer_s: float = 10.0
    plan_s: float = 90.0


class Engines:
    """`async with Engines() as engines`. One for all pods; any number of calls may be under way."""

    def __init__(self, limits: Limits | None = None, port: int = ADMIN_PORT) -> None:
        self._limits = limits or Limits()
        self._port = port
        self._contexts: OrderedDict[bytes, ssl.SSLContext] = OrderedDict()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=2, keepalive_timeout=_KEEP_S)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def observe(self, pods: Sequence[PodView], secret: Mapping[str, bytes], ref: Ref) -> tuple[PodState, ...]:
        """What each is at, in the order of `pods`; all are asked at once, and one that does not answer costs the
        others nothing. Never raises EngineError: it stands in the state."""
        turn = asyncio.Semaphore(MOST_AT_ONCE)  # of this HalogenModel alone: its pods that hang are in no other's way

        async def one(pod: PodView) -> PodState:
            async with turn:
                return await self._state(pod, secret, ref)

        return tuple(await asyncio.gather(*map(one, pods)))

    async def push(
        self, pod: PodView, wanted: Wanted, secret: Mapping[str, bytes], if_match: str | None
    ) -> ReceiptView:
        """Hands the document over; `if_match` is the revision that it must replace, None where the daemon has none.
        Returns at once, with a receipt that may be open still. Raises EngineError, and of these OvertakenError."""
        call = self._call(pod, secret, wanted.ref)
        origin = f"uid={wanted.ref.uid}, generation={wanted.generation}"
        headers = {"content-type": "application/yaml", "halogen-origin": origin}
        if if_match is not None:
            headers["if-match"] = f'"{if_match}"'
        status, body = await call.json("PUT", "/document?wait=none&file=spec", wanted.written.encode(), headers)
        if status == _CONFLICT and "id" not in body:
            raise OvertakenError(_told(status, body))
        if "id" not in body:
            raise EngineError(_told(status, body))
        return ReceiptView.of(_read(body, answers.Receipt))

    async def plan(self, pod: PodView, wanted: Wanted, secret: Mapping[str, bytes]) -> answers.Plan:
        """What handing it over would do there, as the daemon tells it. Raises EngineError."""
        call = self._call(pod, secret, wanted.ref, total_s=self._limits.plan_s)
        headers = {"content-type": "application/yaml"}
        path = "/document?dry_run=true&file=spec"
        status, body = await call.json("PUT", path, wanted.written.encode(), headers)
        if status not in (_OK, _REJECTED) or "outcome" not in body:
            raise EngineError(_told(status, body))
        return _read(body, answers.Plan)

    async def _state(self, pod: PodView, secret: Mapping[str, bytes], ref: Ref) -> PodState:
        if pod.is_deleting:
            return PodState(pod, error="it is on its way out")
        if pod.ip is None:
            return PodState(pod, error=_NOT_YET)
        try:
            return PodState(pod, await self._view(self._call(pod, secret, ref), ref))
        except EngineError as error:
            return PodState(pod, error=str(error))

    async def _view(self, call: _Call, ref: Ref) -> EngineView:
        text, revision = await call.document()
        receipts = await call.read(f"/receipts?uid={ref.uid}&limit={_KEPT_RECEIPTS}")
        status = await call.read("/status")
        every = _read(receipts, answers.Receipts).receipts
        ours = [each for each in every if each.origin is not None and each.origin.uid == ref.uid]
        return EngineView.of(_read(status, answers.Status), text, revision, ours)

    def _call(self, pod: PodView, secret: Mapping[str, bytes], ref: Ref, total_s: float = 0.0) -> _Call:
        if self._session is None:
            raise EngineError("the operator is ending")
        if pod.ip is None:
            raise EngineError("it does not run yet")
        try:
            context = self._context(secret[CA_CERT])
            key = secret[ADMIN_KEY].decode("ascii").strip()
        except KeyError as error:
            raise EngineError(f"the Secret of {ref.name} has no {error.args[0]}") from error
        except (ValueError, ssl.SSLError) as error:
            raise EngineError(f"the Secret of {ref.name} is not usable: {error}") from error
        limits = aiohttp.ClientTimeout(total=total_s or self._limits.answer_s, sock_connect=self._limits.connect_s)
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        base = f"https://{host}:{self._port}/admin/v1"
        return _Call(self._session, pod, base, key, _Trust(context, server_name(ref.name, ref.namespace)), limits)

    def _context(self, authority: bytes) -> ssl.SSLContext:
        """One for each authority, so that connections are used again."""
        if authority not in self._contexts:
            self._contexts[authority] = ssl.create_default_context(cadata=authority.decode("ascii"))
            while len(self._contexts) > _MOST_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(authority)
        return self._contexts[authority]


@dataclass(frozen=True, slots=True)
class _Trust:
    context: ssl.SSLContext
    server_name: str


@dataclass(frozen=True, slots=True)
class _Call:
    """Requests to one pod's daemon. Every fault of the other side is an EngineError."""

    session: aiohttp.ClientSession
    pod: PodView
    base: str
    key: str
    trust: _Trust
    limits: aiohttp.ClientTimeout

    async def read(self, path: str) -> dict[str, Any]:
        status, body = await self.json("GET", path)
        if status != _OK:
            raise EngineError(_told(status, body))
        return body

    async def document(self) -> tuple[str, str | None]:
        """(text, revision) of the one that is asked for now; of none: empty, None."""
        status, data, headers = await self._ask("GET", "/document?of=desired")
        if status != _OK:
            raise EngineError(_told(status, self._object(status, data)))
        tag = headers.get("etag")
        if tag is not None and not tag.isascii():
            raise EngineError("it names its document by what is no revision")
        return data.decode("utf-8", "replace"), None if tag is None else tag.strip('"')

    async def json(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        status, body, _ = await self._ask(method, path, data, headers)
        return status, self._object(status, body)

    def _object(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            return answers.decoded(body)
        except ValueError as error:
            raise EngineError(f"it answered {status} with what is no JSON object") from error

    async def _ask(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        try:
            async with self.session.request(
                method,
                self.base + path,
                data=data,
                headers={"authorization": f"Bearer {self.key}", **(headers or {})},
                ssl=self.trust.context,
                server_hostname=self.trust.server_name,
                timeout=self.limits,
                allow_redirects=False,
            ) as answer:
                return answer.status, await _bounded(answer), answer.headers
        except TimeoutError as error:
            raise EngineError("it did not answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise EngineError(f"it cannot be asked: {_reason(error)}") from error


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    """A pod runs what an image holds: its answers are not trusted to end."""
    data = bytearray()
    async for piece in answer.content.iter_chunked(1 << 16):
        data += piece
        if len(data) > _MOST_BYTES:
            raise ValueError(f"its answer is longer than {_MOST_BYTES} bytes")
    return bytes(data)


def _reason(error: Exception) -> str:
    """The same words for the same fault, whichever process says them: they stand in a status."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return f"its certificate is not trusted: {getattr(cause, 'verify_message', cause)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"{error.host}:{error.port}: {os.strerror(number) if number else error.os_error}"
    return str(error) or type(error).__name__


def _read(value: Mapping[str, Any], shape: type[T]) -> T:
    try:
        return answers.read(value, shape)
    except ValueError as error:
        raise EngineError(f"it tells of itself in a way that this operator does not know: {error}") from error


def _told(status: int, body: Mapping[str, Any]) -> str:
    error = body.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return f"it answered {status}: {str(message or 'without a word')[:_MESSAGE_CHARACTERS]}"
