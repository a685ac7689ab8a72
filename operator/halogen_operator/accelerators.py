"""How many accelerators a spec needs, and what Kubernetes calls them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from halogend.config.custom_resource import HalogenModelSpec
from halogend.config.values import PRODUCTS

Vendor = Literal["nvidia", "amd"]

RESOURCES: Mapping[Vendor, str] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""What a pod asks for where `resources` names no accelerator."""
_PREFIXES: Mapping[Vendor, str] = {"nvidia": "nvidia.com/", "amd": "amd.com/"}
_KINDS: Mapping[str, Vendor] = {"cuda": "nvidia", "rocm": "amd"}


def needed(spec: HalogenModelSpec) -> tuple[int, Vendor | None]:
    """(how many, whose): devices are numbered from 0 in a pod, so that the highest number counts. 0 and None for
    processors, and for `auto` where `resources` names none."""
    by_vendor = _by_vendor(spec)
    if by_vendor:
        vendor = next(iter(by_vendor))
        return by_vendor[vendor], vendor
    if _is_auto(spec) and (named := stated(spec)):
        return named[1], named[0]
    return 0, None


def stated(spec: HalogenModelSpec) -> tuple[Vendor, int] | None:
    """(whose, how many) accelerators `resources` names by itself: whole ones, or slices of their makers' plugins."""
    for vendor, prefix in _PREFIXES.items():
        counts = [_whole(value) for name, value in _extended(spec) if name.startswith(prefix)]
        if counts:
            return vendor, sum(counts)
    return None


def accelerators_in(resources: Mapping[str, int | str]) -> dict[str, int | str]:
    """Those entries of `requests` or `limits` that are accelerators."""
    return {name: value for name, value in resources.items() if name.startswith(tuple(_PREFIXES.values()))}


def vendor_of(resources: Mapping[str, Any]) -> Vendor | None:
    """Whose accelerators a container's `limits` name."""
    return next((vendor for vendor, prefix in _PREFIXES.items() if any(n.startswith(prefix) for n in resources)), None)


def misfit(spec: HalogenModelSpec) -> Iterator[str]:
    """What of `device` and `resources` cannot be true at once, each with its place."""
    by_vendor, named = _by_vendor(spec), stated(spec)
    if len(by_vendor) > 1:
        yield "spec.device: names accelerators of two makers, and the plugins of one serve a pod: make it two models"
        return
    for vendor, count in by_vendor.items():
        if named is None:
            return
        if named[0] != vendor:
            yield f"spec.resources: asks for {named[0]}'s accelerators, and device names {vendor}'s"
        elif named[1] < count:
            text = (
                f"asks for {named[1]} of the {count} accelerators that device needs: they are numbered from 0 in a pod"
            )
            yield f"spec.resources: {text}"


def _by_vendor(spec: HalogenModelSpec) -> dict[Vendor, int]:
    counts: dict[Vendor, int] = {}
    for ref in spec.device:
        kind, _, index = ref.id.partition(":")
        vendor = _KINDS.get(PRODUCTS.get(kind, kind))
        if vendor is not None:
            counts[vendor] = max(counts.get(vendor, 0), int(index) + 1)
    return counts


def _is_auto(spec: HalogenModelSpec) -> bool:
    return any(ref.id == "auto" for ref in spec.device)


def _extended(spec: HalogenModelSpec) -> list[tuple[str, int | str]]:
    """Limits, and requests that have none: of an extended resource both are one number."""
    return list({**spec.resources.requests, **spec.resources.limits}.items())


def _whole(value: int | str) -> int:
    """An extended resource comes in whole numbers; the API server refuses others."""
    return int(value) if isinstance(value, int) or value.isdecimal() else 0
