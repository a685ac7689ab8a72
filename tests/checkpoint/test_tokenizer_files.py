"""What a Hugging Face directory says about text, file by file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.malformed_files import LFS_POINTER

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.json_object import MAX_VOCABULARY_BYTES
from halogend.checkpoint.tokenizer_files import VOCABULARIES, own_template, read_text_files, text_files

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A directory with an (unread) tokenizer.json and the given files; a value that is no text is
    written as JSON."""

    def make(**files: Any) -> Path:
        for name, content in {"tokenizer.json": {}, "config.json": {}, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return make


def refusal(call: Callable[[Path], object], directory: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        call(directory)
    return caught.value


# --- chat template --------------------------------------------------------------------------------

LISTED = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"chat_template": "C"}}, "C"),
        ({"tokenizer_config.json": {"chat_template": LISTED}}, "D"),
        ({"tokenizer_config.json": {"chat_template": LISTED[:1]}}, None),
        ({"tokenizer_config.json": {"chat_template": "C"}, "chat_template.jinja": "J"}, "J"),
        ({"chat_template.jinja": "é"}, "é"),
        ({"chat_templates/default.jinja": "F"}, "F"),
        ({"tokenizer_config.json": {"chat_template": LISTED[:1]}, "chat_templates/default.jinja": "F"}, "F"),
        ({"tokenizer_config.json": {"chat_template": "C"}, "chat_templates/default.jinja": "F"}, "C"),
    ],
)
def test_one_template_is_the_models_own(make: Make, files: dict[str, Any], wanted: str | None):
    directory = make(**files)
    assert own_template(directory) == wanted
    assert read_text_files(directory).template == wanted


@pytest.mark.parametrize("value", [7, {"a": 1}, True, [{"name": "default", "template": 3}]])
def test_a_template_that_is_no_text_is_refused(make: Make, value: object):
    error = refusal(own_template, make(**{"tokenizer_config.json": {"chat_template": value}}))
    assert error.code == errors.TOKENIZER_INVALID
    assert "tokenizer_config.json: key 'chat_template' is" in error.message


def test_a_template_file_is_utf8_and_of_reasonable_size(make: Make):
    directory = make(**{"chat_template.jinja": "x"})
    (directory / "chat_template.jinja").write_bytes(b"\xff")
    assert "chat_template.jinja: is not UTF-8" in refusal(own_template, directory).message
    (directory / "chat_template.jinja").write_bytes(b" " * ((1 << 20) + 1))
    assert "chat_template.jinja: is larger than 1 MiB" in refusal(own_template, directory).message


# --- tokens ---------------------------------------------------------------------------------------


def test_end_tokens_come_from_all_the_files_that_name_them(make: Make):
    directory = make(
        **{
            "generation_config.json": {"eos_token_id": [5, 7]},
            "config.json": {"eos_token_id": 9, "text_config": {"eos_token_id": 11, "vocab_size": 30}},
        }
    )
    files = read_text_files(directory)
    assert files.end_ids == {5, 7, 9, 11}
    assert files.embedding_rows == 30


@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("value", ["</s>", [1, "2"], -1, True, 2.5, {"id": 1}])
def test_end_tokens_of_a_wrong_kind_are_refused(make: Make, name: str, value: object):
    error = refusal(read_text_files, make(**{name: {"eos_token_id": value}}))
    assert error.code == errors.KEY_INVALID
    assert f"{name}: key 'eos_token_id' is" in error.message
    assert error.message.endswith("a token id, or a list of them, is wanted")


def test_special_tokens_are_texts_or_objects(make: Make):
    config = {
        "bos_token": "<s>",
        "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": False, "rstrip": True, "special": False},
        "pad_token": None,
        "add_bos_token": None,
        "extra_special_tokens": ["<x>", {"content": "<y>", "normalized": False}],
        "added_tokens_decoder": {"3": {"content": "</s>", "special": True, "rstrip": True}},
    }
    files = read_text_files(make(**{"tokenizer_config.json": config}))
    assert {name: token.content for name, token in files.special.items()} == {"bos_token": "<s>", "eos_token": "</s>"}
    assert files.special["eos_token"].flags == {"lstrip": False, "rstrip": True, "special": True}
    assert [token.content for token in files.extra] == ["<x>", "<y>"]
    assert files.added[3].flags == {"special": True, "rstrip": True}
    assert (files.add_bos, files.add_eos) == (False, None)


