"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from halogend.api.conversation import conversation
from halogend.api.generation import GenerationEndpoint, Shape, usage_of
from halogend.api.schemas import ChatBody, read
from halogend.api.unsupported import NEUTRAL_CHAT
from halogend.control.requests import InferenceRequest
from halogend.wire.requests import Finished

_WHOLE = "chat.completion"
_CHUNK = "chat.completion.chunk"


class ChatEndpoint(GenerationEndpoint[ChatBody]):
    """Without a token limit an answer may go up to the model's limits."""

    id_prefix = "chatcmpl"

    def read(self, raw: dict[str, Any]) -> tuple[ChatBody, InferenceRequest]:
        body = read(ChatBody, raw, NEUTRAL_CHAT)
        return body, body.request(conversation(body.messages), body.token_limit())

    def shape(self, id_: str, created: int, body: ChatBody) -> Shape:
        return _ChatShape(id_, created, include_usage=body.include_usage)


class _ChatShape(Shape):
    def body(self, model: str, text: str, finished: Finished) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finished.reason}
        return {**self._frame(_WHOLE, model, [choice]), "usage": usage_of(finished.usage)}

    def opening(self, model: str) -> Iterable[dict[str, Any]]:
        yield self._part(model, {"role": "assistant", "content": ""})

    def delta(self, model: str, text: str) -> Iterable[dict[str, Any]]:
        yield self._part(model, {"content": text})

    def closing(self, model: str, finished: Finished) -> Iterable[dict[str, Any]]:
        yield self._part(model, {}, finished.reason)
        yield from self._usage_chunk(_CHUNK, model, finished.usage)

    def _part(self, model: str, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._chunk(_CHUNK, model, [choice])
