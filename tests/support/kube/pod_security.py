"""Pod Security admission: what a namespace that enforces `restricted` or `baseline` refuses, and warns of.

A Pod is refused; a workload is stored with a warning, and it is its pods that are never made. The checks are those of
the standards, for what a pod spec of `builtin_schemas` can say.
"""

from collections.abc import Iterator
from typing import Any

from support.kube.errors import ApiError
from support.kube.requests import Ask
from support.kube.store import Object

Body = dict[str, Any]
_ENFORCE, _WARN = "pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/warn"
_BASELINE_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
_UNRESTRICTED_VOLUMES = {"hostPath", "nfs"}
_PROFILES = {"RuntimeDefault", "Localhost"}


def admit(ask: Ask, body: Object, namespace: Object | None) -> None:
    """Adds to the warnings of `ask`.

    Raises:
        ApiError: 403, a pod that its namespace does not let in.
    """
    labels = (namespace or {"metadata": {}})["metadata"].get("labels", {})
    spec = body["spec"] if body["kind"] == "Pod" else body.get("spec", {}).get("template", {}).get("spec", {})
    if body["kind"] == "Pod" and (said := _violations(labels.get(_ENFORCE), spec)):
        why = f'violates PodSecurity "{labels[_ENFORCE]}:latest": {said}'
        raise ApiError(403, "Forbidden", f'pods "{ask.name}" is forbidden: {why}')
    level = labels.get(_WARN) or labels.get(_ENFORCE)
    if body["kind"] in {"Deployment", "ReplicaSet"} and (said := _violations(level, spec)):
        ask.warnings.append(f'would violate PodSecurity "{level}:latest": {said}')


def _violations(level: str | None, spec: Body) -> str:
    if level not in {"baseline", "restricted"}:
        return ""
    found = list(_baseline(spec))
    if level == "restricted":
        found += _restricted(spec)
    return ", ".join(found)


def _containers(spec: Body) -> list[tuple[str, Body, Body]]:
    """(how messages name it, container, its security context)."""
    each = [*spec.get("initContainers", []), *spec.get("containers", [])]
    return [(f'container "{one.get("name")}"', one, one.get("securityContext") or {}) for one in each]


def _baseline(spec: Body) -> Iterator[str]:
    shared = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if shared:
        yield f"host namespaces ({', '.join(f'{name}=true' for name in shared)})"
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            yield f'hostPath volumes (volume "{volume["name"]}")'
    for name, container, context in _containers(spec):
        if context.get("privileged"):
            yield f"privileged ({name} must not set securityContext.privileged=true)"
        if any(port.get("hostPort") for port in container.get("ports", [])):
            yield f"hostPort ({name} uses host ports)"
        added = set((context.get("capabilities") or {}).get("add", []))
        if added - _BASELINE_CAPABILITIES:
            yield f"non-default capabilities ({name} must not include {sorted(added - _BASELINE_CAPABILITIES)})"
        if context.get("procMount", "Default") != "Default":
            yield f"procMount ({name} must not set securityContext.procMount)"


def _restricted(spec: Body) -> Iterator[str]:
    whole = spec.get("securityContext") or {}
    for volume in spec.get("volumes", []):
        for kind in _UNRESTRICTED_VOLUMES & set(volume):
            yield f'restricted volume types (volume "{volume["name"]}" uses restricted volume type "{kind}")'
    for name, _, context in _containers(spec):
        if context.get("allowPrivilegeEscalation") is not False:
            where = "securityContext.allowPrivilegeEscalation=false"
            yield f"allowPrivilegeEscalation != false ({name} must set {where})"
        capabilities = context.get("capabilities") or {}
        if "ALL" not in capabilities.get("drop", []):
            yield f'unrestricted capabilities ({name} must set securityContext.capabilities.drop=["ALL"])'
        if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            yield f"unrestricted capabilities ({name} must not include what it adds)"
        if context.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            yield f"runAsNonRoot != true (pod or {name} must set securityContext.runAsNonRoot=true)"
        if context.get("runAsUser", whole.get("runAsUser")) == 0:
            yield f"runAsUser=0 (pod or {name} must not set runAsUser=0)"
        profile = (context.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
        if profile not in _PROFILES:
            where = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
            yield f"seccompProfile (pod or {name} must set {where})"
