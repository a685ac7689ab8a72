"""Devices that a document can be checked for without having them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from halogend.config.facts import DeviceFacts, reserve_bytes
from halogend.config.placement import FIRST_DEVICE
from halogend.config.values import MAX_BYTES, PRODUCTS, UNIFIED, device_id, size_bytes

_GIB = 1 << 30
_CPU = "cpu"


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


@dataclass(frozen=True, slots=True)
class Assumed:
    """A machine that a document is checked for: its accelerators, and its processor. `host` None: that of the machine
    that checks."""

    accelerators: tuple[DeviceFacts, ...] = ()
    host: DeviceFacts | None = None

    def devices(self, own: DeviceFacts | None = None) -> tuple[DeviceFacts, ...]:
        """In order of choice. `own` is the processor of the machine that checks; None: it was not looked at."""
        return (*self.accelerators, self.host or own or _processor(None))


def targets(texts: Iterable[str]) -> Assumed:
    """Those devices as one machine would have them: each has a number of its own. Of a processor that is not among
    them nothing is known, and what fits there is not judged. Raises ValueError."""
    found: list[DeviceFacts] = []
    host, is_own = _processor(None), False
    for text in texts:
        named, stated, size = text.partition("=")
        memory = _size(size) if stated else None
        if named.partition(":")[0] == _CPU:
            host, is_own = _processor(memory, named), memory is None
            continue
        device = target(named, memory)
        taken = {name for each in found for name in (each.id, *each.aliases)}
        driven = f"{device.kind}:{_free(device.kind, named, taken)}"
        product = next(name for name in (device.id, *device.aliases) if name.partition(":")[0] == device.product)
        names = (product, driven) if device.in_host_memory else (driven, product)
        if product not in taken:
            found.append(replace(device, id=names[0], aliases=names[1:]))
    return Assumed(tuple(found), None if is_own else host)


def target(text: str, memory_bytes: int | None = None) -> DeviceFacts:
    """`ai_max_395` or `h100:1` -> that device, with other memory than most have where that is given. Raises
    ValueError naming the known products."""
    product = text.partition(":")[0]
    if product not in _SHEETS:
        raise ValueError(f"{text!r} is no known product; known are {', '.join((_CPU, *_SHEETS))}")
    named, kind = device_id(text, auto=False), PRODUCTS[product]
    driven = f"{kind}:{named.partition(':')[2]}"
    is_within = product in UNIFIED
    memory = _SHEETS[product].memory_bytes if memory_bytes is None else memory_bytes
    return DeviceFacts(
        id=named if is_within else driven,
        aliases=(driven if is_within else named,),
        memory_bytes=memory,
        reserve_bytes=0 if is_within else reserve_bytes(kind, memory),
        kind=kind,
        name=product,
        product=product,
        arch=_SHEETS[product].arch,
        in_host_memory=is_within,
    )


def _processor(memory_bytes: int | None, text: str = _CPU) -> DeviceFacts:
    """With so much memory; None: more than any model needs."""
    named = device_id(text, auto=False)
    if named != FIRST_DEVICE:
        raise ValueError(f"a machine has one processor, {FIRST_DEVICE}, and {text!r} is another; a document divides it")
    if memory_bytes is None:
        return DeviceFacts(id=named, aliases=(_CPU,), memory_bytes=MAX_BYTES)
    return DeviceFacts(
        id=named, aliases=(_CPU,), memory_bytes=memory_bytes, reserve_bytes=reserve_bytes(_CPU, memory_bytes)
    )


def _size(text: str) -> int:
    found = size_bytes(text)
    if not isinstance(found, int) or not 0 < found <= MAX_BYTES:
        raise ValueError(f"the memory of a device must be above 0, found {text!r}")
    return found


def _free(kind: str, text: str, taken: set[str]) -> int:
    """The number that stands there, or the next that nobody has."""
    number = int(text.partition(":")[2] or 0)
    while f"{kind}:{number}" in taken:
        number += 1
    return number
