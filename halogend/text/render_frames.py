"""How the text process and its rendering child frame what they say: a u32 length, then msgpack."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")


def frame(value: dict[str, Any]) -> bytes:
    """Every string must be valid Unicode, without lone surrogates."""
    body = msgspec.msgpack.encode(value)
    return LENGTH.pack(len(body)) + body


def unframe(body: bytes) -> dict[str, Any]:
    return msgspec.msgpack.decode(body, type=dict[str, Any])
