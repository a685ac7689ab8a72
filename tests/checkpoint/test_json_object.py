"""JSON is read strictly, and what is large or hostile costs no more than what is not."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from support import malformed_hf as hf
from support.malformed import write_folder
from support.malformed_files import as_json

from halogend.checkpoint import checkpoint, errors
from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError, shown
from halogend.checkpoint.json_object import MAX_SETTINGS_BYTES, parse_json_object
from halogend.checkpoint.safetensors import Shards
from halogend.checkpoint.text_sources import Directory, read_object
from halogend.checkpoint.tokenizer_files import read_text_files


def refusal(data: bytes) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        parse_json_object(data, "file:", errors.INDEX_INVALID)
    assert caught.value.code == errors.INDEX_INVALID
    return caught.value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "file: is empty"),
        (b" \n\t", "file: is empty"),
        (b"[{}]", "file: holds no JSON object"),
        (b"null", "file: holds no JSON object"),
        (b'{"a": 1,\n "b": two}', "file: is no valid JSON: Expecting value (line 2, column 7)"),
        (b'{"a": NaN}', "file: is no valid JSON: NaN is no JSON number"),
        (b'{"a": -Infinity}', "file: is no valid JSON: -Infinity is no JSON number"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "file: holds the key 'b' twice"),
        (b'{"a": "\xff"}', "file: is not UTF-8 (at byte 7)"),
        ('{"a": 1}'.encode("utf-16"), "file: is not UTF-8 (at byte 0)"),
        (b'{"a": ' + b"1" * 5000 + b"}", "file: is no valid JSON: Exceeds the limit"),
        (b'{"a":' + b"[" * 100_000, "file: is no valid JSON: maximum recursion depth exceeded"),
    ],
)
def test_what_is_no_object_is_refused_with_the_place(data: bytes, says: str) -> None:
    assert refusal(data).message.startswith(says)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (rb'{"a": "x\ud800"}', "'a'"),
        (rb'{"a": "\udc00\ud800"}', "'a'"),
        (rb'{"a": {"b": ["x", {"c": "\uDFFF"}]}}', "'a.b[1].c'"),
        (rb'{"a": [[["\ud83d\\ude00"]]]}', "'a[0][0][0]'"),
        (rb'{"a": {"\ud800": 1}}', r"'a.\ud800'"),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_by_key(data: bytes, key: str) -> None:
    wanted = f"file: key {key} is no valid Unicode: it holds half of a surrogate pair"
    assert refusal(data).message == wanted


def test_places_of_texts_take_no_more_memory_than_the_document() -> None:
    """Many small parts, and long keys within each other, of which each would be in the place of the next."""
    long = "k" * 20_000
    data = '{"a": [' + "[[]], " * 50_000 + r'"\ud83d\ude00"], "b": ' + f'{{"{long}": ' * 200 + r'"\ud800"' + "}" * 201
    tracemalloc.start()
    try:
        message = refusal(data.encode()).message
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "half of a surrogate pair" in message
    assert len(message) < 200
    assert peak < 8 * len(data)


@pytest.mark.parametrize("text", [r"\ud83d\ude00", r"\\ud800", r"\uD83D\uDE00\ud83d\ude00"])
def test_a_whole_pair_and_a_backslash_are_texts(text: str) -> None:
    assert parse_json_object(f'{{"a": "{text}"}}'.encode(), "file:") == {"a": json.loads(f'"{text}"')}


def test_an_object_is_what_json_says() -> None:
    value = {"a": [1, 2.5, None, True], "é": {"a": "b"}}
    assert parse_json_object(json.dumps(value).encode(), "file:") == value
    assert parse_json_object(b" \n" + json.dumps(value, ensure_ascii=False).encode() + b"\n", "file:") == value


def test_a_key_that_is_there_twice_is_found_in_one_pass() -> None:
    """Among as many keys as fit in the largest config.json, of which a search for each would take hours."""
    keys = [f'"{number:x}":0' for number in range(300_000)]
    data = ("{" + ",".join([*keys, keys[-1]]) + "}").encode()
    assert len(data) < MAX_SETTINGS_BYTES
    start = time.process_time()
    assert refusal(data).message == "file: holds the key '493df' twice"
    assert time.process_time() - start < 5


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer_config.json", "added_tokens.json"]
)
def test_settings_beyond_four_mib_are_not_read(name: str, tmp_path: Path) -> None:
    folder = write_folder(hf.without(hf.sharded(), "tokenizer_config.json") | {name: as_json(hf.CONFIG)}, tmp_path)
    path = folder / name
    path.write_bytes(path.read_bytes().ljust(MAX_SETTINGS_BYTES))
    if name != "added_tokens.json":
        read_text_files(folder)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(CheckpointError) as caught:
        read_text_files(folder)
    assert caught.value.message == f"{path}: is larger than 4 MiB"


def test_a_vocabulary_may_be_larger(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"{}".ljust(MAX_SETTINGS_BYTES + 1))
    assert read_object(Directory(tmp_path), path.name, 64 << 20) == {}
    with pytest.raises(CheckpointError, match="is larger than 4 MiB"):
        read_object(Directory(tmp_path), path.name)


# --- the digest -----------------------------------------------------------------------------------


def test_the_digest_is_of_the_bytes_that_were_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody replaces config.json while the headers are read."""
    folder = write_folder(hf.sharded(), tmp_path)
    before = open_checkpoint(folder)
    read = checkpoint.read_shards

    def replaced_meanwhile(path: Path) -> Shards:
        (path / "config.json").write_bytes(as_json(hf.CONFIG | {"rms_norm_eps": 1e-6}))
        return read(path)

    monkeypatch.setattr(checkpoint, "read_shards", replaced_meanwhile)
    during = open_checkpoint(folder)
    monkeypatch.undo()
    after = open_checkpoint(folder)
    assert (during.digest, during.geometry) == (before.digest, before.geometry)
    assert after.digest != before.digest
    assert after.geometry.rms_eps == 1e-6


