"""Examples of what stands around a HalogenModel, and alerts: they name what there is."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from halogen_operator import names
from halogen_operator.metrics import METRICS as OPERATORS
from halogen_operator.render.manifest import selector_labels
from halogen_operator.wanted import Ref
from support.operator_manifests import ROOT

from halogend.obs.metric_table import METRICS

AROUND = sorted(path for path in (ROOT / "examples/kubernetes").glob("*/*.yaml"))
ALERTS = ROOT / "deploy/alerts/operator.yaml"
CHAT = Ref("models", "chat", "uid")


def objects(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def everything() -> list[dict[str, Any]]:
    return [each for path in AROUND for each in objects(path)]


def test_all_are_of_one_model_in_one_namespace() -> None:
    found = everything()
    assert len(found) >= 5
    assert {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found} == {("models", "chat")}


def test_what_scales_scales_a_halogen_model() -> None:
    targets = [each["spec"]["scaleTargetRef"] for each in everything() if "scaleTargetRef" in each["spec"]]
    assert len(targets) == 2
    for target in targets:
        assert target == {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": CHAT.name}


def test_the_autoscaler_looks_at_a_metric_that_pods_have() -> None:
    (scaler,) = [each for each in everything() if each["kind"] == "HorizontalPodAutoscaler"]
    (metric,) = scaler["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in {f"halogen_{row.name}" for row in METRICS}


def test_the_pool_finds_the_pods_and_their_port() -> None:
    (pool,) = [each for each in everything() if each["kind"] == "InferencePool"]
    assert pool["spec"]["selector"]["matchLabels"] == selector_labels(CHAT)
    assert pool["spec"]["targetPorts"] == [{"number": names.HTTP_PORT}]
    (route,) = [each for each in everything() if each["kind"] == "HTTPRoute"]
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"] == [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "chat"}]


@pytest.mark.parametrize("path", [ALERTS], ids=lambda path: path.name)
def test_alerts_name_metrics_and_labels_that_there_are(path: Path) -> None:
    rules = [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 6
    for rule in rules:
        expression = rule["expr"]
        used = set(re.findall(r"halogen_operator_\w+", expression))
        assert used <= set(OPERATORS), rule["alert"]
        labels = {label for name in used for label in OPERATORS[name][1]} | {"instance"}
        named = set(re.findall(r"(\w+)=\"", expression))
        named |= {each for inner in re.findall(r"by \((.*?)\)", expression) for each in re.split(r",\s*", inner)}
        named |= set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert named <= labels, rule["alert"]
        assert expression.count("(") == expression.count(")")
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
