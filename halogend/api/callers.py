"""Whose a request is: its API key, and what its headers say about class and conversation.

Judges the form of the headers. Which classes a model has is the router's to know.
"""

from __future__ import annotations

import re
from dataclasses import replace

from starlette.requests import Request

from halogend.control.keys import Key
from halogend.control.requests import CLASS_HEADER, SESSION_HEADER, InferenceRequest, RequestError
from halogend.wire.policy import Caller

SESSION_CHARS = 256
_CLASS_CHARS = 128
_VISIBLE = re.compile(r"[!-~]+")


def called_by(inference: InferenceRequest, request: Request) -> InferenceRequest:
    """The same with its caller. Raises RequestError."""
    key: Key | None = (request.scope.get("state") or {}).get("grant")
    caller = Caller(
        key="" if key is None else key.name,
        weight=1.0 if key is None else key.weight,
        klass=_header(request, CLASS_HEADER, _CLASS_CHARS),
        session=_header(request, SESSION_HEADER, SESSION_CHARS),
    )
    return replace(inference, caller=caller, classes=None if key is None else key.classes)


def _header(request: Request, name: str, most: int) -> str:
    """Empty where it is left out."""
    values = request.headers.getlist(name)
    if not values:
        return ""
    if len(values) > 1:
        raise RequestError("invalid_value", f"`{name}` stands {len(values)} times; once is meant", param=name)
    text = values[0].strip()
    if len(text) > most or not _VISIBLE.fullmatch(text):
        text = f"`{name}` takes 1 to {most} visible ASCII characters without spaces"
        raise RequestError("invalid_value", text, param=name)
    return text
