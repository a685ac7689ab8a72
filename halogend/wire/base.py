"""The bases of messages and of what stands inside them."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """Base of the closed union; the tag is the class name."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A value inside a message."""
