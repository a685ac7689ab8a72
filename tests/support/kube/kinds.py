"""Which kinds the stand-in serves, and what the API server's strategy for each is: scope, subresources, generation.

Custom kinds come from their CustomResourceDefinitions (`support.kube.crd`); this table is the built-in ones.
"""

from dataclasses import dataclass, field
from typing import Any

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Kind:
    """One resource of the API. `schema` is a custom kind's structural schema, None for a built-in one."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    scale: dict[str, str] | None = None
    has_generation: bool = False
    needs_version_to_update: bool = False
    schema: dict[str, Any] | None = field(default=None, hash=False, compare=False)
    columns: tuple[dict[str, Any], ...] = field(default=(), hash=False, compare=False)
    is_custom: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The same objects, whatever the version they are asked for in; both kinds of events are one."""
        return ("" if self.group == "events.k8s.io" else self.group), self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def dotted(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def subresources(self) -> tuple[str, ...]:
        return (("status",) if self.has_status else ()) + (("scale",) if self.scale else ())


_REPLICAS = {"spec": ".spec.replicas", "status": ".status.replicas", "selector": ""}


def _kind(group_version: str, kind: str, plural: str, **more: Any) -> Kind:
    group, _, version = group_version.rpartition("/")
    return Kind(group=group, version=version, kind=kind, plural=plural, **more)


_WORKLOAD: dict[str, Any] = {
    "has_status": True,
    "has_generation": True,
    "scale": _REPLICAS,
    "categories": ("all",),
}
_RBAC = "rbac.authorization.k8s.io/v1"

BUILT_IN = (
    _kind("v1", "Namespace", "namespaces", namespaced=False, short=("ns",), has_status=True),
    _kind("v1", "Node", "nodes", namespaced=False, short=("no",), has_status=True),
    _kind("v1", "Pod", "pods", short=("po",), has_status=True, categories=("all",)),
    _kind("v1", "ConfigMap", "configmaps", short=("cm",)),
    _kind("v1", "Secret", "secrets"),
    _kind("v1", "Service", "services", short=("svc",), has_status=True, categories=("all",)),
    _kind("v1", "ServiceAccount", "serviceaccounts", short=("sa",)),
    _kind("v1", "Endpoints", "endpoints", short=("ep",)),
    _kind("v1", "Event", "events", short=("ev",)),
    _kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), has_status=True),
    _kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False, short=("pv",), has_status=True),
    _kind("apps/v1", "Deployment", "deployments", short=("deploy",), **_WORKLOAD),
    _kind("apps/v1", "ReplicaSet", "replicasets", short=("rs",), **_WORKLOAD),
    _kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", short=("pdb",), has_status=True,
          has_generation=True, needs_version_to_update=True),
    _kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", short=("netpol",), has_generation=True),
    _kind("events.k8s.io/v1", "Event", "events", short=("ev",)),
    _kind("coordination.k8s.io/v1", "Lease", "leases", needs_version_to_update=True),
    _kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", has_generation=True),
    _kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", short=("hpa",), has_status=True,
          categories=("all",)),
    _kind(_RBAC, "Role", "roles"),
    _kind(_RBAC, "RoleBinding", "rolebindings"),
    _kind(_RBAC, "ClusterRole", "clusterroles", namespaced=False),
    _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    _kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False,
          short=("crd", "crds"), has_status=True, has_generation=True),
)  # fmt: skip


class Kinds:
    """The kinds that are served now. Its one writer is the API: CustomResourceDefinitions come and go."""

    def __init__(self) -> None:
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in BUILT_IN}

    def __iter__(self) -> Any:
        return iter(list(self._by_path.values()))

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def named(self, kind: str, group: str | None = None) -> Kind:
        """By its kind ("Deployment"), as tests and controllers name it.

        Raises:
            LookupError: nothing of that name is served.
        """
        for found in self._by_path.values():
            if found.kind == kind and group in {None, found.group}:
                return found
        raise LookupError(f"no kind {kind} is served")

    def of_body(self, body: dict[str, Any]) -> Kind | None:
        group, _, version = str(body.get("apiVersion", "")).rpartition("/")
        for found in self._by_path.values():
            if (found.group, found.version, found.kind) == (group, version, body.get("kind")):
                return found
        return None

    def of_key(self, key: tuple[str, str]) -> Kind | None:
        return next((kind for kind in self._by_path.values() if kind.key == key), None)

    def add(self, kind: Kind) -> None:
        self._by_path[kind.group, kind.version, kind.plural] = kind

    def remove(self, group: str, plural: str) -> None:
        """Every version of it: from then on the API answers 404 for its paths."""
        gone = [path for path in self._by_path if path[0] == group and path[2] == plural]
        for path in gone:
            del self._by_path[path]
