"""A HalogenModel is read: what is wanted, or every problem with its place. Refusals are golden pairs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from halogen_operator.wanted import Ref, Refusal, Wanted, read
from hypothesis import given, settings
from hypothesis import strategies as st
from support.config_documents import read as read_document
from support.halogen_models import HOUSE, halogen_model, refused, wanted

from halogend.config.canonical import canonical, revision
from halogend.config.rules import check

CASES = sorted((Path(__file__).parent.parent / "cases/operator/refused").glob("*.yaml"))
DASHES = "-" * 10 + "\n"
GOLD = {"policy": "priority_lru", "sessions": [{"class": "gold", "priority": 5}]}
KEYS = {"keys": [{"name": "team-a", "secretKeyRef": {"name": "chat-keys", "key": "a"}, "rpm": 60, "classes": ["gold"]}]}


def model_of(found: Wanted) -> dict[str, Any]:
    (model,) = yaml.safe_load(found.document)["models"]
    assert isinstance(model, dict)
    return model


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_bad_spec_is_refused_with_every_place(case: Path) -> None:
    text, _, expected = case.read_text().partition(DASHES)
    spec = {"model": "/models/tiny.gguf", "auth": {"none": True}, **yaml.safe_load(text)}
    found = read(halogen_model(**spec), HOUSE)
    assert isinstance(found, Refusal)
    assert "".join(f"{problem}\n" for problem in found.problems) == expected


def test_there_are_cases() -> None:
    assert len(CASES) >= 12


def test_the_document_is_one_that_a_daemon_accepts_as_it_is() -> None:
    found = wanted(auth=KEYS, eviction=GOLD)
    parsed = read_document(found.document, env={})
    assert check(parsed) == ()
    assert parsed.document is not None
    assert canonical(parsed.document) == found.document
    assert revision(parsed.document) == found.revision


def test_what_is_handed_over_is_the_same_document_with_no_default_filled_in() -> None:
    """A daemon older than the operator refuses a field that it has not heard of, even one at its default."""
    found = wanted(max_batch=3, watermarks={"enabled": False}, warmup={"prompt": "a: \u2028 \x85 😀 'b'"})
    parsed = read_document(found.written, env={})
    assert parsed.document is not None
    assert canonical(parsed.document) == found.document
    (model,) = yaml.safe_load(found.written)["models"]
    assert model.keys() == {"name", "model", "max_batch", "watermarks", "warmup"}


def test_the_order_of_fields_in_a_spec_makes_no_other_text() -> None:
    spec = {"max_batch": 3, "model": "/m", "device": ["cpu:0"], "auth": {"none": True}}
    assert wanted(**spec).written == wanted(**dict(reversed(spec.items()))).written


def test_the_model_is_named_as_the_halogen_model_unless_it_says_otherwise() -> None:
    assert model_of(wanted("chat"))["name"] == "chat"
    assert model_of(wanted("chat", name="team/chat-8b"))["name"] == "team/chat-8b"


def test_open_access_is_for_inference_alone() -> None:
    server = yaml.safe_load(wanted().document)["server"]
    assert server["auth"]["infer"] == "none"
    assert [(each["name"], each["scopes"]) for each in server["auth"]["keys"]] == [("halogen-operator", ["admin"])]


def test_keys_are_files_of_their_secrets_and_the_operators_is_beside_them() -> None:
    server = yaml.safe_load(wanted(auth=KEYS, eviction=GOLD).document)["server"]
    operator, first = server["auth"]["keys"]
    assert first["file"] == "/etc/halogend-keys/chat-keys/a"
    assert (first["rpm"], first["classes"], first["scopes"]) == (60, ["gold"], ["infer"])
    assert operator["scopes"] == ["admin"]
    assert "infer" not in server["auth"]


def test_fields_of_kubernetes_are_not_in_the_document() -> None:
    bare = wanted()
    dressed = wanted(replicas=4, image="other", nodeSelector={"a": "b"}, service={"port": 81}, resources={})
    assert dressed.document == bare.document


def test_switched_off_sections_are_off() -> None:
    found = model_of(wanted(watermarks={"enabled": False}, long_prompt={"enabled": True, "threshold": 9000}))
    assert found["watermarks"] == "off"
    assert found["long_prompt"]["threshold"] == 9000


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (0, None)),
        ({"device": ["cpu:0"]}, (0, None)),
        ({"device": ["cuda:1"]}, (2, "nvidia")),
        ({"device": ["mi300x"]}, (1, "amd")),
        ({"device": ["cpu:0"], "resources": {"limits": {"nvidia.com/gpu": 1}}}, (0, None)),
        ({"resources": {"limits": {"amd.com/gpu": 2}}}, (2, "amd")),
    ],
    ids=str,
)
def test_how_many_accelerators_it_takes(spec: dict[str, Any], expected: tuple[int, str | None]) -> None:
    found = wanted(**spec)
    assert (found.devices, found.accelerator) == expected


@pytest.mark.parametrize("value", ["true", "True", "yes", "1", ""])
def test_whatever_plan_only_says_but_false_holds_back(value: str) -> None:
    body = halogen_model(plan_only=True)
    body["metadata"]["annotations"]["halogen.dev/plan-only"] = value
    found = read(body, HOUSE)
    assert isinstance(found, Wanted)
    assert found.is_plan_only


def test_plan_only_is_an_annotation_that_says_true() -> None:
    body = halogen_model(plan_only=True)
    found = read(body, HOUSE)
    assert isinstance(found, Wanted)
    assert found.is_plan_only
    body["metadata"]["annotations"]["halogen.dev/plan-only"] = "false"
    assert read(body, HOUSE) == wanted()
    assert not wanted().is_plan_only


def test_a_reading_carries_whose_and_which_edit_it_is() -> None:
    found = wanted(generation=7)
    assert (found.ref, found.generation) == (Ref("default", "chat", "uid-chat"), 7)


@pytest.mark.parametrize("name", ["9lives", "a.b", "A", "a_b", "a-", "x" * 64])
def test_a_name_that_a_service_cannot_have_is_refused(name: str) -> None:
    (problem,) = refused(name)
    assert problem.startswith("metadata.name: ")


def test_problems_are_bounded() -> None:
    keys = [{"name": f"k{n}", "secretKeyRef": {"name": "s", "key": "same"}} for n in range(40)]
    problems = refused(auth={"keys": keys})
    assert len(problems) == 21
    assert problems[-1] == "spec: 19 more problems are not shown"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    [
        "name",
        "model",
        "device",
        "watermarks",
        "long_prompt",
        "volumes",
        "auth",
        "resources",
        "eviction",
        "chat_template",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_FIELDS, _VALUES, max_size=4))
def test_whatever_is_written_is_read_or_refused_with_a_place(spec: dict[str, Any]) -> None:
    """The API server's schema lets most of it never come here; what does must not end a worker."""
    found = read(halogen_model(**spec), HOUSE)
    if isinstance(found, Refusal):
        assert found.problems
        assert all(each.startswith("spec") for each in found.problems)
