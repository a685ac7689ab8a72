"""A conversation to the parts of a prompt, through the model's chat template.

Control tokens that the template writes become those tokens; control tokens that stand in a
message stay plain text (`control_tokens` says how the two are told apart).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halogend.text import failures
from halogend.text.control_tokens import ControlTokens, Marking
from halogend.text.failures import RequestFailedError, StartFailedError
from halogend.text.offload import Offload
from halogend.text.renderer import Rendered, Renderer, request_of
from halogend.text.tokenizer import Part, Tokenizer
from halogend.wire.requests import ChatMessage

BUILT_IN = {
    "chatml": (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
}
_TURN_CHARS = 64  # what a turn costs however short it is
_PROBE = (ChatMessage(role="user", content="Hello"),)


@dataclass(frozen=True, slots=True)
class Written:
    """What a template wrote for a conversation, with the marks still in it."""

    text: str
    marking: Marking
    control: ControlTokens

    def cut(self) -> tuple[list[Part], str | None]:
        """The text cut at the template's control tokens, and the text itself where no user has spelt one
        out. Work for a thread where the text is long."""
        parts = self.control.split(self.text)
        if not self.marking.is_used:
            return parts, self.text
        return [part if isinstance(part, int) else self.marking.restore(part) for part in parts], None


class ChatTemplate:
    """One template with the model's tokens. Immutable; renders are done by the renderer's child."""

    def __init__(self, source: str, tokenizer: Tokenizer, renderer: Renderer, offload: Offload) -> None:
        """`source` is Jinja, or the name of a built-in template."""
        self.source = source
        self._offload = offload
        self._jinja = BUILT_IN.get(source, source)
        self._tokenizer = tokenizer
        self._renderer = renderer

    async def probe(self, renderer: Renderer) -> None:
        """Renders a plain message with `renderer`. Raises StartFailedError for a template that is
        invalid, breaks, or runs past its limits, and when nothing can be rendered; a template that refuses the
        message (some want a system turn) is sound."""
        rendered = await renderer.render(self._request(_PROBE))
        if rendered.fault in ("", "rejected"):
            return
        if rendered.fault == "unavailable":
            raise StartFailedError(failures.NO_RENDERER, f"chat template cannot be tried: {rendered.text}")
        if rendered.fault in ("timeout", "memory"):
            raise StartFailedError(
                failures.TEMPLATE_LOOPS, f"chat template does not finish on a plain message: {rendered.text}"
            )
        raise StartFailedError(failures.TEMPLATE_INVALID, f"chat template invalid: {rendered.text}")

    async def write(self, messages: Sequence[ChatMessage]) -> Written:
        """Raises RequestFailedError."""
        try:
            marking, request = await self._offload.run(work_chars(messages), lambda: self._marked(messages))
        except ValueError as error:
            raise RequestFailedError(failures.TEMPLATE_FAILED, str(error), "messages") from error
        rendered = await self._renderer.render(request)
        if rendered.fault:
            raise _request_failure(rendered)
        return Written(rendered.text, marking, self._tokenizer.control)

    def _marked(self, messages: Sequence[ChatMessage]) -> tuple[Marking, bytes]:
        """The marking, and what the renderer is asked. Raises ValueError when it leaves no mark free."""
        marking = Marking(self._tokenizer.control, (text for message in messages for text in _texts(message)))
        return marking, self._request([_marked(message, marking) for message in messages])

    def _request(self, messages: Sequence[ChatMessage]) -> bytes:
        context: dict[str, Any] = {
            "messages": [_as_dict(message) for message in messages],
            "add_generation_prompt": True,
            **self._tokenizer.lexicon.named,
            "tools": None,
            "documents": None,
        }
        return request_of(self._jinja, context)


def work_chars(messages: Sequence[ChatMessage]) -> int:
    """How much there is to do for a conversation: all its characters, and something for each turn."""
    return sum(len(turn.role) + len(turn.content) + len(turn.name or "") + _TURN_CHARS for turn in messages)


def _texts(message: ChatMessage) -> tuple[str, ...]:
    return (message.role, message.content, message.name or "")


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
        case "unavailable":
            return RequestFailedError(failures.INTERNAL, f"the chat template cannot be applied: {rendered.text}")
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
