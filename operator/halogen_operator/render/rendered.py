"""One HalogenModel -> all its children, in the order in which they are applied: what a pod needs comes before it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from halogen_operator import document
from halogen_operator.house import House
from halogen_operator.names import (
    ADMIN_PORT_NAME,
    DOCUMENT_KEY,
    HTTP_PORT_NAME,
    TEMPLATE_ANNOTATION,
    admin_name,
    document_name,
)
from halogen_operator.render.held import Held
from halogen_operator.render.manifest import Manifest, child, selector_labels
from halogen_operator.render.pod import resources_of, template
from halogen_operator.wanted import Wanted

_HISTORY = 2  # old ReplicaSets: the HalogenModel is the way back, not they
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def render(wanted: Wanted, held: Held, secret: Mapping[str, bytes], house: House) -> tuple[Manifest, ...]:
    """The manifests of everything the HalogenModel owns. A kind of child that is not among them is not wanted: a
    PodDisruptionBudget is there above one replica, a ServiceMonitor where it is asked for. `secret` is what
    `credentials` gives."""
    children = [
        child("ServiceAccount", wanted.ref, automountServiceAccountToken=False),
        _secret(wanted, secret),
        _config_map(wanted, held, house),
        _network_policy(wanted, house),
        _service(wanted),
        _deployment(wanted, held, house),
    ]
    if wanted.spec.replicas > 1:
        children.append(_disruption_budget(wanted))
    if wanted.spec.service.monitor:
        children.append(_service_monitor(wanted))
    return tuple(children)


def bare_document(wanted: Wanted, house: House) -> str:
    """What pods start with before one has accepted a document: the listeners, and no model."""
    return document.bare(wanted.spec, house)


def template_of(manifests: tuple[Manifest, ...]) -> str:
    """The digest that pods of the rendered template have in `halogen.dev/template`. A pod with another one is about
    to be replaced, may lack a mount or a device that the document names, and is handed nothing."""
    deployment = next(each for each in manifests if each["kind"] == "Deployment")
    return str(deployment["spec"]["template"]["metadata"]["annotations"][TEMPLATE_ANNOTATION])


def _secret(wanted: Wanted, secret: Mapping[str, bytes]) -> Manifest:
    data = {name: base64.b64encode(value).decode() for name, value in sorted(secret.items())}
    return child("Secret", wanted.ref, admin_name(wanted.ref.name), type="Opaque", data=data)


def _config_map(wanted: Wanted, held: Held, house: House) -> Manifest:
    """For cold starts alone."""
    text = held.document
    if text != wanted.written:
        text = bare_document(wanted, house) if text is None else document.rehoused(text, wanted.spec, house)
    return child("ConfigMap", wanted.ref, document_name(wanted.ref.name), data={DOCUMENT_KEY: text})


def _deployment(wanted: Wanted, held: Held, house: House) -> Manifest:
    spec = wanted.spec
    _, devices = resources_of(wanted, held)
    return child(
        "Deployment",
        wanted.ref,
        api_version="apps/v1",
        spec={
            "replicas": spec.replicas,
            "revisionHistoryLimit": _HISTORY,
            "progressDeadlineSeconds": spec.update.progress_deadline_s,
            "selector": {"matchLabels": selector_labels(wanted.ref)},
            "strategy": _strategy(wanted, is_exclusive=devices > 0),
            "template": template(wanted, held, house),
        },
    )


def _strategy(wanted: Wanted, *, is_exclusive: bool) -> dict[str, Any]:
    """A newcomer would wait for the accelerator that its predecessor holds, for ever. Of processors and memory, too,
    a node has no second helping for sure: old pods make room for new ones."""
    if is_exclusive:
        return {"type": "Recreate"}
    rolling = {"maxUnavailable": wanted.spec.update.max_unavailable, "maxSurge": 0}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}


def _service(wanted: Wanted) -> Manifest:
    service = wanted.spec.service
    port = {
        "name": HTTP_PORT_NAME,
        "port": service.port,
        "targetPort": HTTP_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    spec = {"type": service.type, "selector": selector_labels(wanted.ref), "ports": [port]}
    return child("Service", wanted.ref, annotations=service.annotations, spec=spec)


def _network_policy(wanted: Wanted, house: House) -> Manifest:
    """Inference for whoever comes; the admin port for the operator's own pods."""
    operator = {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: house.namespace}},
        "podSelector": {"matchLabels": dict(house.labels)},
    }
    ingress = [
        {"ports": [{"port": HTTP_PORT_NAME, "protocol": "TCP"}]},
        {"from": [operator], "ports": [{"port": ADMIN_PORT_NAME, "protocol": "TCP"}]},
    ]
    pods = {"matchLabels": selector_labels(wanted.ref)}
    spec = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": ingress}
    return child("NetworkPolicy", wanted.ref, api_version="networking.k8s.io/v1", spec=spec)


def _disruption_budget(wanted: Wanted) -> Manifest:
    """A node that is emptied takes no more pods at once than an edit does; one that is not ready holds nobody up."""
    spec = {
        "maxUnavailable": wanted.spec.update.max_unavailable,
        "selector": {"matchLabels": selector_labels(wanted.ref)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return child("PodDisruptionBudget", wanted.ref, api_version="policy/v1", spec=spec)


def _service_monitor(wanted: Wanted) -> Manifest:
    spec = {
        "selector": {"matchLabels": selector_labels(wanted.ref)},
        "endpoints": [{"port": HTTP_PORT_NAME, "path": "/metrics", "interval": "30s"}],
    }
    return child("ServiceMonitor", wanted.ref, api_version="monitoring.coreos.com/v1", spec=spec)