def test_older_directories_name_their_tokens_in_files_of_their_own(make: Make):
    files = read_text_files(
        make(
            **{
                "tokenizer_config.json": {"bos_token": "<a>"},
                "special_tokens_map.json": {"bos_token": "<s>", "additional_special_tokens": ["<x>"]},
                "added_tokens.json": {"<x>": 12, "word": 13},
            }
        )
    )
    assert files.special["bos_token"].content == "<s>"
    assert {index: (token.content, token.flags["special"]) for index, token in files.added.items()} == {
        12: ("<x>", True),
        13: ("word", False),
    }


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"bos_token": 3}, "bos_token"),
        ({"eos_token": {"text": "x"}}, "eos_token"),
        ({"add_bos_token": "yes"}, "add_bos_token"),
        ({"added_tokens_decoder": []}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"x": {"content": "a"}}}, "added_tokens_decoder.x"),
        ({"added_tokens_decoder": {"1": "a"}}, "added_tokens_decoder.1"),
        ({"added_tokens_decoder": {"1": {"content": "a", "rstrip": 1}}}, "added_tokens_decoder.1.rstrip"),
        ({"additional_special_tokens": "x"}, "additional_special_tokens"),
        ({"extra_special_tokens": [4]}, "extra_special_tokens"),
    ],
)
def test_settings_of_a_wrong_kind_are_refused(make: Make, config: dict[str, Any], key: str):
    error = refusal(read_text_files, make(**{"tokenizer_config.json": config}))
    assert error.code == errors.TOKENIZER_INVALID
    assert f"tokenizer_config.json: key '{key}' is" in error.message


def test_added_tokens_without_an_id_are_refused(make: Make):
    error = refusal(read_text_files, make(**{"added_tokens.json": {"<x>": "1"}}))
    assert "added_tokens.json: key '<x>' is '1'; a token id is wanted" in error.message


# --- files ----------------------------------------------------------------------------------------


def test_the_files_that_decide_about_text(make: Make):
    directory = make(**{"tokenizer_config.json": {}, "generation_config.json": {}, "chat_template.jinja": "x"})
    assert {path.name for path in text_files(directory)} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
    }


def test_the_vocabularies_have_an_order(make: Make):
    directory = make(**{"tekken.json": {}, "tokenizer.model": "x"})
    for name in ("tokenizer.json", "tekken.json", "tokenizer.model"):
        assert read_text_files(directory).vocabulary.name == name
        (directory / name).unlink()
    error = refusal(read_text_files, directory)
    assert error.code == errors.TOKENIZER_INVALID
    assert error.message == (
        f"{directory}: has no tokenizer; one of tokenizer.json, tekken.json, tokenizer.model is wanted"
    )


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"])
def test_a_dangling_symlink_is_no_missing_file(make: Make, name: str):
    directory = make()
    (directory / name).symlink_to("../../blobs/abc")
    error = refusal(read_text_files, directory)
    assert error.code == errors.FILE_UNREADABLE
    assert error.message == (
        f"{directory / name}: is a dangling symlink to ../../blobs/abc: the download is incomplete"
    )
    assert directory / name in text_files(directory)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("content", ["{", "[1]", '{"a": 1, "a": 2}', "[" * 100_000])
def test_settings_that_are_no_json_object_are_refused(make: Make, name: str, content: str):
    error = refusal(read_text_files, make(**{name: content}))
    assert name in error.message


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_VOCABULARY_BYTES + 1)


VOCABULARY_FAULTS: dict[str, Callable[[Path], object]] = {
    "is not a regular file; a file is wanted here": _fifo,
    "is a directory; a file is wanted here": Path.mkdir,
    "is empty": Path.touch,
    "is larger than 64 MiB": _too_large,
    "is a dangling symlink to x: the download is incomplete": lambda path: path.symlink_to("x"),
    "is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`": lambda path: path.write_bytes(
        LFS_POINTER
    ),
}


@pytest.mark.parametrize("says", VOCABULARY_FAULTS)
@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_vocabulary_that_cannot_be_read_is_seen_without_reading_it(make: Make, name: str, says: str):
    directory = make()
    (directory / "tokenizer.json").unlink()
    VOCABULARY_FAULTS[says](directory / name)
    assert refusal(read_text_files, directory).message.endswith(f"{name}: {says}")


@pytest.mark.parametrize("digits", ["1" * 5000, "2147483648", "\u0661"])
def test_an_id_of_too_many_digits_is_none(make: Make, digits: str):
    error = refusal(
        read_text_files,
        make(**{"tokenizer_config.json": {"added_tokens_decoder": {digits: {"content": "a"}}}}),
    )
    assert error.code == errors.TOKENIZER_INVALID
    assert error.message.endswith("is no token id")
    assert len(error.message) < 300
