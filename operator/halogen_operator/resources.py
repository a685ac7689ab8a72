"""Kinds the operator touches and where the API serves them.

Owns the one table of kinds, their paths and whether they are watched. Must never know what is in an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from halogen_operator.names import FIELD_MANAGER, GROUP, MANAGED_BY_LABEL

VERSION: Final = "v1alpha1"


CHILDREN: Final = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
"""Label selector of children, pods included."""


@dataclass(frozen=True)
class Kind:
    """One kind: `group` is empty for the core, `plural` as in paths; `watched` children are in the store."""

    name: str
    group: str
    version: str
    plural: str
    watched: bool = True

    @property
    def api_version(self) -> str:
        """As manifests write it: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Below the server's address, with a leading slash; without a namespace, that of all namespaces."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/".join(parts)


HALOGEN_MODEL: Final = Kind("HalogenModel", GROUP, VERSION, "halogenmodels")
CONFIG_MAP: Final = Kind("ConfigMap", "", "v1", "configmaps")
DEPLOYMENT: Final = Kind("Deployment", "apps", "v1", "deployments")
DISRUPTION_BUDGET: Final = Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")
EVENT: Final = Kind("Event", "", "v1", "events", watched=False)
NETWORK_POLICY: Final = Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies")
POD: Final = Kind("Pod", "", "v1", "pods")
SECRET: Final = Kind("Secret", "", "v1", "secrets")
SERVICE: Final = Kind("Service", "", "v1", "services")
SERVICE_ACCOUNT: Final = Kind("ServiceAccount", "", "v1", "serviceaccounts")
SERVICE_MONITOR: Final = Kind("ServiceMonitor", "monitoring.coreos.com", "v1", "servicemonitors", watched=False)

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        HALOGEN_MODEL,
        CONFIG_MAP,
        DEPLOYMENT,
        DISRUPTION_BUDGET,
        EVENT,
        NETWORK_POLICY,
        POD,
        SECRET,
        SERVICE,
        SERVICE_ACCOUNT,
        SERVICE_MONITOR,
    )
}
WATCHED: Final[tuple[Kind, ...]] = tuple(kind for kind in KINDS.values() if kind.watched)


def kind_of(body: Mapping[str, Any]) -> Kind:
    """The row of an object's `kind`. Raises `LookupError` for one that is not in the table."""
    try:
        return KINDS[body["kind"]]
    except KeyError as error:
        raise LookupError(f"the operator does not know the kind {body.get('kind')!r}") from error
