"""What the API server refuses of the built-in kinds, and of any object's metadata."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from support.kube import quantities
from support.kube.errors import Cause
from support.kube.kinds import Kind

Body = dict[str, Any]

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_LABEL_1035 = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_DATA_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
_PORT_NAME = re.compile(r"^(?=.{1,15}$)(?=.*[a-z])[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
_BYTES_MAX = 1024 * 1024
_ANNOTATIONS_MAX = 256 * 1024


def _bad(field: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return Cause(field, f"Invalid value: {shown}: {why}", "FieldValueInvalid")


def _required(field: str, why: str = "") -> Cause:
    return Cause(field, f"Required value{': ' + why if why else ''}", "FieldValueRequired")


def _forbidden(field: str, why: str) -> Cause:
    return Cause(field, f"Forbidden: {why}", "FieldValueForbidden")


def metadata(kind: Kind, body: Body) -> Iterator[Cause]:
    """Name, labels, annotations and owners, which every kind has."""
    meta = body["metadata"]
    yield from _name(kind, meta.get("name", ""))
    for name, value in (meta.get("labels") or {}).items():
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.match(value):
            yield _bad("metadata.labels", value, "a valid label must be an empty string or consist of alphanumeric "
                       "characters, '-', '_' or '.', and must be no more than 63 characters")  # fmt: skip
        if len(name.rpartition("/")[2]) > 63:
            yield _bad("metadata.labels", name, "name part must be no more than 63 characters")
    annotations = meta.get("annotations") or {}
    if sum(len(str(name)) + len(str(value)) for name, value in annotations.items()) > _ANNOTATIONS_MAX:
        yield Cause(
            "metadata.annotations", f"Too long: may not be more than {_ANNOTATIONS_MAX} bytes", "FieldValueTooLong"
        )
    owners = meta.get("ownerReferences") or []
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield _bad(f"metadata.ownerReferences[{index}].{field}", "", f"{field} must not be empty")
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        yield _bad("metadata.ownerReferences", "[]", "Only one reference can have Controller set to true")


def _name(kind: Kind, name: str) -> Iterator[Cause]:
    if not name:
        yield _required("metadata.name", "name or generateName is required")
    elif kind.kind == "Service" and not _LABEL_1035.match(name):
        yield _bad("metadata.name", name, "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
                   "start with an alphabetic character, and end with an alphanumeric character")  # fmt: skip
    elif kind.kind == "Namespace" and not _LABEL.match(name):
        yield _bad(
            "metadata.name",
            name,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'",
        )
    elif kind.group != "rbac.authorization.k8s.io" and (len(name) > 253 or not _SUBDOMAIN.match(name)):
        yield _bad("metadata.name", name, "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
                   "characters, '-' or '.', and must start and end with an alphanumeric character")  # fmt: skip


def problems(kind: Kind, body: Body, before: Body | None) -> list[Cause]:
    """All that is wrong with an object of a built-in kind; `before` is the stored one of an update."""
    found = list(metadata(kind, body))
    if kind.kind in _RULES and not kind.is_custom:
        found += _RULES[kind.kind](body, before)
    return found


def _pod_spec(spec: Body, at: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield _required(f"{at}.containers")
    volumes = [volume.get("name") for volume in spec.get("volumes", [])]
    for name in {name for name in volumes if volumes.count(name) > 1}:
        yield Cause(f"{at}.volumes[{volumes.index(name)}].name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
    for index, volume in enumerate(spec.get("volumes", [])):
        if len(volume) > 2:
            yield _forbidden(f"{at}.volumes[{index}]", "may not specify more than 1 volume type")
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group, [])):
            yield from _container(container, f"{at}.{group}[{index}]", volumes)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield _bad(f"{at}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"],
                   "must be greater than or equal to 0")  # fmt: skip


def _container(container: Body, at: str, volumes: list[Any]) -> Iterator[Cause]:
    for field in ("name", "image"):
        if not container.get(field):
            yield _required(f"{at}.{field}")
    yield from _ports(container.get("ports", []), f"{at}.ports")
    yield from _mounts(container.get("volumeMounts", []), f"{at}.volumeMounts", volumes)
    for probe in ("livenessProbe", "startupProbe"):
        if container.get(probe, {}).get("successThreshold", 1) != 1:
            yield _bad(f"{at}.{probe}.successThreshold", container[probe]["successThreshold"], "must be 1")
    yield from _resources(container.get("resources", {}), f"{at}.resources")


def _ports(ports: list[Body], at: str) -> Iterator[Cause]:
    names = [port["name"] for port in ports if "name" in port]
    for index, port in enumerate(ports):
        if "name" in port and not _PORT_NAME.match(port["name"]):
            yield _bad(f"{at}[{index}].name", port["name"], "must be no more than 15 characters")
        if "name" in port and names.count(port["name"]) > 1:
            yield Cause(f"{at}[{index}].name", f'Duplicate value: "{port["name"]}"', "FieldValueDuplicate")
        if not 0 < port.get("containerPort", 0) < 65536:
            yield _bad(
                f"{at}[{index}].containerPort", port.get("containerPort"), "must be between 1 and 65535, inclusive"
            )


def _mounts(mounts: list[Body], at: str, volumes: list[Any]) -> Iterator[Cause]:
    paths = [mount.get("mountPath") for mount in mounts]
    for index, mount in enumerate(mounts):
        if mount.get("name") not in volumes:
            yield Cause(f"{at}[{index}].name", f'Not found: "{mount.get("name")}"', "FieldValueNotFound")
        if paths.count(mount.get("mountPath")) > 1:
            yield _bad(f"{at}[{index}].mountPath", mount.get("mountPath"), "must be unique")


def _resources(resources: Body, at: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for part, named in (("limits", limits), ("requests", requests)):
        for name, text in named.items():
            try:
                quantities.value(text)
            except ValueError:
                yield _bad(f"{at}.{part}[{name}]", text, "quantities must match the regular expression")
                return
    for name, text in requests.items():
        is_extended = "/" in name
        if name in limits and quantities.value(text) > quantities.value(limits[name]):
            yield _bad(f"{at}.requests", text, f"must be less than or equal to {name} limit of {limits[name]}")
        elif is_extended and quantities.value(text) != quantities.value(limits.get(name, 0)):
            yield _bad(f"{at}.requests", text, f"must be equal to {name} limit of {limits.get(name, 0)}")


def _workload(body: Body, before: Body | None) -> Iterator[Cause]:
    spec = body.get("spec", {})
    if spec.get("replicas", 1) < 0:
        yield _bad("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
    chosen = spec.get("selector", {}).get("matchLabels", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if not spec.get("selector"):
        yield _required("spec.selector")
    elif any(labels.get(name) != value for name, value in chosen.items()):
        yield _bad("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    if before and before["spec"].get("selector") != spec.get("selector"):
        yield _bad("spec.selector", spec.get("selector"), "field is immutable")
    yield from _pod_spec(spec.get("template", {}).get("spec", {}), "spec.template.spec")
    if spec.get("template", {}).get("spec", {}).get("restartPolicy", "Always") != "Always":
        yield Cause(
            "spec.template.spec.restartPolicy",
            'Unsupported value: supported values: "Always"',
            "FieldValueNotSupported",
        )


def _deployment(body: Body, before: Body | None) -> Iterator[Cause]:
    yield from _workload(body, before)
    strategy = body["spec"].get("strategy", {})
    if strategy.get("type") == "Recreate" and "rollingUpdate" in strategy:
        yield _forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    rolling = strategy.get("rollingUpdate", {})
    if rolling and all(str(rolling.get(name)).rstrip("%") == "0" for name in ("maxSurge", "maxUnavailable")):
        yield _bad("spec.strategy.rollingUpdate.maxUnavailable", rolling["maxUnavailable"],
                   "may not be 0 when `maxSurge` is 0")  # fmt: skip


def _pod(body: Body, before: Body | None) -> Iterator[Cause]:
    yield from _pod_spec(body.get("spec", {}), "spec")
    if before is None:
        return
    free = {"tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "nodeName"}
    old, new = ({k: v for k, v in one.get("spec", {}).items() if k not in free} for one in (before, body))
    for one in (old, new):
        one["containers"] = [{k: v for k, v in item.items() if k != "image"} for item in one.get("containers", [])]
    if old != new:
        yield _forbidden("spec", "pod updates may not change fields other than `spec.containers[*].image`")


def _data(body: Body) -> Iterator[Cause]:
    held = {**body.get("data", {}), **body.get("binaryData", {})}
    for name in held:
        if len(name) > 253 or not _DATA_KEY.match(name):
            yield _bad(
                f"data[{name}]", name, "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            )
    if sum(len(str(value)) for value in held.values()) > _BYTES_MAX:
        yield Cause("data", f"Too long: may not be more than {_BYTES_MAX} bytes", "FieldValueTooLong")


def _config_map(body: Body, before: Body | None) -> Iterator[Cause]:
    yield from _data(body)
    if before and before.get("immutable") and before.get("data") != body.get("data"):
        yield _forbidden("data", "field is immutable when `immutable` is set")


def _secret(body: Body, before: Body | None) -> Iterator[Cause]:
    yield from _config_map(body, before)
    for name, value in body.get("data", {}).items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            yield _bad(f"data[{name}]", "<secret>", "illegal base64 data")
    if before and before.get("type") != body.get("type"):
        yield _bad("type", body.get("type"), "field is immutable")


def _service(body: Body, before: Body | None) -> Iterator[Cause]:
    spec = body.get("spec", {})
    ports = spec.get("ports", [])
    if not ports and spec.get("clusterIP") != "None":
        yield _required("spec.ports")
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield _required(f"spec.ports[{index}].name")
        if not 0 < port.get("port", 0) < 65536:
            yield _bad(f"spec.ports[{index}].port", port.get("port"), "must be between 1 and 65535, inclusive")
    if before and before["spec"].get("clusterIP") != spec.get("clusterIP"):
        yield _bad("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set")


def _event(body: Body, before: Body | None) -> Iterator[Cause]:
    involved = body.get("involvedObject", {}).get("namespace", "")
    if involved and involved != body["metadata"].get("namespace"):
        yield _bad("involvedObject.namespace", involved, "does not match event.namespace")
    if body.get("type") not in {"Normal", "Warning"} and "eventTime" in body:
        yield _bad("type", body.get("type"), "should be Normal or Warning")


def _role_binding(body: Body, before: Body | None) -> Iterator[Cause]:
    if before and before.get("roleRef") != body.get("roleRef"):
        yield _bad("roleRef", body.get("roleRef"), "cannot change roleRef")


_RULES = {
    "Pod": _pod,
    "ReplicaSet": _workload,
    "Deployment": _deployment,
    "ConfigMap": _config_map,
    "Secret": _secret,
    "Service": _service,
    "Event": _event,
    "RoleBinding": _role_binding,
    "ClusterRoleBinding": _role_binding,
}
