"""`halogend check` and a reload tell what is wrong with a model's files as a problem, before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support import malformed_hf as hf
from support import malformed_quantised as quantised
from support.malformed import CASES, read_expected, write_folder
from support.malformed_files import Folder, as_json

from halogend.config.parse import parse
from halogend.config.rules import check
from halogend.control.facts import gather_facts

ROOT = Path(__file__).parents[1] / "cases/malformed"
EXPECTED = {name: read_expected(ROOT / name) for name in sorted(CASES)}
AT_OPEN = [name for name, expected in EXPECTED.items() if expected.stage == "open" and expected.code]
# Of a tokenizer's files these need no tokenizer to be seen.
SETTINGS = [
    "text-no-tokenizer",
    "text-tokenizer-dangling",
    "text-settings-no-json",
    "text-bos-number",
    "text-eos-text",
    "text-generation-eos-text",
    "text-template-number",
    "text-template-no-utf8",
    "text-added-decoder-id",
]


def problems(name: str) -> list[str]:
    """Each as it is printed for a document that names the model."""
    expected = EXPECTED[name]
    text = f"model: {ROOT / name / expected.target}\nload_format: {expected.load_format}\nport: 8000\n"
    parsed = parse(text.encode(), "config.yaml", {})
    assert parsed.document is not None
    return [str(problem) for problem in check(parsed, gather_facts(parsed.document))]


@pytest.mark.parametrize("name", [*AT_OPEN, *SETTINGS])
def test_the_one_problem_stands_at_the_model_with_the_refusal_and_a_hint(name: str):
    expected = EXPECTED[name]
    assert expected.message is not None
    [problem] = problems(name)
    message = expected.message.replace("{case}", str(ROOT / name))
    assert problem.startswith(f"config.yaml:1:8: {expected.code}: {message} (")
    assert problem.endswith(".)")


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.code is None])
def test_a_sound_model_gives_none(name: str):
    assert problems(name) == []


# --- without a folder of their own -----------------------------------------------------------------

FAR = 10**400
YARN = {"rope_type": "yarn", "factor": 2.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 4}


def refused(folder: Path) -> str:
    parsed = parse(f"model: {folder}\nport: 8000\n".encode(), "config.yaml", {})
    assert parsed.document is not None
    [problem] = check(parsed, gather_facts(parsed.document))
    return str(problem)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rope_parameters": YARN | {"original_max_position_embeddings": FAR}}, "original_max_position_embeddings"),
        ({"rope_scaling": YARN, "max_position_embeddings": FAR}, "max_position_embeddings"),
        ({"rope_scaling": YARN | {"factor": FAR}}, "rope_scaling.factor"),
        ({"rope_scaling": {"rope_type": "yarn"}, "max_position_embeddings": FAR}, "max_position_embeddings"),
        ({"rope_scaling": LONG | {"original_max_position_embeddings": FAR}}, "original_max_position_embeddings"),
        ({"rope_scaling": LONG, "max_position_embeddings": FAR}, "max_position_embeddings"),
        ({"rope_scaling": {"rope_type": "yarn"}, "max_position_embeddings": -8}, "max_position_embeddings"),
        ({"rope_scaling": {"rope_type": "linear", "factor": FAR}}, "rope_scaling.factor"),
        ({"rope_theta": FAR}, "rope_theta"),
        ({"rms_norm_eps": FAR}, "rms_norm_eps"),
        ({"hidden_size": FAR}, "hidden_size"),
        ({"vocab_size": FAR}, "vocab_size"),
        ({"eos_token_id": FAR}, "eos_token_id"),
    ],
)
def test_a_number_beyond_all_bounds_is_refused_by_its_key(tmp_path: Path, changes: dict[str, Any], says: str):
    told = refused(write_folder(hf.with_config(**changes), tmp_path / "m"))
    assert "HCK-1004: " in told
    assert "/config.json: key '" in told
    assert f"{says}' is " in told
    assert len(told) < 500


@pytest.mark.parametrize(
    "folder",
    [
        hf.with_config(rope_scaling={"rope_type": "x" * 100_000}),
        quantised.gptq(group_size=8 * FAR),
        quantised.gptq(bits=FAR),
        hf.with_config(architectures=["x" * 100_000]),
    ],
    ids=["rope", "group", "bits", "architecture"],
)
def test_a_value_beyond_all_bounds_is_not_told_whole(tmp_path: Path, folder: Folder):
    assert len(refused(write_folder(folder, tmp_path / "m"))) < 900


def test_a_vocabulary_that_is_a_pipe(tmp_path: Path):
    folder = write_folder(hf.without(hf.sharded(), "tokenizer.json"), tmp_path / "m")
    os.mkfifo(folder / "tokenizer.json")
    assert f"HCK-1010: {folder}/tokenizer.json: is not a regular file; a file is wanted here" in refused(folder)


def test_a_template_that_is_no_unicode(tmp_path: Path):
    settings = {"tokenizer_config.json": b'{"chat_template": "a\\ud800"}'}
    folder = write_folder(hf.sharded() | settings, tmp_path / "m")
    assert f"{folder}/tokenizer_config.json: key 'chat_template' is no valid Unicode" in refused(folder)


def test_a_link_to_nothing_beside_the_vocabulary(tmp_path: Path):
    """It is not read, for the newer file says all; but a change of it would have to be seen."""
    settings = {"tokenizer_config.json": as_json(hf.TOKENIZER_CONFIG | {"added_tokens_decoder": {}})}
    folder = write_folder(hf.sharded() | settings, tmp_path / "m")
    (folder / "special_tokens_map.json").symlink_to("../../blobs/0")
    assert f"{folder}/special_tokens_map.json: is a dangling symlink to ../../blobs/0: the" in refused(folder)
