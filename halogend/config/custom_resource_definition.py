"""The CustomResourceDefinition of HalogenModel, made from the classes of its spec and status.

Owns names, printer columns and subresources, and where rules and list types stand in the schema. What a field is
stands with the field; what an API server does with all this is its own business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from halogend.config.custom_resource import DOCUMENT_KEYS, KUBERNETES_KEYS, HalogenModelSpec
from halogend.config.custom_resource_rules import LISTS, ROOT, RULES
from halogend.config.custom_resource_status import HalogenModelStatus
from halogend.config.schema import API_VERSION, ModelConfig
from halogend.config.structural import structural, type_of
from halogend.config.unavailable import LATER, neutral_words

GROUP, _, VERSION = API_VERSION.partition("/")
KIND, PLURAL = "HalogenModel", "halogenmodels"
FILE = f"crds/{PLURAL}.{GROUP}.yaml"
_HEADER = "# Written by `halogend crd`; a test fails when this file and the code differ.\n"

_CONDITION = '.status.conditions[?(@.type=="Ready")].{}'
_COLUMNS = (
    ("Ready", "string", _CONDITION.format("status"), 0),
    ("Reason", "string", _CONDITION.format("reason"), 0),
    ("Active", "string", ".status.active.revision", 0),
    ("Desired", "string", ".status.desired.revision", 0),
    ("Replicas", "integer", ".status.replicas", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Model", "string", ".spec.model", 1),
    ("Message", "string", _CONDITION.format("message"), 1),
)


def definition() -> dict[str, Any]:
    """The whole object, JSON-ready."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {"app.kubernetes.io/name": "halogend"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["hm"],
                "categories": ["halogen"],
            },
            "versions": [_version()],
        },
    }


def definition_text() -> str:
    """YAML, as it stands in the repository."""
    text: str = yaml.dump(definition(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=116)
    return _HEADER + text


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(*each) for each in _COLUMNS],
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
    }


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    """`priority` 1 is shown by `-o wide` only."""
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})


def _schema() -> dict[str, Any]:
    whole = {
        "type": "object",
        "description": "One model, served by pods that take its edits while they run.",
        "properties": {
            "apiVersion": {"type": "string", "description": f"{API_VERSION}."},
            "kind": {"type": "string", "description": f"{KIND}."},
            "metadata": {"type": "object"},
            "spec": {"description": "What is wanted.", **_spec()},
            "status": {"description": "What is, written by the operator.", **structural(HalogenModelStatus)},
        },
        "required": ["spec"],
    }
    for path, schema in _places(whole, ROOT):
        schema.update(LISTS.get(path, {}))
        if rules := RULES.get(path):
            schema["x-kubernetes-validations"] = [{"rule": each.rule, "message": each.message} for each in rules]
    return whole


def _spec() -> dict[str, Any]:
    """Kubernetes' fields first, then the document's, then those that take their neutral value only."""
    spec = structural(HalogenModelSpec, filled_in=frozenset(KUBERNETES_KEYS))
    fields = spec["properties"]
    later = {key: _later(neutral) for key, neutral in LATER[ModelConfig].items()}
    spec["properties"] = {key: fields[key] for key in (*KUBERNETES_KEYS, *DOCUMENT_KEYS)} | later
    return spec


def _later(neutral: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "description": f"Not available yet: {neutral_words(neutral)}.",
        **type_of(neutral),
        "enum": list(neutral),
    }


def _places(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema with its path, `spec.volumes[].name`; from the inside to the outside."""
    for key, inner in schema.get("properties", {}).items():
        yield from _places(inner, f"{path}.{key}".lstrip("."))
    if "items" in schema:
        yield from _places(schema["items"], f"{path}[]")
    yield path, schema


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists stand further in than what they belong to."""
        super().increase_indent(flow, False)
