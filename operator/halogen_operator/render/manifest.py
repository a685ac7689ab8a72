"""What all children have alike: a name, labels, an owner, and a digest of themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from halogen_operator.names import (
    API_VERSION,
    APP,
    FIELD_MANAGER,
    INSTANCE_LABEL,
    KIND,
    MANAGED_BY_LABEL,
    MODEL_LABEL,
    NAME_LABEL,
    RENDERED_ANNOTATION,
)
from halogen_operator.wanted import Ref

Manifest = dict[str, Any]


def selector_labels(ref: Ref) -> dict[str, str]:
    """What tells the pods of one HalogenModel within a namespace, also from those of a release of halogend that is
    labelled by somebody else; a Deployment's never changes."""
    return {NAME_LABEL: APP, INSTANCE_LABEL: ref.name, MODEL_LABEL: ref.name}


def labels(ref: Ref) -> dict[str, str]:
    return {**selector_labels(ref), MANAGED_BY_LABEL: FIELD_MANAGER}


def selector(ref: Ref) -> str:
    """As `status.selector` has it, and `kubectl get pods -l` takes it."""
    return ",".join(f"{key}={value}" for key, value in selector_labels(ref).items())


def child(kind: str, ref: Ref, name: str = "", *, api_version: str = "v1", **rest: Any) -> Manifest:
    """A manifest of the namespace, named as its owner unless told, with its digest. Deletion of the owner takes it
    along, and waits for nothing: it blocks no deletion, which would need one more permission."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": ref.name, "uid": ref.uid}
    metadata: dict[str, Any] = {
        "name": name or ref.name,
        "namespace": ref.namespace,
        "labels": labels(ref),
        "annotations": dict(rest.pop("annotations", {})),
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
    }
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
    metadata["annotations"][RENDERED_ANNOTATION] = digest(manifest)
    return manifest


def digest(value: Mapping[str, Any]) -> str:
    """sha256 of a value in JSON, 64 digits, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
