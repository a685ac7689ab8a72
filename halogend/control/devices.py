"""What a driver shows of one accelerator, and what it means to a document: its ids, its product, whether it can serve.

Pure values and pure rules. How a driver is asked is the business of `devices_nvidia` and `devices_amd`; in which
process, of `devices_look`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

import msgspec

from halogend.config.facts import DeviceFacts, reserve_bytes
from halogend.config.values import UNIFIED

HOST = "host"
SWITCH = "switch"

_LEAST_COMPUTE = 80  # sm_80: the first with bfloat16
_VENDORS = MappingProxyType({"cuda": "CUDA", "rocm": "ROCm"})

# A product by the name its vendor gives it, or by its architecture and PCI id; the first that matches.
_BY_NAME = (
    (re.compile(r"\bRTX 4090\b(?! ?(?:D\b|Laptop))"), "rtx_4090"),
    (re.compile(r"\bA100\b"), "a100"),
    (re.compile(r"\bH100\b"), "h100"),
    (re.compile(r"\bH200\b"), "h200"),
    (re.compile(r"\bB200\b"), "b200"),
    (re.compile(r"\bMI300X\b"), "mi300x"),
)
_BY_ARCH: Mapping[str, str] = MappingProxyType({"gfx1151": "ai_max_395"})
_BY_PCI_ID: Mapping[int, str] = MappingProxyType({0x74A1: "mi300x", 0x74A9: "mi300x", 0x74B5: "mi300x"})


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A way to the host or to a peer. `to` is HOST, SWITCH or the peer's bus address; `bytes_per_s` what it can
    carry in one direction by its data sheet."""

    kind: str  # pcie | nvlink | xgmi
    to: str
    detail: str
    bytes_per_s: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator now. `number` is its place among those of its kind, in the driver's order. `host_bytes` is how
    much of the host's memory it may take as its own, where it has none; what the driver does not tell is None.
    `trouble` is why nothing can run on it."""

    kind: str  # cuda | rocm
    number: int
    name: str
    arch: str
    address: str
    bus: str
    memory_bytes: int
    used_bytes: int
    host_bytes: int = 0
    pci_id: int = 0
    temperature_c: float | None = None
    slowdown_c: float | None = None
    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    links: tuple[Link, ...] = ()
    trouble: str = ""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Every accelerator at one moment, and what kept the look from seeing more."""

    devices: tuple[Seen, ...] = ()
    troubles: tuple[str, ...] = ()


def product_of(seen: Seen) -> str:
    """As a document calls it; empty for one that no document can name so."""
    by_name = next((product for pattern, product in _BY_NAME if pattern.search(seen.name)), "")
    return by_name or _BY_PCI_ID.get(seen.pci_id, "") or _BY_ARCH.get(seen.arch, "")


def device_id(seen: Seen, product_number: int) -> str:
    """Its canonical id: what drives it and its number; of one whose memory is the host's, its product."""
    product = product_of(seen)
    return f"{product}:{product_number}" if seen.host_bytes and product in UNIFIED else f"{seen.kind}:{seen.number}"


def named(look: Look) -> dict[str, Seen]:
    """Every accelerator by its canonical id."""
    return {device_id(seen, number): seen for seen, number in _numbered(look.devices)}


def facts_of(look: Look, host: DeviceFacts, builds: Collection[str]) -> tuple[DeviceFacts, ...]:
    """In the drivers' order. `builds` are the kinds that the installed torch is built for."""
    return tuple(_facts(seen, number, host, builds) for seen, number in _numbered(look.devices))


def nominal_bytes_per_s(one: Seen, other: Seen | None = None) -> tuple[str, float] | None:
    """The fastest way from one to another, or to the host: its kind, and what it carries in one direction. None
    where no driver tells of one."""
    ways = [(each.kind, each.bytes_per_s) for each in one.links if each.to == (HOST if other is None else other.bus)]
    if other is not None:
        for kind, to in (("nvlink", SWITCH), ("pcie", HOST)):
            mine, theirs = (_carried(each, kind, to) for each in (one, other))
            if mine and theirs:
                ways.append((kind, min(mine, theirs)))
    return max(ways, key=lambda way: way[1], default=None)


def _carried(seen: Seen, kind: str, to: str) -> float:
    return sum(each.bytes_per_s for each in seen.links if (each.kind, each.to) == (kind, to))


def _numbered(devices: Iterable[Seen]) -> list[tuple[Seen, int]]:
    """Each with its place among those of its product."""
    count: Counter[str] = Counter()
    found = []
    for seen in devices:
        product = product_of(seen)
        found.append((seen, count[product]))
        count[product] += 1
    return found


def _facts(seen: Seen, number: int, host: DeviceFacts, builds: Collection[str]) -> DeviceFacts:
    product, own_id = product_of(seen), device_id(seen, number)
    names = [f"{seen.kind}:{seen.number}", *([f"{product}:{number}"] if product else [])]
    is_within = own_id.partition(":")[0] in UNIFIED
    memory, reserve, foreign = _of_host(seen, host) if is_within else _of_its_own(seen)
    return DeviceFacts(
        id=own_id,
        memory_bytes=memory,
        reserve_bytes=reserve,
        foreign_bytes=foreign,
        aliases=tuple(name for name in names if name != own_id),
        kind=seen.kind,
        name=seen.name,
        product=product,
        arch=seen.arch,
        address=seen.address,
        slowdown_c=seen.slowdown_c,
        unusable=_unusable(seen, builds),
        in_host_memory=is_within,
    )


def _of_its_own(seen: Seen) -> tuple[int, int, int]:
    """(memory, reserve, foreign) in bytes."""
    return seen.memory_bytes, reserve_bytes(seen.kind, seen.memory_bytes), seen.used_bytes


def _of_host(seen: Seen, host: DeviceFacts) -> tuple[int, int, int]:
    """The same of one that takes the host's memory: what the host keeps and what others use there counts, but for
    so much as the driver would not give it anyway."""
    memory = min(seen.host_bytes, host.memory_bytes)
    beyond = host.memory_bytes - memory
    reserve = max(0, host.reserve_bytes - beyond)
    foreign = max(0, host.foreign_bytes - max(0, beyond - host.reserve_bytes))
    return memory, reserve, max(foreign, seen.used_bytes)


def _unusable(seen: Seen, builds: Collection[str]) -> str:
    if seen.trouble:
        return seen.trouble
    if seen.arch.startswith("sm_") and int(seen.arch.removeprefix("sm_")) < _LEAST_COMPUTE:
        return f"it is {seen.arch}, and the kernels need bfloat16, which begins with sm_{_LEAST_COMPUTE}"
    if seen.host_bytes and product_of(seen) not in UNIFIED:
        return "its memory is the host's, and it is none of the products that halogend knows of that kind"
    if seen.kind not in builds:
        return f"the installed torch is not built for {_VENDORS[seen.kind]}"
    return ""
