"""Profiles of defaults: what they hold and what a change of one is. What they make is in cases/config."""

import typing

import pytest
from support.config_documents import HEAD, read

from halogend.config.canonical import canonical, revision
from halogend.config.fields import Apply, changed_fields
from halogend.config.profiles import PROFILES, leaves
from halogend.config.schema import EngineVersion, apply_class

MODEL = HEAD + "models:\n  - name: chat\n    model: /m/a.gguf\n"
PINNED = MODEL + "    engine_version: 0.15.2\n"


def document(text):
    result = read(text)
    assert result.document is not None, result.problems
    return result.document


def test_every_version_the_schema_names_has_a_profile():
    assert set(PROFILES) == set(typing.get_args(EngineVersion))


@pytest.mark.parametrize("version", PROFILES)
def test_a_profile_sets_only_fields_of_a_model(version):
    for path, _ in leaves(version):
        assert apply_class(f"models[0].{path}")


def test_a_change_of_the_version_is_the_changes_of_its_fields():
    changes = {each.path: each for each in changed_fields(document(MODEL).models[0], document(PINNED).models[0])}
    assert changes["engine_version"].apply is Apply.LIVE
    assert (changes["sampling.top_k"].old, changes["sampling.top_k"].new) == (None, 0)
    assert changes.keys() - {"engine_version"} <= {path for path, _ in leaves("0.15.2")}


def test_the_canonical_form_does_not_lean_on_the_profile():
    """Without its engine_version it still says the same engine."""
    whole = canonical(document(PINNED))
    without = whole.replace('  engine_version: "0.15.2"\n', "")
    assert without != whole
    changes = changed_fields(document(without).models[0], document(whole).models[0])
    assert [each.path for each in changes] == ["engine_version"]
    assert revision(document(without)) != revision(document(whole))


def test_adding_a_second_model_ends_the_pinned_share():
    two = PINNED + "  - name: other\n    model: /m/b.gguf\n"
    changes = changed_fields(document(PINNED).models[0], document(two).models[0])
    assert [(each.path, each.old, each.new) for each in changes] == [("kv_cache_ratio", 0.75, None)]
