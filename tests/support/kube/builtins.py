"""What the API server does to an object of a built-in kind before it stores it: defaults, canonical forms, order.

A rendered manifest never comes back as it was sent, and an operator that compares the two must bear that. Here is as
much of it as the children of a HalogenModel, and what people apply beside them, can show.
"""

import base64
from typing import Any

from support.kube import quantities

Body = dict[str, Any]

_KEPT_EMPTY = {
    "emptyDir", "securityContext", "resources", "podSelector", "namespaceSelector", "selector", "spec", "status",
    "metadata", "strategy", "template", "loadBalancer", "rules", "subjects", "lastState", "state",
}  # fmt: skip


def normal(kind: str, body: Body, before: Body | None) -> Body:
    """`body` as it is stored: a new object, defaults filled in, nulls and empty optional fields gone."""
    if kind == "CustomResourceDefinition":
        return body  # a schema says much by what is empty in it
    stored: Body = without_empty(body)
    if "managedFields" in body["metadata"]:
        stored["metadata"]["managedFields"] = body["metadata"]["managedFields"]
    defaults = _DEFAULTS.get(kind)
    if defaults:
        defaults(stored, before)
    return stored


def without_empty(value: Any) -> Any:
    """Typed kinds have no nulls and omit what is empty, but for structs that are always written."""
    if isinstance(value, dict):
        below = {name: without_empty(item) for name, item in value.items() if item is not None}
        return {name: item for name, item in below.items() if item not in ({}, []) or name in _KEPT_EMPTY}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def _fill(into: Body, **defaults: Any) -> None:
    for name, value in defaults.items():
        into.setdefault(name, value)


def _quantities(of: Body | None) -> None:
    for part in ("limits", "requests"):
        if of and part in of:
            of[part] = {name: _quantity(value) for name, value in of[part].items()}


def _quantity(value: Any) -> str:
    try:
        return quantities.canonical(value)
    except ValueError:
        return str(value)  # validation says so


def _probe(probe: Body | None) -> None:
    if probe is None:
        return
    _fill(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if "httpGet" in probe:
        _fill(probe["httpGet"], path="/", scheme="HTTP")


def _container(container: Body) -> None:
    tag = container.get("image", "").rpartition(":")[2]
    is_latest = tag == "latest" or ":" not in container.get("image", "").rpartition("/")[2]
    _fill(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if is_latest and "@" not in container.get("image", "") else "IfNotPresent",
        resources={},
    )
    _quantities(container["resources"])
    for port in container.get("ports", []):
        _fill(port, protocol="TCP")
    for variable in container.get("env", []):
        reference = variable.get("valueFrom", {}).get("fieldRef")
        if reference is not None:
            _fill(reference, apiVersion="v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        _probe(container.get(probe))
    for hook in container.get("lifecycle", {}).values():
        if "httpGet" in hook:
            _fill(hook["httpGet"], path="/", scheme="HTTP")


_MODES = {"configMap": 420, "secret": 420, "projected": 420, "downwardAPI": 420}


def _volume(volume: Body) -> None:
    for source, mode in _MODES.items():
        if source in volume:
            _fill(volume[source], defaultMode=mode)
    if "emptyDir" in volume and "sizeLimit" in volume["emptyDir"]:
        volume["emptyDir"]["sizeLimit"] = _quantity(volume["emptyDir"]["sizeLimit"])
    if "image" in volume:
        reference = volume["image"].get("reference", "")
        tagged = ":" in reference.rpartition("/")[2] and not reference.endswith(":latest")
        _fill(volume["image"], pullPolicy="IfNotPresent" if tagged else "Always")
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}


def _pod_spec(spec: Body) -> None:
    _fill(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30,
        securityContext={},
    )
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        _container(container)
    for volume in spec.get("volumes", []):
        _volume(volume)


def _pod(body: Body, before: Body | None) -> None:
    spec = body.setdefault("spec", {})
    _pod_spec(spec)
    _fill(spec, enableServiceLinks=True)
    for container in spec.get("containers", []):
        for name, limit in container["resources"].get("limits", {}).items():
            container["resources"].setdefault("requests", {}).setdefault(name, limit)
    _fill(body.setdefault("status", {}), phase="Pending", qosClass="BestEffort")


def _workload(body: Body, before: Body | None) -> None:
    spec = body.setdefault("spec", {})
    _fill(spec, replicas=1)
    _pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


def _deployment(body: Body, before: Body | None) -> None:
    _workload(body, before)
    spec = body["spec"]
    _fill(spec, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    _fill(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        _fill(spec["strategy"].setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")


def _service(body: Body, before: Body | None) -> None:
    spec = body.setdefault("spec", {})
    _fill(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    old = (before or {}).get("spec", {})
    address = spec.get("clusterIP") or old.get("clusterIP") or _address(body)
    _fill(spec, clusterIP=address, clusterIPs=[address], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    is_open = spec["type"] in {"NodePort", "LoadBalancer"}
    if is_open:
        _fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _fill(spec, allocateLoadBalancerNodePorts=True)
    node_ports = {port.get("port"): port.get("nodePort") for port in old.get("ports", [])}
    for index, port in enumerate(spec.get("ports", [])):
        _fill(port, protocol="TCP", targetPort=port.get("port"))
        if is_open:
            _fill(port, nodePort=node_ports.get(port.get("port")) or 30000 + sum(map(ord, address)) % 2000 + index)
    _fill(body, status={"loadBalancer": {}})


def _address(body: Body) -> str:
    """From the object's own name, so that a test sees the same one each time."""
    number = sum((index + 1) * ord(letter) for index, letter in enumerate(body["metadata"].get("name", "")))
    return f"10.96.{number // 250 % 250}.{number % 250 + 1}"


def _secret(body: Body, before: Body | None) -> None:
    _fill(body, type="Opaque")
    for name, text in body.pop("stringData", {}).items():
        body.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()


def _network_policy(body: Body, before: Body | None) -> None:
    spec = body.setdefault("spec", {})
    _fill(spec, policyTypes=["Ingress", *(["Egress"] if "egress" in spec else [])])
    for rule in [*spec.get("ingress", []), *spec.get("egress", [])]:
        for port in rule.get("ports", []):
            _fill(port, protocol="TCP")


def _namespace(body: Body, before: Body | None) -> None:
    _fill(body, spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
    body["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = body["metadata"]["name"]


def _claim(body: Body, before: Body | None) -> None:
    _fill(body.setdefault("spec", {}), volumeMode="Filesystem")
    _quantities(body["spec"].get("resources"))
    _fill(body.setdefault("status", {}), phase="Pending")


_DEFAULTS = {
    "Pod": _pod,
    "ReplicaSet": _workload,
    "Deployment": _deployment,
    "Service": _service,
    "Secret": _secret,
    "NetworkPolicy": _network_policy,
    "Namespace": _namespace,
    "PersistentVolumeClaim": _claim,
}
