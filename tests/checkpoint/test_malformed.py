"""What cannot be used is refused by name: a folder a case in tests/cases/malformed, made by support.malformed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from support.malformed import CASES, EXPECTED, Expected, read_expected, write_case

from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.checkpoint.errors import ALL_CODES, TOKENIZER_INVALID, CheckpointError
from halogend.text.loading import read_text
from halogend.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[1] / "cases/malformed"
NAMES = sorted(CASES)
SOUND = [name for name in NAMES if name.startswith("sound-")]
BROKEN = [name for name in NAMES if name not in SOUND]
MOST_BYTES = 1_500_000


def opened(folder: Path, expected: Expected) -> Checkpoint:
    return open_checkpoint(folder / expected.target, expected.load_format)


def tokenizer(folder: Path, expected: Expected) -> Tokenizer:
    """As a text process reads it."""
    return read_text(str(folder / expected.target), expected.load_format, lambda: None)[0]


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file by its path, a symlink's target in place of its bytes."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("name", BROKEN)
def test_each_is_refused_with_its_message(name: str):
    folder = ROOT / name
    expected = read_expected(folder)
    if expected.stage == "text":
        opened(folder, expected)  # nothing is wrong but what only a text process reads
    with pytest.raises(CheckpointError) as caught:
        (opened if expected.stage == "open" else tokenizer)(folder, expected)
    assert caught.value.code == expected.code
    assert caught.value.message.replace(str(folder), "{case}") == expected.message


@pytest.mark.parametrize("name", SOUND)
def test_what_they_are_edits_of_opens(name: str):
    folder = ROOT / name
    expected = read_expected(folder)
    assert expected.code is None
    assert opened(folder, expected).geometry.layers == 2
    assert tokenizer(folder, expected).encode("Xab", add_special=False, parse_special=False)[-1] == 19


@pytest.mark.parametrize("name", NAMES)
def test_each_is_what_the_generator_writes(name: str, tmp_path: Path):
    written = contents(write_case(name, tmp_path))
    kept = contents(ROOT / name)
    assert kept.pop(EXPECTED)
    assert kept == written


def test_no_folder_without_a_case_and_none_that_is_large():
    assert sorted(path.name for path in ROOT.iterdir()) == NAMES
    assert sum(path.lstat().st_size for path in ROOT.rglob("*") if not path.is_dir()) < MOST_BYTES


def test_each_has_a_message_of_its_own():
    found = Counter((each.code, each.message) for each in (read_expected(ROOT / name) for name in BROKEN))
    assert [message for message, count in found.items() if count > 1] == []
    assert len(found) >= 40


@pytest.mark.parametrize("name", BROKEN)
def test_each_message_is_one_line_that_begins_with_what_is_wrong(name: str):
    expected = read_expected(ROOT / name)
    assert expected.code in ALL_CODES
    assert expected.message is not None
    assert re.match(r"\{case\}(/[\w./-]+)?: \S", expected.message)
    assert not re.search(r"\n|\bNone\b|Errno|Error\b|<class", expected.message)


def test_a_panic_of_the_tokenizers_package_is_a_refusal(tmp_path: Path):
    """It is no Exception, and would end the process."""
    folder = write_case("sound-hf-llama", tmp_path)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_bytes())
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    content["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        tokenizer(folder, read_expected(ROOT / "sound-hf-llama"))
    assert caught.value.code == TOKENIZER_INVALID
    assert caught.value.message.startswith(f"{path}: ")
