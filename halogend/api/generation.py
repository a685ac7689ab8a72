"""The way both generating routes go: body, request, answer, whole or as a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from halogend.api.bodies import ClientGoneError, read_object
from halogend.api.callers import called_by
from halogend.api.exchange import Exchange, collect, model_label, until_gone
from halogend.api.schemas import GenerationBody
from halogend.api.services import Services
from halogend.api.sse import EventStream
from halogend.control.requests import InferenceRequest, RequestError
from halogend.wire.requests import Finished, Usage

Body = TypeVar("Body", bound=GenerationBody)
CLIENT_GONE = 499
"""Nobody sees this status: its reader has left."""


class Shape(ABC):
    """How one answer of a route is written. `id` and `created` are the same in all its parts."""

    def __init__(self, id_: str, created: int, *, include_usage: bool) -> None:
        self._id = id_
        self._created = created
        self._include_usage = include_usage

    @abstractmethod
    def body(self, model: str, text: str, finished: Finished) -> dict[str, Any]:
        """The whole answer."""

    @abstractmethod
    def opening(self, model: str) -> Iterable[dict[str, Any]]: ...

    @abstractmethod
    def delta(self, model: str, text: str) -> Iterable[dict[str, Any]]: ...

    @abstractmethod
    def closing(self, model: str, finished: Finished) -> Iterable[dict[str, Any]]: ...

    def _frame(self, kind: str, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": model, "choices": choices}

    def _chunk(self, kind: str, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = self._frame(kind, model, choices)
        if self._include_usage:
            chunk["usage"] = None  # the chunk that carries it comes last
        return chunk

    def _usage_chunk(self, kind: str, model: str, usage: Usage) -> Iterable[dict[str, Any]]:
        if self._include_usage:
            yield {**self._frame(kind, model, []), "usage": usage_of(usage)}


def usage_of(usage: Usage) -> dict[str, Any]:
    """`cached_tokens` are part of the prompt's."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class GenerationEndpoint(ABC, Generic[Body]):
    """One route. Subclasses say how a body becomes a request and how an answer is written."""

    id_prefix: str

    def __init__(self, services: Services) -> None:
        self._services = services

    @abstractmethod
    def read(self, raw: dict[str, Any]) -> tuple[Body, InferenceRequest]:
        """Raises RequestError."""

    @abstractmethod
    def shape(self, id_: str, created: int, body: Body) -> Shape: ...

    async def create(self, request: Request) -> Response | EventStream:
        services = self._services
        began = services.clock()
        raw: dict[str, Any] = {}
        try:
            raw = await read_object(request, patience_s=services.patience.body_s)
            body, inference = self.read(raw)
            inference = called_by(inference, request)
        except RequestError as error:
            services.metrics.request_ended(self._label(raw), error.code, services.clock() - began)
            raise
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        id_ = f"{self.id_prefix}-{services.new_id()}"
        shape = self.shape(id_, int(services.wall()), body)
        exchange = Exchange(services.router, services.metrics, inference, services.clock, began)
        headers = {"x-request-id": id_}
        if body.stream:
            return EventStream(exchange, shape, headers, services.patience.keep_alive_s)
        try:
            text, finished = await until_gone(request.receive, collect(exchange))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        content = msgspec.json.encode(shape.body(exchange.model, text, finished))
        return Response(content, headers=headers, media_type="application/json")

    def _label(self, raw: dict[str, Any]) -> str:
        return model_label(self._services.router, str(raw.get("model", "")))
