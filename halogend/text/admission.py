"""From a submitted request to what the engine is told, or to a typed refusal.

Chat goes through the template, and control tokens in messages stay plain text. The text of a raw
completion is the caller's own prompt format: control tokens written in it are parsed, as llama.cpp
does. A BOS comes first where the model wants one, never twice. Token ids are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halogend.text import failures, limits
from halogend.text.chat import ChatTemplate
from halogend.text.failures import RequestFailedError
from halogend.text.offload import Offload
from halogend.text.tokenizer import Tokenizer
from halogend.wire.messages import ChatPrompt, Generate, Limits, Prompt, Submit, TextPrompt, TokenPrompt


@dataclass(frozen=True, slots=True)
class Setting:
    """What a live update exchanges. A request is judged by the one that it began with."""

    limits: Limits
    template: ChatTemplate | None


class Admission:
    """Encodes prompts; long ones off the event loop, so that it goes on."""

    def __init__(self, tokenizer: Tokenizer, offload: Offload) -> None:
        self._tokenizer = tokenizer
        self._offload = offload

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
                text, size = prompt.text, len(prompt.text.encode())
                self._check_least(size, setting, "prompt")
                tokenizer = self._tokenizer
                return await self._offload.run(size, lambda: tokenizer.encode_prompt(tokenizer.control.split(text)))
            case ChatPrompt():
                if setting.template is None:
                    raise RequestFailedError(
                        failures.NO_CHAT_TEMPLATE,
                        "the model has no chat template: set its chat_template to a file or a built-in name (chatml),"
                        " or use /v1/completions",
                        "messages",
                    )
                parts = await setting.template.parts(prompt.messages)
                size = sum(len(part.encode()) for part in parts if isinstance(part, str))
                self._check_least(size, setting, "messages")
                return await self._offload.run(size, lambda: self._tokenizer.encode_prompt(parts))

    def _check_least(self, text_bytes: int, setting: Setting, param: str) -> None:
        limits.check_least(setting.limits, self._tokenizer.least_tokens(text_bytes), param)

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


def _param(prompt: Prompt) -> str:
    return "messages" if isinstance(prompt, ChatPrompt) else "prompt"
