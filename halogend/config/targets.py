"""Devices that a document can be checked for without having them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from halogend.config.facts import DeviceFacts
from halogend.config.values import device_id

_GIB = 1 << 30

# Memory a program can use, from the vendors' data sheets: of the AI MAX 395 the 96 GiB its firmware can
# give to the graphics side, of the A100 the 80 GB model.
MEMORY_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "ai_max_395": 96 * _GIB,
        "mi300x": 192 * _GIB,
        "rtx_4090": 24 * _GIB,
        "a100": 80 * _GIB,
        "h100": 80 * _GIB,
        "h200": 141 * _GIB,
    }
)


def target(text: str) -> DeviceFacts:
    """`ai_max_395` or `ai_max_395:1` -> that device. Raises ValueError naming the known products."""
    kind = text.partition(":")[0]
    if kind not in MEMORY_BYTES:
        raise ValueError(f"{text!r} is no known product; known are {', '.join(MEMORY_BYTES)}")
    return DeviceFacts(id=device_id(text, auto=False), memory_bytes=MEMORY_BYTES[kind])
