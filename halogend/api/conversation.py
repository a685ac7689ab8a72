"""`messages` of a chat body to the turns a template gets: text only, every refusal by its path."""

from __future__ import annotations

from typing import Any

from halogend.api.schemas import MessageBody
from halogend.control.requests import RequestError
from halogend.wire.messages import ChatMessage, ChatPrompt

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def conversation(messages: list[MessageBody]) -> ChatPrompt:
    """`developer` is the newer name of `system`. Raises RequestError."""
    return ChatPrompt(messages=tuple(_turn(message, f"messages[{i}]") for i, message in enumerate(messages)))


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
