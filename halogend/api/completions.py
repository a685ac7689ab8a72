"""POST /v1/completions: one prompt, as text or as token ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from halogend.api.generation import GenerationEndpoint, Shape, usage_of
from halogend.api.schemas import CompletionBody, read
from halogend.api.unsupported import NEUTRAL_COMPLETION
from halogend.control.requests import InferenceRequest, RequestError
from halogend.wire.requests import Finished, Prompt, TextPrompt, TokenPrompt

_OBJECT = "text_completion"
_MAX_TOKEN_ID = 2**31 - 1
_FORMS = "`prompt` takes a string or a list of token ids"


class CompletionEndpoint(GenerationEndpoint[CompletionBody]):
    """Without `max_tokens` an answer may go up to the model's limits, as in chat."""

    id_prefix = "cmpl"

    def read(self, raw: dict[str, Any]) -> tuple[CompletionBody, InferenceRequest]:
        body = read(CompletionBody, raw, NEUTRAL_COMPLETION)
        return body, body.request(prompt_of(body.prompt), body.max_tokens)

    def shape(self, id_: str, created: int, body: CompletionBody) -> Shape:
        return _CompletionShape(id_, created, include_usage=body.include_usage)


def prompt_of(value: Any) -> Prompt:
    """Text, token ids, or a list of exactly one of them. Raises RequestError."""
    if isinstance(value, str):
        return TextPrompt(text=value)
    if not isinstance(value, list):
        raise RequestError("invalid_value", _FORMS, param="prompt")
    if not value:
        raise RequestError("empty_prompt", "`prompt` is an empty list", param="prompt")
    if all(isinstance(each, str | list) for each in value):
        if len(value) > 1:
            text = f"`prompt` holds {len(value)} prompts; the limit is 1 prompt a request"
            raise RequestError("unsupported_field", text, param="prompt")
        return prompt_of(value[0]) if isinstance(value[0], str) else _tokens(value[0])
    return _tokens(value)


def _tokens(values: list[Any]) -> TokenPrompt:
    if not values:
        raise RequestError("empty_prompt", "`prompt` holds no token", param="prompt")
    for place, value in enumerate(values):
        if type(value) is not int:  # true is no token
            raise RequestError("invalid_value", f"{_FORMS}; item {place} is neither", param=f"prompt[{place}]")
        if not 0 <= value <= _MAX_TOKEN_ID:
            raise RequestError("bad_token", f"`prompt[{place}]`: {value} is no token id", param=f"prompt[{place}]")
    return TokenPrompt(ids=tuple(values))


class _CompletionShape(Shape):
    def body(self, model: str, text: str, finished: Finished) -> dict[str, Any]:
        return {**self._frame(_OBJECT, model, [_choice(text, finished.reason)]), "usage": usage_of(finished.usage)}

    def opening(self, model: str) -> Iterable[dict[str, Any]]:
        return ()

    def delta(self, model: str, text: str) -> Iterable[dict[str, Any]]:
        yield self._chunk(_OBJECT, model, [_choice(text, None)])

    def closing(self, model: str, finished: Finished) -> Iterable[dict[str, Any]]:
        yield self._chunk(_OBJECT, model, [_choice("", finished.reason)])
        yield from self._usage_chunk(_OBJECT, model, finished.usage)


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
