"""The CustomResourceDefinition: what an API server would say to it, and that the repository's is this one."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cel_cost import DEFINITION_LIMIT, RULE_LIMIT, costs
from support.structural_schema import cardinality, schemas, unbounded, violations

from halogend.cli.main import main
from halogend.config.custom_resource import KUBERNETES_KEYS
from halogend.config.custom_resource_definition import FILE, definition, definition_text
from halogend.config.custom_resource_rules import LISTS, RULES
from halogend.config.fields import leaf_fields
from halogend.config.profiles import PROFILES, leaves
from halogend.config.schema import ModelConfig

ROOT = Path(__file__).parent.parent.parent
_LAST_APPLIED_LIMIT = 262_144


@pytest.fixture
def whole() -> dict[str, Any]:
    schema: dict[str, Any] = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_the_file_is_what_the_code_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (ROOT / FILE).read_text() == definition_text(), f"write it again: halogend crd > {FILE}"
    assert yaml.safe_load(definition_text()) == definition()
    assert main(["crd"]) == 0
    (tmp_path / "crd.yaml").write_text(capsys.readouterr().out)
    assert main(["crd", "--check", str(tmp_path / "crd.yaml")]) == 0
    (tmp_path / "crd.yaml").write_text(definition_text().replace("hm", "hx", 1))
    assert main(["crd", "--check", str(tmp_path / "crd.yaml")]) == 1
    assert "write it again" in capsys.readouterr().err
    assert main(["crd", "--check", str(tmp_path / "none.yaml")]) == 1


def test_it_fits_into_what_kubectl_apply_remembers() -> None:
    """O6: the annotation of a plain `kubectl apply` holds the whole object, and has a limit."""
    assert len(definition_text()) < _LAST_APPLIED_LIMIT / 2


def test_the_schema_is_structural(whole: dict[str, Any]) -> None:
    assert violations(whole) == []


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "object", "properties": {"a": {}}}, "a: has no type"),
        ({"type": "object", "additionalProperties": False}, "the root: forbids additionalProperties"),
        ({"type": "object", "properties": {"a": {"$ref": "#/b", "type": "string"}}}, "a: has ['$ref']"),
        ({"type": "number", "exclusiveMinimum": 0}, "the root: exclusiveMinimum is no boolean"),
        ({"type": "string", "anyOf": [{"type": "string"}]}, "the root: anyOf has ['type']"),
    ],
)
def test_what_is_not_structural_is_found(schema: dict[str, Any], fault: str) -> None:
    assert violations(schema) == [fault]


def test_every_list_map_and_text_has_a_maximum(whole: dict[str, Any]) -> None:
    """O8."""
    assert unbounded(whole) == []
    loose = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "maxLength": 3}}}}
    assert unbounded(loose) == ["a"]


def test_every_rule_is_cheap_enough(whole: dict[str, Any]) -> None:
    """O8: the API server refuses a definition whose rules might cost too much at their worst."""
    found = costs(whole)
    assert len(found) == sum(map(len, RULES.values()))
    assert max(found.values()) < RULE_LIMIT
    assert sum(found.values()) < DEFINITION_LIMIT


def test_a_rule_of_unbounded_lists_is_found_too_dear() -> None:
    inner = {"type": "array", "maxItems": 4096, "items": {"type": "string", "maxLength": 4096}}
    inner["x-kubernetes-validations"] = [{"rule": "self.all(a, self.exists_one(b, a == b))", "message": "x"}]
    whole = {"type": "object", "properties": {"a": {"type": "array", "maxItems": 64, "items": inner}}}
    assert cardinality(whole, "a[]") == 64
    assert min(costs(whole).values()) > RULE_LIMIT


def test_rules_and_lists_have_a_place(whole: dict[str, Any]) -> None:
    places = {path for path, _ in schemas(whole)}
    assert set(RULES) <= places
    assert set(LISTS) <= places


def test_a_profile_has_the_defaults_that_rules_take() -> None:
    """A rule that takes an absent value for its default must be right whatever `engine_version` says."""
    text = str(RULES)
    defaults = {field.path: field.default for field in leaf_fields(ModelConfig)}
    for version in PROFILES:
        for path, value in leaves(version):
            if f"has(self.{path.rpartition('.')[2]}) ?" in text and path in defaults:
                assert defaults[path] == value, path


def test_every_field_is_explained(whole: dict[str, Any]) -> None:
    silent = [path for path, each in schemas(whole) if path[-1:] not in {"", "]", "}"} and not each.get("description")]
    assert silent == ["metadata"]


def test_defaults_are_kubernetes_own(whole: dict[str, Any]) -> None:
    """What the daemon fills in is its own: a newer one's defaults count without an edit of every HalogenModel."""
    filled = {path for path, schema in schemas(whole) if "default" in schema}
    assert {path.split(".")[1] for path in filled} <= set(KUBERNETES_KEYS)
    spec = whole["properties"]["spec"]["properties"]
    assert spec["replicas"]["default"] == 1
    assert spec["service"]["default"] == {}
    assert spec["service"]["properties"]["port"]["default"] == 80
    assert spec["update"]["properties"]["maxUnavailable"]["default"] == 1


def test_names_columns_and_subresources() -> None:
    spec = definition()["spec"]
    version = spec["versions"][0]
    assert definition()["metadata"]["name"] == "halogenmodels.halogen.dev"
    assert spec["scope"] == "Namespaced"
    assert spec["names"]["shortNames"] == ["hm"]
    columns = [(each["name"], each.get("priority", 0)) for each in version["additionalPrinterColumns"]]
    assert [name for name, priority in columns if not priority] == [
        *("Ready", "Reason", "Active", "Desired", "Replicas", "Age")
    ]
    assert [name for name, priority in columns if priority] == ["Model", "Message"]
    scale = version["subresources"]["scale"]
    places = {f".{path}" for path, _ in schemas(version["schema"]["openAPIV3Schema"])}
    assert set(scale.values()) <= places
    assert "status" in version["subresources"]
