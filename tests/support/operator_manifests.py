"""What installs the operator, rendered: kustomize's by kubectl, the chart's by `support.go_template`."""

from __future__ import annotations

import copy
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from support.go_template import render

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "operator/deploy"
CHART = ROOT / "operator/chart"
Manifests = dict[tuple[str, str, str], dict[str, Any]]
"""By kind, namespace and name."""


def kustomized(overlay: str) -> Manifests:
    """Skips the test where there is no kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: nothing here renders kustomize's files")
    return by_name(list(yaml.safe_load_all(_kustomize(overlay))))


@cache
def _kustomize(overlay: str) -> str:
    command = ["kubectl", "kustomize", str(DEPLOY / "overlays" / overlay)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def charted(values: dict[str, Any] | None = None, release: str = "halogen-operator") -> Manifests:
    """The chart's templates with its own values and these over them, which its schema has to allow."""
    whole = merged(yaml.safe_load((CHART / "values.yaml").read_text()), values or {})
    jsonschema.validate(whole, yaml.safe_load((CHART / "values.schema.json").read_text()))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    root = {
        "Values": whole,
        "Release": {"Name": release, "Namespace": "halogen-system"},
        "Chart": {"AppVersion": chart["appVersion"]},
    }
    texts = [render(path.read_text(), root) for path in sorted((CHART / "templates").glob("*.yaml"))]
    return by_name([each for text in texts for each in yaml.safe_load_all(text) if each])


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges values: mappings key by key, all else replaced."""
    whole = copy.deepcopy(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(whole.get(key), dict)
        whole[key] = merged(whole[key], value) if both else value
    return whole


def by_name(manifests: list[dict[str, Any]]) -> Manifests:
    named = {(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]): m for m in manifests}
    assert len(named) == len(manifests), "two manifests have one name"
    return named


def of_kind(manifests: Manifests, kind: str) -> list[dict[str, Any]]:
    return [manifest for (each, _, _), manifest in sorted(manifests.items()) if each == kind]
