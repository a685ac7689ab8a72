"""Directories of safetensors: which files are read, and how index and shards must agree."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.safetensors_files import write_index, write_shard

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.safetensors import read_shards

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
MAP = {"a": ONE, "b": ONE, "c": TWO}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    write_shard(directory / ONE, ["a", "b"])
    write_shard(directory / TWO, ["c"])
    write_index(directory, MAP)
    return directory


def refusal(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read_shards(path)
    assert str(path) in caught.value.message
    assert len(caught.value.message) < 1000
    return caught.value


def test_shards_are_joined(sharded: Path) -> None:
    shards = read_shards(sharded)
    assert shards.files == (sharded / ONE, sharded / TWO)
    assert {name: info.file for name, info in shards.tensors.items()} == {"a": 0, "b": 0, "c": 1}
    for name, info in shards.tensors.items():
        size = os.stat(shards.files[info.file]).st_size  # noqa: PTH116 (one call, no new Path)
        assert info.offset == size - 24 * (2 if name == "a" else 1)


def test_the_one_file_goes_before_an_index(sharded: Path) -> None:
    write_shard(sharded / "model.safetensors", ["z"])
    assert list(read_shards(sharded).tensors) == ["z"]


def test_a_shard_is_a_checkpoint_of_its_own_by_its_path(sharded: Path) -> None:
    assert list(read_shards(sharded / TWO).tensors) == ["c"]


def test_the_digest_covers_the_index_and_each_header(sharded: Path) -> None:
    digests = {read_shards(sharded).digest}
    write_shard(sharded / TWO, ["c"], rows=3)
    digests.add(read_shards(sharded).digest)
    write_index(sharded, dict(reversed(MAP.items())))
    digests.add(read_shards(sharded).digest)
    assert len(digests) == 3


def test_a_hub_cache_of_symlinks_reads(sharded: Path, tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for name in (ONE, TWO):
        (sharded / name).rename(blobs / name[:11])
        (sharded / name).symlink_to(f"../blobs/{name[:11]}")
    assert set(read_shards(sharded).tensors) == {"a", "b", "c"}
    (blobs / TWO[:11]).unlink()
    error = refusal(sharded)
    assert error.code == errors.FILE_UNREADABLE
    assert f"{TWO}: is a dangling symlink to ../blobs/{TWO[:11]}: the download is incomplete" in error.message


def _dangling(name: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).symlink_to("../blobs/gone")


def _map(weight_map: Any) -> Callable[[Path], object]:
    return lambda directory: write_index(directory, weight_map)


def _index_text(text: str) -> Callable[[Path], object]:
    return lambda directory: (directory / "model.safetensors.index.json").write_text(text)


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "shard missing": (lambda path: (path / TWO).unlink(), errors.FILE_UNREADABLE, f"{TWO}: cannot be read"),
    "shard a directory": (
        lambda path: [(path / TWO).unlink(), (path / TWO).mkdir()],
        errors.FILE_UNREADABLE,
        f"{TWO}: is a directory",
    ),
    "one file dangling": (_dangling("model.safetensors"), errors.FILE_UNREADABLE, "model.safetensors: is a dangling"),
    "not in the shard": (_map({**MAP, "d": TWO}), errors.TENSOR_MISSING, f"{TWO}: tensor 'd' is missing"),
    "not in the index": (_map({"a": ONE, "c": TWO}), errors.INDEX_INVALID, f"{ONE}: tensor 'b' is there"),
    "in the other shard": (_map({**MAP, "b": TWO}), errors.INDEX_INVALID, f"tensor 'b' is there, but .* {TWO}"),
    "in two shards": (
        lambda path: write_shard(path / TWO, ["a", "c"]),
        errors.INDEX_INVALID,
        f"{TWO}: tensor 'a' is in {ONE} as well",
    ),
    "up a directory": (_map({**MAP, "c": "../" + TWO}), errors.INDEX_INVALID, "'c' is in '../model"),
    "absolute": (_map({**MAP, "c": "/etc/passwd"}), errors.INDEX_INVALID, "'c' is in '/etc/passwd'"),
    "backslash": (_map({**MAP, "c": "a\\b"}), errors.INDEX_INVALID, "no file name"),
    "dots": (_map({**MAP, "c": ".."}), errors.INDEX_INVALID, "'c' is in '..'"),
    "no name": (_map({**MAP, "c": ""}), errors.INDEX_INVALID, "'c' is in ''"),
    "NUL": (_map({**MAP, "c": "a\0b"}), errors.INDEX_INVALID, "no file name"),
    "lone surrogate": (_map({**MAP, "c": "\ud800"}), errors.INDEX_INVALID, "'weight_map.c' is no valid Unicode"),
    "number as shard": (_map({**MAP, "c": 2}), errors.INDEX_INVALID, "'c' is in 2"),
    "map a list": (_map(["a"]), errors.INDEX_INVALID, "'weight_map' is missing or no JSON object"),
    "map empty": (_map({}), errors.INDEX_INVALID, "'weight_map' is missing or no JSON object"),
    "no map": (_index_text("{}"), errors.INDEX_INVALID, "'weight_map' is missing"),
    "index no object": (_index_text("[]"), errors.INDEX_INVALID, "index.json: the index holds no JSON object"),
    "index cut": (_index_text('{"weight_map": {"a": "mo'), errors.INDEX_INVALID, "the index is no valid JSON"),
    "index empty": (_index_text(""), errors.INDEX_INVALID, "the index is empty"),
    "key twice": (
        _index_text('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}'),
        errors.INDEX_INVALID,
        "the index holds the key 'a' twice",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_directory_is_refused_with_its_own_message(case: str, sharded: Path) -> None:
    damage, code, says = BROKEN[case]
    damage(sharded)
    with pytest.raises(CheckpointError, match=says.replace("(", r"\(")) as caught:
        read_shards(sharded)
    assert caught.value.code == code
    assert caught.value.message.startswith(str(sharded))
    caught.value.message.encode()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pytorch_model.bin", "convert them to safetensors"),
        ("pytorch_model-00001-of-00002.bin", "convert them to safetensors"),
        ("consolidated.00.pth", "convert them to safetensors"),
        ("model.Q4_K_M.gguf", "the path of the .gguf file itself"),
        ("model-00001-of-00002.safetensors", "shards need their index"),
        ("config.json", "neither model.safetensors nor model.safetensors.index.json"),
    ],
)
def test_a_directory_without_readable_weights_says_what_it_holds(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    error = refusal(tmp_path)
    assert error.code == errors.FORMAT_UNKNOWN
    assert says in error.message
    assert name in error.message or name == "config.json"


def test_an_index_of_unreasonable_size_is_not_read(sharded: Path) -> None:
    with (sharded / "model.safetensors.index.json").open("r+b") as file:
        file.truncate(64 << 20)
    assert "is larger than 32 MiB" in refusal(sharded).message


def test_spaces_around_the_index_are_fine(sharded: Path) -> None:
    _index_text("\n " + json.dumps({"weight_map": MAP}) + "\n")(sharded)
    assert set(read_shards(sharded).tensors) == set(MAP)


_NAMES = st.sampled_from(["a", "b", "c", "d", "\ud800"])
_SHARDS = st.sampled_from([ONE, TWO, "no.safetensors", "", "..", "a/b", "\ud800"]) | st.none() | st.integers()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(weight_map=st.dictionaries(_NAMES, _SHARDS) | st.none() | st.lists(_NAMES))
def test_random_indices_give_a_checkpoint_error_or_the_right_map(sharded: Path, weight_map: Any) -> None:
    write_index(sharded, weight_map)
    try:
        shards = read_shards(sharded)
    except CheckpointError as error:
        error.message.encode()
        return
    assert {name: shards.files[info.file].name for name, info in shards.tensors.items()} == weight_map
