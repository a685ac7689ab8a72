"""The spec of a HalogenModel: how it is read, and the entry of a document that it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from halogend.config.access import KeyConfig
from halogend.config.custom_resource import (
    DOCUMENT_KEYS,
    KUBERNETES_KEYS,
    LEFT_OUT,
    HalogenModelSpec,
    model_entry,
    read_spec,
)
from halogend.config.custom_resource_parts import ApiKeySpec
from halogend.config.parse import parse
from halogend.config.rules import check
from halogend.config.schema import API_VERSION, ModelConfig

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples/kubernetes").glob("*.yaml"))


def spec_of(**fields: Any) -> dict[str, Any]:
    return {"model": "/models/chat.gguf", "auth": {"none": True}, **fields}


def parsed(raw: dict[str, Any]) -> Any:
    text = json.dumps({"apiVersion": API_VERSION, "models": [model_entry(raw, "chat")]})
    found = parse(text.encode(), "spec", {})
    assert check(found) == ()
    assert found.document is not None
    return found.document.models[0]


def test_the_least() -> None:
    spec, problems = read_spec(spec_of())
    assert problems == ()
    assert spec is not None
    assert spec.replicas == 1
    assert spec.auth.none is True
    assert spec.service.port == 80
    assert spec.update.max_unavailable == 1
    assert [each.id for each in spec.device] == ["auto"]


def test_every_field_is_the_documents_or_kubernetes() -> None:
    assert {*DOCUMENT_KEYS, *LEFT_OUT} == {*ModelConfig.model_fields}
    assert not {*DOCUMENT_KEYS} & {*KUBERNETES_KEYS}
    assert len(DOCUMENT_KEYS) + len(KUBERNETES_KEYS) + len(LEFT_OUT) == len(HalogenModelSpec.model_fields)


def test_places_are_those_of_the_spec() -> None:
    spec, problems = read_spec(
        spec_of(
            replicas=-1,
            volumes=[{"name": "m", "mountPath": "models", "image": {"reference": "r"}}, {"name": "n"}],
            resources={"limits": {"nvidia.com/gpu": "one"}},
            auth={"keys": [{"name": "a", "secretKeyRef": {"name": "keys"}}]},
        )
    )
    assert spec is None
    places = [problem.partition(": ")[0] for problem in problems]
    assert set(places) == {
        "spec.replicas",
        "spec.volumes[0].mountPath",
        "spec.volumes[1].mountPath",
        "spec.resources.limits.nvidia.com/gpu",
        "spec.auth.keys[0].secretKeyRef.key",
    }
    assert "spec.replicas: must be greater than or equal to 0" in problems


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"auth": {}}, "spec.auth: must have one of none: true and keys"),
        ({"weight": 2}, f"spec: has no `weight`: {LEFT_OUT['weight']}"),
        ({"volumes": [{"name": "a", "mountPath": "/a"}]}, "spec.volumes[0]: must have one of persistentVolumeClaim"),
        ({"update": {"maxUnavailable": "0%"}}, "spec.update.maxUnavailable: "),
        ({"update": {"maxUnavailable": True}}, "spec.update.maxUnavailable: "),
        ({"imagePullSecret": "x"}, "spec.imagePullSecret: "),
    ],
)
def test_contradictions_are_told(fields: dict[str, Any], told: str) -> None:
    spec, problems = read_spec(spec_of(**fields))
    assert spec is None
    assert any(problem.startswith(told) for problem in problems), problems


def test_volumes_are_told_apart() -> None:
    image = {"image": {"reference": "r"}}
    for first, second in ((("a", "/a"), ("a", "/b")), (("a", "/a"), ("b", "/a"))):
        volumes = [{"name": name, "mountPath": path, **image} for name, path in (first, second)]
        assert read_spec(spec_of(volumes=volumes))[1][0].startswith("spec.volumes: must give each volume a ")


def test_the_document_has_what_was_written_and_nothing_of_kubernetes() -> None:
    raw = spec_of(replicas=3, max_batch=8, watermarks={"soft": 0.5}, service={"port": 81}, max_batchs=3)
    assert model_entry(raw, "chat") == {
        "name": "chat",
        "model": "/models/chat.gguf",
        "max_batch": 8,
        "watermarks": {"soft": 0.5},
        "max_batchs": 3,
    }
    assert model_entry(spec_of(name="assistant"), "chat")["name"] == "assistant"


def test_a_switch_is_the_documents_word() -> None:
    off = parsed(spec_of(watermarks={"enabled": False, "soft": 0.95}, long_prompt={"enabled": False}))
    assert off.watermarks is None
    assert off.long_prompt is None
    on = parsed(spec_of(watermarks={"enabled": True, "soft": 0.5}, long_prompt={"threshold": 512}))
    assert on.watermarks.soft == 0.5
    assert on.long_prompt.threshold == 512


def test_what_takes_its_neutral_value_only_is_left_to_the_document() -> None:
    raw = spec_of(priority=0, tensor_parallel_size=1)
    assert read_spec(raw)[1] == ()
    assert parsed(raw).name == "chat"


def test_keys_have_the_limits_of_the_documents() -> None:
    own, document = ApiKeySpec.model_json_schema(), KeyConfig.model_json_schema()
    for name in ("rpm", "max_concurrent"):
        numbers = [schema["properties"][name]["anyOf"][0] for schema in (own, document)]
        assert numbers[0] == numbers[1], name
    weight = own["properties"]["weight"]["anyOf"][0]
    assert weight.items() <= document["properties"]["weight"].items()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_sound(path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        spec, problems = read_spec(body["spec"])
        assert problems == ()
        assert spec is not None
        assert parsed(body["spec"]).name == body["spec"].get("name", "chat")


def test_the_full_example_names_every_field() -> None:
    text = next(path for path in EXAMPLES if path.name == "full.yaml").read_text()
    assert [key for key in (*KUBERNETES_KEYS, *DOCUMENT_KEYS) if f"{key}:" not in text] == []
