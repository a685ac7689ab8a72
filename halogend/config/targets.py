"""Devices that a document can be checked for without having them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from halogend.config.facts import DeviceFacts
from halogend.config.values import PRODUCTS, UNIFIED, device_id

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Of a product: its architecture, and the memory a program can use."""

    arch: str
    memory_bytes: int


# From the vendors' data sheets: of the AI MAX 395 the 96 GiB its firmware can give to the graphics side, of the
# A100 the 80 GB model.
_SHEETS: Mapping[str, _Sheet] = MappingProxyType(
    {
        "ai_max_395": _Sheet("gfx1151", 96 * _GIB),
        "mi300x": _Sheet("gfx942", 192 * _GIB),
        "rtx_4090": _Sheet("sm_89", 24 * _GIB),
        "a100": _Sheet("sm_80", 80 * _GIB),
        "h100": _Sheet("sm_90", 80 * _GIB),
        "h200": _Sheet("sm_90", 141 * _GIB),
        "b200": _Sheet("sm_100", 180 * _GIB),
    }
)


def targets(texts: Iterable[str]) -> tuple[DeviceFacts, ...]:
    """Those devices as one machine would have them: each has a number of its own."""
    found: list[DeviceFacts] = []
    for text in texts:
        device = target(text)
        taken = {name for each in found for name in (each.id, *each.aliases)}
        driven = f"{device.kind}:{_free(device.kind, text, taken)}"
        product = next(name for name in (device.id, *device.aliases) if name.partition(":")[0] == device.product)
        names = (product, driven) if device.in_host_memory else (driven, product)
        if product not in taken:
            found.append(replace(device, id=names[0], aliases=names[1:]))
    return tuple(found)


def target(text: str) -> DeviceFacts:
    """`ai_max_395` or `h100:1` -> that device. Raises ValueError naming the known products."""
    product = text.partition(":")[0]
    if product not in _SHEETS:
        raise ValueError(f"{text!r} is no known product; known are {', '.join(_SHEETS)}")
    named, kind = device_id(text, auto=False), PRODUCTS[product]
    driven = f"{kind}:{named.partition(':')[2]}"
    is_within = product in UNIFIED
    return DeviceFacts(
        id=named if is_within else driven,
        aliases=(driven if is_within else named,),
        memory_bytes=_SHEETS[product].memory_bytes,
        kind=kind,
        name=product,
        product=product,
        arch=_SHEETS[product].arch,
        in_host_memory=is_within,
    )


def _free(kind: str, text: str, taken: set[str]) -> int:
    """The number that stands there, or the next that nobody has."""
    number = int(text.partition(":")[2] or 0)
    while f"{kind}:{number}" in taken:
        number += 1
    return number
