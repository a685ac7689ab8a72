"""What of the live children counts for the next rendering, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halogen_operator.accelerators import Vendor, vendor_of
from halogen_operator.names import DEVICES_ANNOTATION, DOCUMENT_KEY


@dataclass(frozen=True, slots=True)
class Held:
    """`document` is what the ConfigMap is to hold on to: the text that a pod accepted last, None before the first.
    `devices` and `accelerator` are what the pods' template has, and `grace_s` how long they may take to end: a spec
    that needs less does not take them away, for that would replace pods that serve."""

    document: str | None = None
    devices: int = 0
    accelerator: Vendor | None = None
    grace_s: int = 0

    @classmethod
    def of(cls, config_map: Mapping[str, Any] | None, deployment: Mapping[str, Any] | None) -> Held:
        """From the live objects. What somebody else has spoilt in them counts as not there."""
        document = ((config_map or {}).get("data") or {}).get(DOCUMENT_KEY)
        template = ((deployment or {}).get("spec") or {}).get("template") or {}
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        containers = (template.get("spec") or {}).get("containers") or [{}]
        vendor = vendor_of((containers[0].get("resources") or {}).get("limits") or {})
        stated = str(annotations.get(DEVICES_ANNOTATION, "0"))
        devices = int(stated) if stated.isascii() and stated.isdecimal() and vendor is not None else 0
        grace = (template.get("spec") or {}).get("terminationGracePeriodSeconds")
        return cls(document, devices, vendor if devices else None, grace if isinstance(grace, int) else 0)
