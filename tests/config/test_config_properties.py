"""What holds for every document."""

import random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.config_documents import HEAD, documents, json_schema_of, read, values_of

from halogend.config import schema
from halogend.config.canonical import canonical, revision, short_revision
from halogend.config.fields import Apply, changed_fields
from halogend.config.nodes import resolve
from halogend.config.rules import check
from halogend.config.schema import Document, apply_class, fields

VALID = (
    HEAD + "server: {port: 80, ready: all}\nmodels:\n  - {name: a, model: /a.gguf, sampling: {top_p: 1}}\n"
).encode()


class Quoting(yaml.SafeDumper):
    """In quotes what a document's language takes for more than text and YAML 1.1 does not: `0E0`."""


def _quoted(dumper: Quoting, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if resolve(text) == text else '"')


Quoting.add_representer(str, _quoted)


def dumped(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=Quoting, sort_keys=False, allow_unicode=True)


def parsed(text: str) -> Document:
    result = read(text)
    assert result.document is not None, "\n".join(map(str, result.problems))
    return result.document


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    return [shuffled(each, chance) for each in value] if isinstance(value, list) else value


@settings(max_examples=50)
@given(documents())
def test_the_canonical_form_parses_to_an_equal_document(plain: dict[str, Any]) -> None:
    document = parsed(dumped(plain))
    again = read(canonical(document), env={})
    assert again.document == document
    assert canonical(again.document) == canonical(document)


@settings(max_examples=40)
@given(documents(), st.randoms(use_true_random=False))
def test_key_order_and_comments_do_not_change_the_revision(plain: dict[str, Any], chance: random.Random) -> None:
    text = dumped(plain)
    other = "# a comment\n" + dumped(shuffled(plain, chance)) + "\n# another\n"
    assert revision(parsed(text)) == revision(parsed(other))
    assert len(revision(parsed(text))) == 64
    assert short_revision(revision(parsed(text))) == revision(parsed(text))[:12]


@settings(max_examples=25)
@given(documents())
def test_documents_that_differ_have_other_revisions(plain: dict[str, Any]) -> None:
    document = parsed(dumped(plain))
    changed = parsed(dumped({**plain, "allow_empty": not plain.get("allow_empty", False)}))
    assert revision(document) != revision(changed)


@given(st.binary(max_size=200))
def test_bytes_never_raise(data: bytes) -> None:
    result = read(data)
    assert check(result) or result.document is not None


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([*"[]{}:,-?&*!|>'\"%@` \n\t#~0a.", "a: ", "- ", "\\", "<<", "model", "true"]), max_size=30)
)
def test_yaml_like_text_never_raises(pieces: list[str]) -> None:
    result = read("".join(pieces))
    assert (result.document is None) == bool(result.problems)


@settings(max_examples=300)
@given(st.data())
def test_mutated_documents_never_raise(data: st.DataObject) -> None:
    text = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text) - 1))
        width = data.draw(st.integers(0, 4))
        text[place : place + width] = data.draw(
            st.binary(max_size=4) | st.sampled_from([b"\n", b": ", b"- ", b"[", b"{"])
        )
        if not text:
            text = bytearray(b" ")
    result = read(bytes(text))
    for problem in check(result):
        assert "\n" not in str(problem)
        assert problem.view()["code"] == str(problem.code)


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def one(path: str, value: Any) -> dict[str, Any]:
    """The least document with this leaf set."""
    model: dict[str, Any] = {"name": "chat", "model": "/m/a.gguf"}
    whole: dict[str, Any] = {"apiVersion": "halogen.dev/v1alpha1", "devices": [{"id": "cpu:0"}], "models": [model]}
    if path.startswith("server.") and path.count(".") > 1:  # inside a section that may be absent
        files = {"cert": "/c", "key": "/k"}
        auth = {"keys": [{"name": "a", "file": "/f"}]}
        whole["server"] = {"auth": auth, "tls": dict(files), "admin_tls": dict(files)}
    if path.startswith("models[].probation."):
        model["probation"] = {"s": 60}
    if path.startswith("models[].eviction.sessions[]."):
        model["eviction"] = {"policy": "priority_lru", "sessions": [{"class": "gold"}]}
    *around, key = path.split(".")
    section: Any = whole
    for step in around:
        section = section[step[:-2]][0] if step.endswith("[]") else section.setdefault(step, {})
    section[key] = value
    return whole


@settings(max_examples=300)
@given(st.sampled_from(list(fields())), ANY_VALUE)
def test_any_value_in_any_field_gives_problems_at_most(field: Any, value: Any) -> None:
    result = read(dumped(one(field.path, value)))
    for problem in check(result):
        assert problem.line is not None
        assert "\n" not in str(problem)


@settings(max_examples=50)
@given(documents())
def test_rules_never_raise(plain: dict[str, Any]) -> None:
    result = read(dumped(plain))
    assert all(problem.line is not None for problem in check(result))


