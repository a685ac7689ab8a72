"""The template of a pod: one daemon that waits for its document.

The template has nothing of the document in it, so that an edit of the document replaces no pod; what it has is what
replaces pods: image, resources, placement, volumes, and the Secrets that hold keys.
"""

from __future__ import annotations

import math
from typing import Any

from halogen_operator.accelerators import RESOURCES, Vendor, accelerators_in, stated
from halogen_operator.document import key_file
from halogen_operator.house import House
from halogen_operator.names import (
    ADMIN_FOLDER,
    ADMIN_KEY,
    ADMIN_PORT,
    ADMIN_PORT_NAME,
    CA_CERT,
    CACHE_FOLDER,
    CONTAINER,
    DEVICES_ANNOTATION,
    DOCUMENT_FOLDER,
    DOCUMENT_KEY,
    DRAIN_LIMIT_S,
    ENGINE_LABEL,
    GRACE_MARGIN_S,
    HTTP_PORT,
    HTTP_PORT_NAME,
    KEYS_FOLDER,
    METRICS_NAMES,
    PRE_STOP_S,
    RUNTIME_FOLDER,
    STATE_FOLDER,
    TEMPLATE_ANNOTATION,
    TLS_CERT,
    TLS_KEY,
    TMP_FOLDER,
    VOLUME_PREFIX,
    admin_name,
    document_name,
)
from halogen_operator.render.held import Held
from halogen_operator.render.manifest import digest, labels
from halogen_operator.wanted import Wanted
from halogend.config.custom_resource_parts import VolumeSpec

_USER = 10001
_FILE_MODE = 0o440
_COMMAND = ("run", "--source", "push", "--stop-drain", "document")
_SCRATCH = (("state", STATE_FOLDER), ("cache", CACHE_FOLDER), ("run", RUNTIME_FOLDER), ("tmp", TMP_FOLDER))
_SCRATCH_LIMITS = {"state": "256Mi", "cache": "8Gi", "run": "64Mi", "tmp": "4Gi"}


def template(wanted: Wanted, held: Held, house: House) -> dict[str, Any]:
    """`spec.template` of the Deployment, with a digest of itself among its annotations."""
    _, devices = resources_of(wanted, held)
    metadata: dict[str, Any] = {
        "labels": {**labels(wanted.ref), ENGINE_LABEL: METRICS_NAMES},
        "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER, DEVICES_ANNOTATION: str(devices)},
    }
    made = {"metadata": metadata, "spec": _pod(wanted, held, house)}
    metadata["annotations"][TEMPLATE_ANNOTATION] = digest(made)[:16]
    return made


def resources_of(wanted: Wanted, held: Held) -> tuple[dict[str, Any], int]:
    """(the container's resources, how many accelerators it gets): those that the spec names, else as many as the
    document needs, else those that the template has. Kubernetes wants them among the limits."""
    spec = wanted.spec.resources
    limits, requests = {**accelerators_in(spec.requests), **spec.limits}, dict(spec.requests)
    named = stated(wanted.spec)
    if named is not None:
        return _sections(limits, requests), named[1]
    vendor: Vendor | None = wanted.accelerator or held.accelerator
    kept = held.devices if held.accelerator == vendor else 0
    devices = max(wanted.devices, kept)
    if vendor is not None and devices:
        limits[RESOURCES[vendor]] = devices
    return _sections(limits, requests), devices


def grace_s(wanted: Wanted, held: Held) -> int:
    """How long a pod may take to end: whatever a drain may last has ended by then. Not less than `auto` may take, and
    not less than the pods have: an edit of `drain_timeout_s` is one of the document, and replaces none of them unless
    they would be ended too soon."""
    drain = wanted.spec.reload.drain_timeout_s
    longest = DRAIN_LIMIT_S if drain == "auto" else max(DRAIN_LIMIT_S, math.ceil(drain))
    return max(PRE_STOP_S + longest + GRACE_MARGIN_S, held.grace_s)


def _sections(limits: dict[str, Any], requests: dict[str, Any]) -> dict[str, Any]:
    """Quantities as texts, as the API server gives them back."""
    named = {"limits": limits, "requests": requests}
    return {part: {name: str(value) for name, value in each.items()} for part, each in named.items() if each}


# --- the pod ----------------------------------------------------------------------------------------


def _pod(wanted: Wanted, held: Held, house: House) -> dict[str, Any]:
    spec = wanted.spec
    pod: dict[str, Any] = {
        "serviceAccountName": wanted.ref.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s(wanted, held),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(wanted, house, resources_of(wanted, held)[0])],
        "volumes": _volumes(wanted),
    }
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": each.name} for each in spec.image_pull_secrets]
    if spec.node_selector:
        pod["nodeSelector"] = dict(spec.node_selector)
    if spec.tolerations:
        pod["tolerations"] = [each.model_dump(by_alias=True, exclude_none=True) for each in spec.tolerations]
    return pod


