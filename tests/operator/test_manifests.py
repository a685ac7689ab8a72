"""What an API server that has our definition says to whole manifests: pairs of files.

Valid: the manifest, and the spec as it is stored. Invalid: the manifest, and what is told, a line a fault.
`PYTHONPATH=tests python tests/operator/test_manifests.py` writes the second parts anew, for a change that is meant.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.config_documents import values_of
from support.custom_resources import SCHEMA, admitted, told_by_the_document
from support.kube import cel, structural

from halogend.config.custom_resource_rules import RULES
from halogend.config.fields import FieldDoc
from halogend.config.schema import fields

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests/cases/operator/manifests"
VALID = sorted((CASES / "valid").glob("*.yaml"))
INVALID = sorted((CASES / "invalid").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "examples/kubernetes").rglob("*.yaml"))


def halogen_models(path: Path) -> list[dict[str, Any]]:
    return [body for body in yaml.safe_load_all(path.read_text()) if body and body["kind"] == "HalogenModel"]


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    manifest, expected = yaml.safe_load_all(path.read_text())
    stored, faults = admitted(manifest)
    assert faults == []
    assert stored["spec"] == expected
    assert told_by_the_document(stored["spec"]) == []


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid(path: Path) -> None:
    """And the document's own code refuses it too: an API server with an older definition lets it pass."""
    manifest, expected = yaml.safe_load_all(path.read_text())
    assert admitted(manifest)[1] == expected
    assert told_by_the_document(manifest["spec"]) or path.stem.startswith("name-")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples(path: Path) -> None:
    for manifest in halogen_models(path):
        assert structural.prune(SCHEMA, manifest)[1] == []
        stored, faults = admitted(manifest)
        assert faults == []
        assert told_by_the_document(stored["spec"]) == []


def test_examples_do_not_overwrite_each_other() -> None:
    names = [each["metadata"]["name"] for path in EXAMPLES for each in halogen_models(path)]
    assert len(names) >= 5
    assert len(set(names)) == len(names)


def test_every_rule_has_a_case() -> None:
    told = "\n".join(text for path in INVALID for text in list(yaml.safe_load_all(path.read_text()))[1])
    assert [rule.message for rules in RULES.values() for rule in rules if rule.message not in told] == []


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_LENGTH = st.sampled_from([1, 2, 100, 4096, 4097])
_SHARE = st.sampled_from([0.25, 0.5, 0.75, 0.9, 0.95, 1])
_SPECS = _some(
    kv_cache_ratio=_SHARE,
    kv_cache_bytes=st.sampled_from([1 << 30, "2GiB"]),
    max_model_len=_LENGTH,
    max_prompt_len=_LENGTH,
    max_decode_len=_LENGTH,
    queue_timeout_ms=st.sampled_from([1, 1000, 60_000]),
    request_timeout_ms=st.sampled_from([0, 1, 1000, 60_000, 60_001]),
    max_batch=st.sampled_from([1, 2, 64]),
    long_prompt=_some(enabled=st.booleans(), max_concurrent=st.sampled_from([1, 2, 65])),
    device=st.lists(st.sampled_from(["auto", "cpu", "cuda:0", "cuda:1"]), min_size=1, max_size=3, unique=True),
    exec_mode=st.sampled_from(["single", "data_parallel"]),
    reload=_some(strategy=st.sampled_from(["auto", "overlap", "shrink", "rolling", "replace"])),
    probation=st.just({"s": 60}),
    watermarks=_some(enabled=st.booleans(), soft=_SHARE, hard=_SHARE),
    eviction=_some(
        policy=st.sampled_from(["lru", "priority_lru"]),
        sessions=st.lists(st.fixed_dictionaries({"class": st.sampled_from("ab")}), max_size=2),
    ),
    kv_block_pool=_some(min_tokens=_LENGTH, max_tokens=_LENGTH),
)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """cel-python raises the recursion limit with every environment it makes, which hypothesis takes ill."""
    for rules in RULES.values():
        for each in rules:
            cel.program(each.rule)


@given(_SPECS)
def test_the_definition_refuses_nothing_that_the_document_takes(fields: dict[str, Any]) -> None:
    """A rule in CEL that says more than the document's would keep people from what works."""
    spec = {"model": "/models/chat.gguf", "auth": {"none": True}, **fields}
    manifest = {"apiVersion": "halogen.dev/v1alpha1", "kind": "HalogenModel", "metadata": {"name": "m"}, "spec": spec}
    _, faults = admitted(manifest)
    assert not faults or told_by_the_document(spec), faults


def _schema_of(path: str) -> dict[str, Any]:
    """Of a model's field, `eviction.sessions[].class`, in the definition."""
    schema = SCHEMA["properties"]["spec"]
    for step in path.split("."):
        schema = schema["properties"][step.removesuffix("[]")]
        schema = schema["items"] if step.endswith("[]") else schema
    return schema


_OTHERWISE = frozenset({"weight", "device", "watermarks", "long_prompt", "probation"})
_FIELDS = [
    field for field in fields() if field.path.startswith("models[].") and field.path.split(".", 1)[1] not in _OTHERWISE
]


@given(st.sampled_from(_FIELDS), st.data())
def test_a_field_takes_what_the_document_takes(field: FieldDoc, data: st.DataObject) -> None:
    """But for what docs/config.md lists as spelt otherwise."""
    path = field.path.removeprefix("models[].")
    value = data.draw(values_of(field))
    if path == "aliases":
        value = list(dict.fromkeys(value))
    if path == "reload.drain_timeout_s" and isinstance(value, float):
        value = int(value)
    assert [cause.text for cause in structural.problems(_schema_of(path), value, path)] == []


if __name__ == "__main__":
    for each in (*VALID, *INVALID):
        text = each.read_text().partition("\n---\n")[0].rstrip()
        body, told = admitted(yaml.safe_load(text))
        result = told if each in INVALID else body["spec"]
        each.write_text(f"{text}\n---\n{yaml.safe_dump(result, sort_keys=False, width=116)}")
