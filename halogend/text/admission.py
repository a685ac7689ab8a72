"""From a submitted request to what the engine is told, or to a typed refusal.

Chat goes through the template, and control tokens in messages stay plain text. The text of a raw
completion is the caller's own prompt format: control tokens written in it are parsed, as llama.cpp
does. A BOS comes first where the model wants one, never twice. Token ids are taken as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halogend.text import failures, limits
from halogend.text.chat import ChatTemplate, work_chars
from halogend.text.failures import RequestFailedError
from halogend.text.offload import LONG_CHARS, Offload
from halogend.text.tokenizer import Part, Tokenizer, UnencodableError
from halogend.wire.requests import ChatPrompt, Generate, Prompt, Submit, TextPrompt, TokenPrompt
from halogend.wire.specs import Limits

_LONG_CHATS = 2  # under way at once: one is rendered while another is marked or encoded


@dataclass(frozen=True, slots=True)
class Setting:
    """What a live update exchanges. A request is judged by the one that it began with."""

    limits: Limits
    template: ChatTemplate | None


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text to encode: how it is cut (see Tokenizer.encode_prompt) and what makes ids of that."""

    text: str
    parts: Callable[[], tuple[Sequence[Part], str | None]]
    encode: Callable[[Sequence[Part], str | None], Sequence[int]]


class Admission:
    """Encodes prompts; long ones off the event loop, so that it goes on. May be cancelled at any time.

    The number of characters, which is known at once, is the least number of bytes: what it proves
    too long is refused before any work is spent on it.
    """

    def __init__(self, tokenizer: Tokenizer, offload: Offload) -> None:
        self._tokenizer = tokenizer
        self._offload = offload
        self._long_chats = asyncio.Semaphore(_LONG_CHATS)

    async def admit(self, submit: Submit, setting: Setting) -> Generate:
        """Raises RequestFailedError."""
        param = _param(submit.prompt)
        if isinstance(submit.prompt, TokenPrompt):
            limits.fit(setting.limits, len(submit.prompt.ids), submit.max_tokens, param)  # before they are looked at
        ids = await self._encode(submit.prompt, setting)
        if not ids:
            raise RequestFailedError(failures.EMPTY_PROMPT, "the prompt is empty; at least one token is needed", param)
        return Generate(
            id=submit.id,
            prompt_ids=tuple(ids),
            max_tokens=limits.fit(setting.limits, len(ids), submit.max_tokens, param),
            sampling=submit.sampling,
            stop_ids=tuple(sorted(self._tokenizer.end_ids)),
            caller=submit.caller,
        )

    async def _encode(self, prompt: Prompt, setting: Setting) -> Sequence[int]:
        match prompt:
            case TokenPrompt():
                return self._checked(prompt.ids)
            case TextPrompt():
                text = prompt.text
                cut = _Cut(text, lambda: (self._tokenizer.control.split(text), text), self._tokenizer.encode_prompt)
                return await self._encode_text(cut, setting, "prompt")
            case ChatPrompt():
                return await self._encode_chat(prompt, setting)

    async def _encode_chat(self, prompt: ChatPrompt, setting: Setting) -> Sequence[int]:
        if setting.template is None:
            raise RequestFailedError(
                failures.NO_CHAT_TEMPLATE,
                "the model has no chat template: set its chat_template to a file or a built-in name (chatml),"
                " or use /v1/completions",
                "messages",
            )
        self._check_least(sum(len(message.content) for message in prompt.messages), setting, "messages")
        is_long = work_chars(prompt.messages) > LONG_CHARS
        async with self._long_chats if is_long else contextlib.nullcontext():
            written = await setting.template.write(prompt.messages)
            cut = _Cut(written.text, written.cut, self._tokenizer.encode_chat)
            return await self._encode_text(cut, setting, "messages")

    async def _encode_text(self, cut: _Cut, setting: Setting, param: str) -> Sequence[int]:
        self._check_least(len(cut.text), setting, param)

        def work() -> Sequence[int]:
            parts, whole = cut.parts()
            texts = [part for part in parts if isinstance(part, str)]
            least = self._tokenizer.least_tokens_of(texts) + len(parts) - len(texts)
            limits.check_least(setting.limits, least, param)
            try:
                return cut.encode(parts, whole)
            except UnencodableError as error:
                message = f"the tokenizer cannot encode this text: {error}"
                raise RequestFailedError(failures.ENCODE_FAILED, message, param) from error

        return await self._offload.run(len(cut.text), work)

    def _check_least(self, text_bytes: int, setting: Setting, param: str) -> None:
        limits.check_least(setting.limits, self._tokenizer.least_tokens(text_bytes), param)

    def _checked(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        size = self._tokenizer.vocab_size
        if ids and not (min(ids) >= 0 and max(ids) < size):
            index, token = next((index, token) for index, token in enumerate(ids) if not 0 <= token < size)
            raise RequestFailedError(
                failures.BAD_TOKEN,
                f"token {token} at index {index} is outside the vocabulary (0 to {size - 1})",
                "prompt",
            )
        return ids


def _param(prompt: Prompt) -> str:
    return "messages" if isinstance(prompt, ChatPrompt) else "prompt"
