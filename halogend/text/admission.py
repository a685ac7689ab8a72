"""From a submitted request to what the engine is told, or to a typed refusal.

Chat goes through the template, and control tokens in messages stay plain text. The text of a raw
completion is the caller's own prompt format: control tokens written in it are parsed, as llama.cpp
does. A BOS comes first where the model wants one, never twice. Token ids are taken as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from halogend.text import failures, limits
from halogend.text.chat import ChatTemplate
from halogend.text.failures import RequestFailedError
from halogend.text.tokenizer import Part, Tokenizer
from halogend.wire.messages import ChatPrompt, Generate, Limits, Prompt, Submit, TextPrompt, TokenPrompt

_THREAD_BYTES = 16 << 10  # a millisecond or so of encoding; more would hold up everybody's tokens


@dataclass(frozen=True, slots=True)
class Setting:
    """What a live update exchanges. A request is judged by the one that it began with."""

    limits: Limits
    template: ChatTemplate | None


class Admission:
    """Encodes prompts; long ones in `executor`, so that the loop goes on."""

    def __init__(self, tokenizer: Tokenizer, executor: Executor) -> None:
        self._tokenizer = tokenizer
        self._executor = executor

    async def admit(self, submit: Submit, setting: Setting) -> Generate:
        """Raises RequestFailedError."""
        ids = await self._encode(submit.prompt, setting)
        param = _param(submit.prompt)
        if not ids:
            raise RequestFailedError(failures.EMPTY_PROMPT, "the prompt is empty; at least one token is needed", param)
        return Generate(
            id=submit.id,
            prompt_ids=tuple(ids),
            max_tokens=limits.fit(setting.limits, len(ids), submit.max_tokens, param),
            sampling=submit.sampling,
            stop_ids=tuple(sorted(self._tokenizer.end_ids)),
        )

    async def _encode(self, prompt: Prompt, setting: Setting) -> Sequence[int]:
        match prompt:
            case TokenPrompt():
                return self._checked(prompt.ids)
            case TextPrompt():
                self._check_least(len(prompt.text.encode()), setting, "prompt")
                return await self._encode_parts(self._tokenizer.control.split(prompt.text))
            case ChatPrompt():
                if setting.template is None:
                    raise RequestFailedError(
                        failures.NO_CHAT_TEMPLATE,
                        "the model has no chat template: set its chat_template to a file or a built-in name (chatml),"
                        " or use /v1/completions",
                        "messages",
                    )
                parts = await setting.template.parts(prompt.messages)
                self._check_least(_text_bytes(parts), setting, "messages")
                return await self._encode_parts(parts)

    def _check_least(self, text_bytes: int, setting: Setting, param: str) -> None:
        limits.check_least(setting.limits, self._tokenizer.least_tokens(text_bytes), param)

    async def _encode_parts(self, parts: Sequence[Part]) -> list[int]:
        if _text_bytes(parts) <= _THREAD_BYTES:
            return self._tokenizer.encode_prompt(parts)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._tokenizer.encode_prompt, parts)

    def _checked(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        size = self._tokenizer.vocab_size
        for index, token in enumerate(ids):
            if not 0 <= token < size:
                raise RequestFailedError(
                    failures.BAD_TOKEN,
                    f"token {token} at index {index} is outside the vocabulary (0 to {size - 1})",
                    "prompt",
                )
        return ids


def _text_bytes(parts: Sequence[Part]) -> int:
    return sum(len(part.encode()) for part in parts if isinstance(part, str))


def _param(prompt: Prompt) -> str:
    return "messages" if isinstance(prompt, ChatPrompt) else "prompt"
