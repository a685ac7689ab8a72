"""The base of what stands inside a message."""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A value inside a message."""
