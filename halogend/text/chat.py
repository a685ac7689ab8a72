"""A conversation to the parts of a prompt, through the model's chat template.

Control tokens that the template writes become those tokens; control tokens that stand in a
message stay plain text (`control_tokens` says how the two are told apart).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halogend.text import failures
from halogend.text.control_tokens import Marking
from halogend.text.failures import RequestFailedError, StartFailedError
from halogend.text.offload import Offload
from halogend.text.renderer import Rendered, Renderer
from halogend.text.tokenizer import Part, Tokenizer
from halogend.wire.messages import ChatMessage

BUILT_IN = {
    "chatml": (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
}
_PROBE = (ChatMessage(role="user", content="Hello"),)


class ChatTemplate:
    """One template with the model's tokens. Immutable; renders are done by the renderer's child."""

    def __init__(self, source: str, tokenizer: Tokenizer, renderer: Renderer, offload: Offload) -> None:
        """`source` is Jinja, or the name of a built-in template."""
        self._offload = offload
        self._source = BUILT_IN.get(source, source)
        self._tokenizer = tokenizer
        self._renderer = renderer

    async def probe(self) -> None:
        """Renders a plain message. Raises StartFailedError for a template that is invalid, breaks, or
        runs past its limits; one that refuses the message (some want a system turn) is sound."""
        rendered = await self._render(_PROBE)
        if rendered.fault in ("", "rejected"):
            return
        if rendered.fault in ("timeout", "memory"):
            raise StartFailedError(
                failures.TEMPLATE_LOOPS, f"chat template does not finish on a plain message: {rendered.text}"
            )
        raise StartFailedError(failures.TEMPLATE_INVALID, f"chat template invalid: {rendered.text}")

    async def parts(self, messages: Sequence[ChatMessage]) -> list[Part]:
        """Raises RequestFailedError."""
        control = self._tokenizer.control
        marking = Marking(control, [text for message in messages for text in _texts(message)])
        size = sum(len(message.content) for message in messages)
        try:
            marked = await self._offload.run(size, lambda: [_marked(message, marking) for message in messages])
        except ValueError as error:
            raise RequestFailedError(failures.TEMPLATE_FAILED, str(error), "messages") from error
        rendered = await self._render(marked)
        if rendered.fault:
            raise _request_failure(rendered)
        text = rendered.text
        return await self._offload.run(
            len(text),
            lambda: [part if isinstance(part, int) else marking.restore(part) for part in control.split(text)],
        )

    async def _render(self, messages: Sequence[ChatMessage]) -> Rendered:
        vocabulary = self._tokenizer.vocabulary
        context: dict[str, Any] = {
            "messages": [_as_dict(message) for message in messages],
            "add_generation_prompt": True,
            "bos_token": self._tokenizer.token_text(vocabulary.bos_id),
            "eos_token": self._tokenizer.token_text(vocabulary.eos_id),
            "unk_token": self._tokenizer.token_text(vocabulary.unknown_id),
            "tools": None,
            "documents": None,
        }
        return await self._renderer.render(self._source, context)


def _texts(message: ChatMessage) -> list[str]:
    return [message.role, message.content, message.name or ""]


def _marked(message: ChatMessage, marking: Marking) -> ChatMessage:
    """The role is marked as well, but as a word that templates compare it is left alone otherwise."""
    return ChatMessage(
        role=message.role if message.role.isalpha() else marking.mark(message.role),
        content=marking.mark(message.content),
        name=None if message.name is None else marking.mark(message.name),
    )


def _as_dict(message: ChatMessage) -> dict[str, str]:
    turn = {"role": message.role, "content": message.content}
    return turn if message.name is None else turn | {"name": message.name}


def _request_failure(rendered: Rendered) -> RequestFailedError:
    match rendered.fault:
        case "rejected":
            return RequestFailedError(
                failures.TEMPLATE_REJECTED, f"the chat template refused the messages: {rendered.text}", "messages"
            )
        case "timeout" | "memory":
            return RequestFailedError(
                failures.TEMPLATE_TIMEOUT,
                f"the chat template does not finish on these messages: {rendered.text}",
                "messages",
            )
        case _:
            return RequestFailedError(
                failures.TEMPLATE_FAILED, f"the chat template broke on these messages: {rendered.text}", "messages"
            )