SECTIONS = {"server.auth", "server.tls", "server.admin_tls", "models[].probation"}  # both a field and what is inside it
SWITCHES = {"models[].watermarks", "models[].long_prompt"}  # the same, and there where nothing is said
SINGLE_VALUED = {
    "apiVersion",
    "models[].engine_version",
}
SEVERAL = [field for field in fields() if field.path not in SINGLE_VALUED | SECTIONS | SWITCHES]


@pytest.mark.parametrize("field", SEVERAL, ids=lambda field: field.path)
@settings(max_examples=25)
@given(data=st.data())
def test_a_changed_field_is_seen_under_its_own_path_and_class(field: Any, data: st.DataObject) -> None:
    old, new = (parsed(dumped(one(field.path, data.draw(values_of(field))))) for _ in range(2))
    pairs = [
        ("", old, new),
        ("devices[].", old.devices[0], new.devices[0]),
        ("models[].", old.models[0], new.models[0]),
    ]
    if field.path.startswith("models[].eviction.sessions[]."):
        classes = (each.models[0].eviction.sessions[0] for each in (old, new))
        pairs.append(("models[].eviction.sessions[].", *classes))
    if field.path.startswith("server.auth.keys[]."):
        pairs.append(("server.auth.keys[].", *(each.server.auth.keys[0] for each in (old, new))))
    seen = {prefix + change.path: change for prefix, a, b in pairs for change in changed_fields(a, b)}
    is_inherited = field.path in {f"reload.{name}" for name in schema.ModelReloadConfig.model_fields}
    inherited = {field.path, f"models[].{field.path}"} if is_inherited else {field.path}
    assert set(seen) == (set() if canonical(old) == canonical(new) else inherited)
    for change in seen.values():
        assert change.apply is field.apply is apply_class(field.path.replace("[]", "[0]"))


@pytest.mark.parametrize("field", [each for each in fields() if each.path in SECTIONS], ids=lambda field: field.path)
@given(data=st.data())
@settings(max_examples=25)
def test_a_section_that_comes_or_goes_is_seen_as_one(field: Any, data: st.DataObject) -> None:
    without, with_it = (
        parsed(dumped(one("models[].weight", 1))),
        parsed(dumped(one(field.path, data.draw(values_of(field))))),
    )
    for old, new in ((without, with_it), (with_it, without)):
        pairs = (("server.", old.server, new.server), ("models[].", old.models[0], new.models[0]))
        seen = [(prefix + each.path, each.apply) for prefix, a, b in pairs for each in changed_fields(a, b)]
        assert seen == ([] if canonical(old) == canonical(new) else [(field.path, field.apply)])


@pytest.mark.parametrize("path", sorted(SWITCHES))
@given(data=st.data())
@settings(max_examples=25)
def test_a_section_that_is_there_by_itself_is_seen_as_one_when_it_is_switched(path: str, data: st.DataObject) -> None:
    field = next(field for field in fields() if field.path == path)
    off, plain, drawn = (
        parsed(dumped(one(path, value)))
        for value in ("off", {}, data.draw(values_of(field).filter(lambda v: v != "off")))
    )
    assert canonical(parsed(dumped(one("models[].weight", 1)))) == canonical(plain)
    for old, new in ((off, drawn), (drawn, off), (plain, off)):
        seen = [(f"models[].{each.path}", each.apply) for each in changed_fields(old.models[0], new.models[0])]
        assert seen == [(path, field.apply)]
    inside = [f"models[].{each.path}" for each in changed_fields(plain.models[0], drawn.models[0])]
    assert bool(inside) == (canonical(plain) != canonical(drawn))
    assert all(each.startswith(f"{path}.") for each in inside)


@pytest.mark.parametrize("path", sorted(SINGLE_VALUED))
def test_fields_left_out_above_have_one_value_only(path: str) -> None:
    field = next(field for field in fields() if field.path == path)
    drawn = json_schema_of(field)
    literals = [drawn["const"]] if "const" in drawn else [part["const"] for part in drawn["anyOf"] if "const" in part]
    assert len(literals) == 1


BOOLEANS = [field for field in fields() if json_schema_of(field).get("type") == "boolean" and not field.later]


@pytest.mark.parametrize("field", BOOLEANS, ids=lambda field: field.path)
def test_r6_true_false_and_absent_are_kept_apart(field: Any) -> None:
    spelled = {value: canonical(parsed(dumped(one(field.path, value)))) for value in (True, False)}
    whole = one(field.path, True)
    *around, key = field.path.split(".")
    section: Any = whole
    for step in around:
        section = section[step[:-2]][0] if step.endswith("[]") else section[step]
    del section[key]
    assert spelled[True] != spelled[False]
    assert canonical(parsed(dumped(whole))) == spelled[field.default]
    for other in (0, 1, "true", "yes", None):
        assert read(dumped(one(field.path, other))).document is None


def test_there_are_booleans_and_classes_of_each_kind() -> None:
    assert len(BOOLEANS) >= 4
    assert {field.apply for field in fields()} == set(Apply)