def _container(wanted: Wanted, house: House, resources: dict[str, Any]) -> dict[str, Any]:
    """The image's entry point is `halogend`, behind an init that reaps what a dead engine leaves."""
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": wanted.spec.image or house.image,
        "args": [*_COMMAND, "--config", f"{DOCUMENT_FOLDER}/{DOCUMENT_KEY}"],
        "env": [{"name": name, "value": value} for name, value in _ENVIRONMENT.items()],
        "ports": [
            {"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": ADMIN_PORT_NAME, "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": _probe("/livez", period_s=2, failures=60),
        "livenessProbe": _probe("/livez", period_s=10, failures=6),
        "readinessProbe": _probe("/readyz", period_s=5, failures=2),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
        "volumeMounts": _mounts(wanted),
    }
    return {**container, "resources": resources} if resources else container


# A state directory must be its user's alone, and an emptyDir belongs to a group: the daemon makes its own below. The
# three last are for who runs `halogend status` inside the pod.
_ENVIRONMENT = {
    "HOME": TMP_FOLDER,
    "TMPDIR": TMP_FOLDER,
    "STATE_DIRECTORY": f"{STATE_FOLDER}/state",
    "CACHE_DIRECTORY": CACHE_FOLDER,
    "RUNTIME_DIRECTORY": RUNTIME_FOLDER,
    "HALOGEN_ADMIN": f"localhost:{ADMIN_PORT}",
    "HALOGEN_ADMIN_KEY_FILE": f"{ADMIN_FOLDER}/{ADMIN_KEY}",
    "HALOGEN_ADMIN_CA": f"{ADMIN_FOLDER}/{CA_CERT}",
}


def _probe(path: str, *, period_s: int, failures: int) -> dict[str, Any]:
    get = {"path": path, "port": HTTP_PORT_NAME, "scheme": "HTTP"}
    return {"httpGet": get, "periodSeconds": period_s, "timeoutSeconds": 5, "failureThreshold": failures}


# --- volumes ----------------------------------------------------------------------------------------


def _volumes(wanted: Wanted) -> list[dict[str, Any]]:
    name = wanted.ref.name
    admin = [{"key": each, "path": each} for each in (ADMIN_KEY, CA_CERT, TLS_CERT, TLS_KEY)]
    volumes: list[dict[str, Any]] = [
        {"name": f"{VOLUME_PREFIX}document", "configMap": {"name": document_name(name)}},
        {
            "name": f"{VOLUME_PREFIX}admin",
            "secret": {"secretName": admin_name(name), "defaultMode": _FILE_MODE, "items": admin},
        },
    ]
    if sources := _key_sources(wanted):
        projected = {"defaultMode": _FILE_MODE, "sources": sources}
        volumes.append({"name": f"{VOLUME_PREFIX}keys", "projected": projected})
    for each, _ in _SCRATCH:
        volumes.append({"name": f"{VOLUME_PREFIX}{each}", "emptyDir": {"sizeLimit": _SCRATCH_LIMITS[each]}})
    return volumes + [_models_volume(each) for each in wanted.spec.volumes]


def _key_sources(wanted: Wanted) -> list[dict[str, Any]]:
    """By the names of Secrets, not in the order of keys: another order of the same keys replaces no pod."""
    entries: dict[str, set[str]] = {}
    for key in wanted.spec.auth.keys or ():
        entries.setdefault(key.secret.name, set()).add(key.secret.key)
    return [
        {"secret": {"name": name, "items": [{"key": key, "path": key_file(name, key)} for key in sorted(keys)]}}
        for name, keys in sorted(entries.items())
    ]


def _models_volume(volume: VolumeSpec) -> dict[str, Any]:
    made = volume.model_dump(by_alias=True, exclude_none=True, exclude={"mount_path"})
    if volume.claim is not None:
        made["persistentVolumeClaim"]["readOnly"] = True
    return made


def _mounts(wanted: Wanted) -> list[dict[str, Any]]:
    read_only = {"document": DOCUMENT_FOLDER, "admin": ADMIN_FOLDER}
    if wanted.spec.auth.keys:
        read_only["keys"] = KEYS_FOLDER
    mounts = [{"name": f"{VOLUME_PREFIX}{n}", "mountPath": path, "readOnly": True} for n, path in read_only.items()]
    mounts += [{"name": f"{VOLUME_PREFIX}{n}", "mountPath": path} for n, path in _SCRATCH]
    return mounts + [{"name": v.name, "mountPath": v.mount_path, "readOnly": True} for v in wanted.spec.volumes]
