"""What a geometry in a v2 file may be: each family's as it is, and nothing that no model can have (V2-15 to V2-17)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.tiny_families import VARIANTS
from support.v2_files import copy_v2, edited, rich_geometry, write_v2

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.tokenizer_files import _SETTINGS, VOCABULARIES
from halogend.checkpoint.v2.reader import open_v2
from halogend.checkpoint.v2.weights import TEXT_NAMES

Model = dict[str, Any]


def rope(**changes: object) -> Callable[[Model], None]:
    return lambda model: model["ropes"][0].update(changes)


def experts(**changes: object) -> Callable[[Model], None]:
    return lambda model: model["experts"].update(changes)


def model(**changes: object) -> Callable[[Model], None]:
    return lambda document: document.update(changes)


def cut(key: str) -> Callable[[Model], None]:
    return lambda document: document[key].pop()


FAULTS: dict[str, tuple[Callable[[Model], None], str]] = {
    "no layers": (model(layers=0), "'model.layers' is 0"),
    "layers without end": (model(layers=1 << 40), "'model.layers' is 1099511627776"),
    "a size below zero": (model(ffn=-1), "'model.ffn' is -1"),
    "no epsilon": (model(rms_eps=0.0), "'model.rms_eps' is 0.0"),
    "a cap below zero": (model(attention_softcap=-1.0), "'model.attention_softcap' is -1.0"),
    "heads that share unevenly": (model(kv_heads=5), "no divisor of 12 heads"),
    "odd heads": (model(head_dim=31), "'model.head_dim' is 31"),
    "a layer without a window": (cut("windows"), "'model.windows' has 1 entries for 2 layers"),
    "a window of nothing": (model(windows=[0, None]), "'model.windows' has one that is not"),
    "no rope": (model(ropes=[]), "'model.ropes' has 0 entries"),
    "a rope that is not there": (model(rope_of=[0, 2]), "'model.rope_of' names a rope beyond the 2"),
    "more pairs than a head has": (rope(frequencies=[1.0] * 17), r"'model.ropes\[0\]' turns 17 pairs"),
    "an angle without end": (rope(frequencies=[1e300]), "a frequency that is no angle"),
    "a magnitude of nothing": (rope(magnitude=0.0), "has the magnitude 0.0"),
    "divisors of another name": (rope(divisors="token_embd"), "names the divisors 'token_embd'"),
    "a context without a beyond": (rope(beyond=None), "which belong together"),
    "a context of nothing": (rope(original_context=0), "a context that is not"),
    "more experts used than there are": (experts(used=4), "uses 4 of 3"),
    "experts without end": (experts(count=1 << 30), "up to 1024 are possible"),
    "experts of no width": (experts(ffn=0), "has the width 0"),
    "a layer that nobody speaks of": (experts(layers=[True]), "has 1 entries for 2 layers"),
    "a key less": (lambda document: document.pop("vocab"), r"missing required field `vocab`.*\(V2-15\)"),
    "a key more": (model(moons=2), r"no geometry has.*\(V2-15\)"),
    "a key more of a rope": (rope(moons=2), r"no geometry has.*\(V2-15\)"),
    "a number that is a text": (model(hidden="96"), r"Expected `int`, got `str`.*\(V2-15\)"),
    "a truth that is a number": (model(qk_norm=1), r"Expected `bool`, got `int`.*\(V2-15\)"),
    "an activation of another name": (model(activation="relu"), r"Invalid enum value 'relu'.*\(V2-15\)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_no_model_has_is_refused_by_its_key(fault: str, tmp_path: Path):
    edit, words = FAULTS[fault]
    path = copy_v2(tmp_path / "m.hgn2", rich_geometry())
    edited(path, metadata=lambda document: edit(document["model"]))
    with pytest.raises(CheckpointError, match=words) as caught:
        open_v2(path)
    assert caught.value.message.endswith(("(V2-15)", "(V2-17)"))


def test_a_key_with_a_default_may_be_left_out(tmp_path: Path):
    """So a file stays readable when a later release knows of more keys."""
    path = copy_v2(tmp_path / "m.hgn2")
    before = open_v2(path).metadata.model
    for key in ("attention_softcap", "experts", "post_norms"):
        edited(path, metadata=lambda document, key=key: document["model"].pop(key))
    edited(path, metadata=lambda document: document["model"]["ropes"][0].pop("made_for"))
    assert open_v2(path).metadata.model == before


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_each_familys_geometry_comes_back_as_it_was(name: str, tmp_path: Path):
    from support import tiny_hf

    tiny_hf.quiet()
    tiny_hf.make(name, tmp_path / "hf")
    geometry = open_checkpoint(tmp_path / "hf").geometry
    assert open_checkpoint(write_v2(tmp_path / "m.hgn2", model=geometry)).geometry == geometry


def test_every_file_that_decides_about_text_has_a_name_inside():
    known = {f"text/{name}" for name in (*VOCABULARIES, *_SETTINGS, "config.json")}
    assert TEXT_NAMES["files"] == known
