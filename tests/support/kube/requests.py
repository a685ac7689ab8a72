"""What a request asks for, apart from its verb and body: who asks, and how strictly."""

from dataclasses import dataclass, field
from typing import Any

from support.kube.kinds import Kind
from support.kube.store import Place


@dataclass
class Ask:
    """One request for one object, or (name "") for a collection. `warnings` is filled on the way.

    `alias` is the kind by which it was asked for, where that is another view of `kind` (events.k8s.io).
    """

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    author: str = "test"
    is_dry: bool = False
    force: bool = False
    validation: str = "Warn"
    labels: str = ""
    fields: str = ""
    warnings: list[str] = field(default_factory=list)
    alias: Kind | None = None

    @property
    def shown_kind(self) -> Kind:
        return self.alias or self.kind

    @property
    def place(self) -> Place:
        return (self.namespace if self.kind.namespaced else ""), self.name


@dataclass(frozen=True)
class Deletion:
    """DeleteOptions."""

    grace_s: int | None = None
    propagation: str = "Background"
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, options: dict[str, Any]) -> "Deletion":
        conditions = options.get("preconditions") or {}
        return cls(
            grace_s=options.get("gracePeriodSeconds"),
            propagation=options.get("propagationPolicy") or "Background",
            uid=conditions.get("uid") or "",
            resource_version=conditions.get("resourceVersion") or "",
        )