# --- messages -------------------------------------------------------------------------------------


class _Counted:
    """Counts how often it is written."""

    written = 0

    def __repr__(self) -> str:
        type(self).written += 1
        return "x" * 100


def test_a_large_value_is_quoted_without_writing_all_of_it() -> None:
    assert len(shown([_Counted() for _ in range(10_000)])) <= 60
    assert _Counted.written < 20


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("LlamaForSequenceClassification", "'LlamaForSequenceClassification'"),
        ("two\nlines", r"'two\nlines'"),
        (math.pi, "3.141592653589793"),
        ([1, "a", None], "[1, 'a', None]"),
        ({"factor": 2.0}, "{'factor': 2.0}"),
        (True, "True"),
    ],
)
def test_a_small_value_is_quoted_whole(value: object, quoted: str) -> None:
    assert shown(value) == quoted


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["Llama" * 100_000]},
        {"architectures": ["Llama"] * 100_000},
        {"hidden_act": "relu" * 100_000},
        {"hidden_size": "8" * 100_000},
        {"hidden_size": {str(number): number for number in range(100_000)}},
        {"rope_scaling": [[1] * 1000] * 100},
        {"quantization_config": {"quant_method": "awq" * 100_000}},
    ],
    ids=["architecture", "architectures", "activation", "text", "object", "list", "section"],
)
def test_a_refusal_is_a_line_however_large_the_value(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folder(hf.with_config(**changes), tmp_path)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert next(iter(changes)).removesuffix("s") in caught.value.message
    assert len(caught.value.message) < 500
    assert "\n" not in caught.value.message


# --- experts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_experts": 1025}, "key 'num_experts' is 1025; it must be from 1 to 1024"),
        (
            {"num_experts": 1024, "num_hidden_layers": 257},
            "key 'num_experts' is 1024 in 257 layers; up to 262144 in all are possible",
        ),
        ({"num_experts": 1024, "num_hidden_layers": 256}, "tensor 'model.layers.0.mlp.gate.weight' has shape"),
        (
            {"num_experts": 1024, "num_hidden_layers": 512, "decoder_sparse_step": 2},
            "tensor 'model.layers.0.mlp.gate_proj.weight' is missing",
        ),
    ],
)
def test_experts_that_no_machine_holds_are_refused_before_their_weights_are_listed(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    folder = write_folder(hf.mixture(**changes), tmp_path)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert says in caught.value.message
