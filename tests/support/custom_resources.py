"""What an API server that has our definition, and the document's own rules, say to a HalogenModel."""

import json
from typing import Any

from support.kube import cel, structural

from halogend.config.custom_resource import model_entry, read_spec
from halogend.config.custom_resource_definition import definition
from halogend.config.parse import parse
from halogend.config.rules import check
from halogend.config.schema import API_VERSION

SCHEMA: dict[str, Any] = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def admitted(manifest: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object as it would be stored, and why it would not. Rules run over what has the right types only."""
    pruned, _ = structural.prune(SCHEMA, manifest)
    stored = structural.defaulted(SCHEMA, pruned)
    faults = [cause.text for cause in structural.problems(SCHEMA, stored)]
    return stored, faults or [cause.text for cause in cel.Rules().problems(SCHEMA, stored)]


def told_by_the_document(spec: dict[str, Any], name: str = "chat") -> list[str]:
    """What is wrong with the spec as the classes and the document's reader and rules see it."""
    _, problems = read_spec(spec)
    text = json.dumps({"apiVersion": API_VERSION, "models": [model_entry(spec, name)]})
    return [*problems, *map(str, check(parse(text.encode(), "spec", {})))]
