"""`messages` of a chat body to the turns a template gets: text only, every refusal by its path."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from halogend.api.schemas import MessageBody
from halogend.control.requests import RequestError
from halogend.wire.requests import ChatMessage, ChatPrompt

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MAX_PARTS = 10_000  # in all messages together


def conversation(messages: list[MessageBody]) -> ChatPrompt:
    """`developer` is the newer name of `system`. What an assistant said in consecutive messages is one
    turn: as several, they would teach the model to break off. Raises RequestError."""
    parts = sum(len(message.content) for message in messages if isinstance(message.content, list))
    if parts > MAX_PARTS:
        text = f"`messages` has {parts} content parts; at most {MAX_PARTS} are taken"
        raise RequestError("invalid_value", text, param="messages")
    turns = [_turn(message, f"messages[{i}]") for i, message in enumerate(messages)]
    return ChatPrompt(messages=tuple(_merged(turns)))


def _merged(turns: Iterable[ChatMessage]) -> Iterator[ChatMessage]:
    """Contents are joined as they are, like the parts of one message: a client that had an answer
    continued sends its pieces, and nothing may come between them."""
    for (role, name), run in itertools.groupby(turns, key=lambda turn: (turn.role, turn.name)):
        if role == "assistant":
            yield ChatMessage(role=role, content="".join(turn.content for turn in run), name=name)
        else:
            yield from run


def _turn(message: MessageBody, path: str) -> ChatMessage:
    role = _ROLES.get(message.role)
    if role is None:
        if message.role in {"tool", "function"}:
            text = f"`{path}.role`: {message.role} messages are not available yet"
            raise RequestError("unsupported_field", text, param=f"{path}.role")
        text = f"`{path}.role` takes one of {', '.join(_ROLES)}"
        raise RequestError("invalid_value", text, param=f"{path}.role")
    return ChatMessage(role=role, content=_text(message.content, f"{path}.content"), name=message.name)


def _text(content: Any, path: str) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise RequestError("invalid_value", f"`{path}` must hold text; null is not a turn", param=path)
    if not isinstance(content, list):
        raise RequestError("invalid_value", f"`{path}` takes a string or a list of text parts", param=path)
    if not content:
        raise RequestError("invalid_value", f"`{path}` is an empty list; give at least one part", param=path)
    return "".join(_part(part, f"{path}[{i}]") for i, part in enumerate(content))


def _part(part: Any, path: str) -> str:
    if not isinstance(part, dict):
        raise RequestError("invalid_value", f"`{path}` must be an object with `type` and `text`", param=path)
    kind = part.get("type")
    if kind != "text":
        if isinstance(kind, str):
            text = f"`{path}`: parts of type {kind} are not available; this server reads text"
            raise RequestError("unsupported_field", text, param=f"{path}.type")
        raise RequestError("missing_field", f"`{path}.type` is required", param=f"{path}.type")
    surplus = sorted(set(part) - {"type", "text"})
    if surplus:
        where = f"{path}.{surplus[0]}"
        raise RequestError("unknown_field", f"`{where}` is not a field of a text part", param=where)
    if not isinstance(part.get("text"), str):
        raise RequestError("invalid_value", f"`{path}.text` must be a string", param=f"{path}.text")
    text_of_part: str = part["text"]
    return text_of_part
