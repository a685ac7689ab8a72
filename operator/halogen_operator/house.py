"""What of the operator itself stands in manifests. One value, made at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class House:
    """`image` is the daemon's where a HalogenModel names none. The operator's own pods are in `namespace` and have
    `labels`: they alone reach the admin port. `version` is the operator's. `bind` is the address on which a pod
    listens: `0.0.0.0`, or `::` in a cluster of IPv6 alone."""

    image: str
    namespace: str
    labels: Mapping[str, str]
    version: str
    bind: str = "0.0.0.0"  # noqa: S104  inside a pod: who may come is the NetworkPolicy's and the keys' business
