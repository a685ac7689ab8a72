"""Models split over several GGUF files: read as one, and every way in which parts do not fit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gguf_files import bpe_tokenizer, llama_sizes, llama_tensors, write_gguf
from support.llamacpp_logits import llama_logits

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf import ArrayRef, GgufHeader, read_header

METADATA = {**llama_sizes(), **bpe_tokenizer()}
TENSORS = llama_tensors(272)
PER_PART = 8
PARTS = -(-len(TENSORS) // PER_PART)

Edit = Callable[..., Path]


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """The first of three parts."""
    return write_gguf(tmp_path / "model.gguf", METADATA, TENSORS, split_max_tensors=PER_PART)


@pytest.fixture
def part(tmp_path: Path) -> Edit:
    """Writes one part of a model of two, with the keys given."""

    def write(number: int, *names: str, stem: str = "two", architecture: str = "llama", **keys: Any) -> Path:
        metadata = {"split.no": number, "split.count": 2, "split.tensors.count": 2}
        metadata |= {key.replace("_", "."): value for key, value in keys.items()}
        tensors = {name: np.ones((2, 32), np.float32) for name in names}
        path = tmp_path / f"{stem}-{number + 1:05}-of-00002.gguf"
        return write_gguf(path, metadata, tensors, architecture=architecture)

    return write


def other(first: Path, number: int) -> Path:
    """Part `number`, from 1."""
    return first.with_name(first.name.replace("-00001-", f"-{number:05}-"))


def refusal(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    return caught.value


def contents(header: GgufHeader) -> dict[str, np.ndarray]:
    """Every tensor, read from where the header says."""
    found = {}
    for name, tensor in header.tensors.items():
        with header.files[tensor.file].open("rb") as file:
            file.seek(tensor.offset)
            found[name] = np.frombuffer(file.read(tensor.nbytes), np.float32).reshape(tensor.shape)
    return found


@pytest.mark.parametrize("empty_first", [False, True], ids=["tensors in the first", "none in the first"])
def test_parts_read_as_the_whole_file_does(tmp_path: Path, empty_first: bool):
    first = write_gguf(tmp_path / "m.gguf", METADATA, TENSORS, split_max_tensors=PER_PART, empty_first=empty_first)
    header, whole = read_header(first), read_header(write_gguf(tmp_path / "whole.gguf", METADATA, TENSORS))
    assert first.name == f"m-00001-of-{PARTS + empty_first:05}.gguf"
    assert header.path == header.files[0] == first
    assert list(header.files) == sorted(tmp_path.glob("m-*.gguf"))
    assert {tensor.file for tensor in header.tensors.values()} == set(range(empty_first, len(header.files)))
    shapes = [(tensor.name, tensor.shape, tensor.type, tensor.nbytes) for tensor in header.tensors.values()]
    assert shapes == [(tensor.name, tensor.shape, tensor.type, tensor.nbytes) for tensor in whole.tensors.values()]
    for name, array in contents(header).items():
        assert np.array_equal(array, TENSORS[name]), name
    split_keys = {"split.no": 0, "split.count": len(header.files), "split.tensors.count": len(TENSORS)}
    places = {key: value for key, value in header.metadata.items() if isinstance(value, ArrayRef)}
    assert places.keys() == {key for key, value in whole.metadata.items() if isinstance(value, ArrayRef)}
    assert dict(header.metadata) == {**whole.metadata, **split_keys, **places}
    assert header.strings("tokenizer.ggml.tokens") == whole.strings("tokenizer.ggml.tokens")


def test_a_whole_file_is_one_file(tmp_path: Path):
    path = write_gguf(tmp_path / "whole.gguf", METADATA, TENSORS)
    header = read_header(path)
    assert header.files == (path,)
    assert {tensor.file for tensor in header.tensors.values()} == {0}


@pytest.mark.parametrize("count", [0, 1])
def test_a_file_that_was_merged_again_is_whole(tmp_path: Path, count: int):
    keys = {"split.count": count, "split.no": 0, "split.tensors.count": 99}
    path = write_gguf(tmp_path / "any name.gguf", {**METADATA, **keys}, TENSORS)
    assert read_header(path).files == (path,)


def test_the_digest_covers_every_part(split: Path):
    before = read_header(split).digest
    assert read_header(split).digest == before
    for number in range(1, PARTS + 1):
        path = other(split, number)
        data = path.read_bytes()
        name = next(name for name, tensor in read_header(split).tensors.items() if tensor.file == number - 1).encode()
        path.write_bytes(data.replace(name, name[:-1] + b"X", 1))
        assert read_header(split).digest != before
        path.write_bytes(data)
    assert read_header(split).digest == before


def test_parts_of_a_hub_cache_are_found_by_their_links(split: Path, tmp_path: Path):
    """Links with the parts' names in one folder, to files named by their digests in another."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    for number in range(1, PARTS + 1):
        shutil.move(other(split, number), blobs / f"{number * 7}")
        (snapshot / other(split, number).name).symlink_to(blobs / f"{number * 7}")
    header = read_header(snapshot / split.name)
    assert len(header.files) == PARTS
    (snapshot / split.name).replace(snapshot / "renamed.gguf")
    assert "-00001-of-" in refusal(snapshot / "renamed.gguf").message


@pytest.mark.parametrize("number", [2, 3])
def test_another_part_than_the_first_names_the_first(split: Path, number: int):
    error = refusal(other(split, number))
    assert error.code == errors.SPLIT_INVALID
    assert f"part {number} of {PARTS}" in error.message
    assert str(other(split, number)) in error.message
    assert error.message.endswith(str(split))


def test_another_part_under_a_name_of_its_own(split: Path, tmp_path: Path):
    other(split, 2).rename(tmp_path / "second.gguf")
    assert "part 2 of 3" in refusal(tmp_path / "second.gguf").message


@pytest.mark.parametrize("name", ["model.gguf", "model-00002-of-00003.gguf", "model-00001-of-00004.gguf"])
def test_a_first_part_whose_name_does_not_lead_to_the_others(split: Path, tmp_path: Path, name: str):
    split.replace(tmp_path / name)
    error = refusal(tmp_path / name)
    assert error.code == errors.SPLIT_INVALID
    assert str(tmp_path / name) in error.message
    assert "'-00001-of-00003.gguf'" in error.message


def test_a_missing_part_is_named(split: Path):
    other(split, 3).unlink()
    error = refusal(split)
    assert error.code == errors.FILE_UNREADABLE
    assert str(other(split, 3)) in error.message
    assert f"part 3 of 3 of {split}" in error.message


def test_a_folder_in_place_of_a_part(split: Path):
    other(split, 2).unlink()
    other(split, 2).mkdir()
    assert str(other(split, 2)) in refusal(split).message


@pytest.mark.parametrize("keep", [0, 3, 100, -40])
def test_a_truncated_part_is_named(split: Path, keep: int):
    path = other(split, 2)
    os.truncate(path, keep if keep >= 0 else path.stat().st_size + keep)
    error = refusal(split)
    assert error.code in (errors.TRUNCATED, errors.FORMAT_UNKNOWN)
    assert error.message.startswith(f"{path}: ")


def test_parts_in_each_others_place(split: Path, tmp_path: Path):
    other(split, 2).rename(tmp_path / "aside")
    other(split, 3).rename(other(split, 2))
    (tmp_path / "aside").rename(other(split, 3))
    error = refusal(split)
    assert error.code == errors.SPLIT_INVALID
    assert error.message.startswith(f"{other(split, 2)}: ")
    assert "'split.no' is 2, not 1" in error.message


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"split_count": 3}, "'split.count' is 3, not 2"),
        ({"split_tensors_count": 5}, "'split.tensors.count' is 5, not 2"),
        ({"split_no": 0}, "'split.no' is 0, not 1"),
        ({"architecture": "gemma3"}, "'general.architecture' is 'gemma3', not 'llama'"),
    ],
)
def test_a_part_of_another_model(part: Edit, keys: dict[str, Any], words: str):
    first, second = part(0, "a"), part(1, "b", **keys)
    error = refusal(first)
    assert error.code == errors.SPLIT_INVALID
    assert error.message.startswith(f"{second}: ")
    assert words in error.message


def test_a_part_that_repeats_the_architecture(part: Edit):
    first = part(0, "a")
    part(1, "b")
    assert list(read_header(first).tensors) == ["a", "b"]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("key", ["split.no", "split.count", "split.tensors.count"])
@pytest.mark.parametrize("value", [None, "2", True, 1.0, 1 << 31, [1, 2]])
def test_split_keys_that_cannot_be(tmp_path: Path, number: int, key: str, value: Any):
    first = tmp_path / "x-00001-of-00002.gguf"
    for each in (1, 2):
        keys = {"split.no": each - 1, "split.count": 2, "split.tensors.count": 0}
        write_gguf(other(first, each), keys | ({key: value} if each == number else {}))
    if (number, key, value) == (1, "split.count", None):
        assert read_header(first).files == (first,)
        return
    error = refusal(first)
    assert error.code == errors.KEY_INVALID
    assert error.message.startswith(f"{other(first, number)}: ")
    assert repr(key) in error.message


def test_a_tensor_in_two_parts(part: Edit):
    first, second = part(0, "a"), part(1, "a")
    error = refusal(first)
    assert error.code == errors.INDEX_INVALID
    assert error.message == f"{second}: tensor 'a' is in {first} too"


@pytest.mark.parametrize("names", [("b", "c"), ()])
def test_more_or_fewer_tensors_than_said(part: Edit, names: tuple[str, ...]):
    first = part(0, "a")
    part(1, *names)
    error = refusal(first)
    assert error.code == errors.TENSOR_MISSING
    assert str(first) in error.message
    assert f"says 2 tensors; its 2 parts hold {1 + len(names)}" in error.message


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Path, bytes]]:
    """The first part, and every part's bytes; whoever edits writes them all first."""
    folder = tmp_path_factory.mktemp("fuzz")
    first = write_gguf(folder / "f.gguf", METADATA, TENSORS, split_max_tensors=PER_PART)
    return first, {path: path.read_bytes() for path in sorted(folder.iterdir())}


edits = st.lists(
    st.tuples(st.integers(0, PARTS - 1), st.integers(0, 1 << 20), st.binary(min_size=0, max_size=9)), max_size=3
)


@given(changes=edits, cut=st.none() | st.tuples(st.integers(0, PARTS - 1), st.integers(0, 1 << 20)))
@settings(max_examples=200, deadline=None)
def test_random_edits_give_nothing_but_checkpoint_errors(
    pristine: tuple[Path, dict[Path, bytes]],
    changes: list[tuple[int, int, bytes]],
    cut: tuple[int, int] | None,
):
    first, originals = pristine
    files = {path: bytearray(data) for path, data in originals.items()}
    paths = list(files)
    for number, place, new in changes:
        data = files[paths[number]]
        at = place % min(len(data), 12_000 if number == 0 else 800)  # where headers are
        data[at : at + len(new)] = new
    if cut is not None:
        data = files[paths[cut[0]]]
        del data[cut[1] % len(data) :]
    for path, data in files.items():
        path.write_bytes(data)
    said = str(first)
    try:
        header = read_header(first)
        for key, value in header.metadata.items():
            if isinstance(value, ArrayRef):
                (header.strings if value.element.name == "STRING" else header.numbers)(key)
    except CheckpointError as error:
        said = error.message
    assert any(str(path) in said for path in paths)


@pytest.mark.slow
def test_llama_cpp_takes_the_same_parts_for_the_same_model(tmp_path: Path):
    whole = write_gguf(tmp_path / "whole.gguf", METADATA, TENSORS)
    first = write_gguf(tmp_path / "split.gguf", METADATA, TENSORS, split_max_tensors=PER_PART, empty_first=True)
    assert len(read_header(first).files) == PARTS + 1
    tokens, vocab = [5, 9, 100, 31, 77], len(TENSORS["token_embd.weight"])
    logits = llama_logits(first, tokens, vocab, exact=True)
    assert np.array_equal(logits, llama_logits(whole, tokens, vocab, exact=True))
    other(first, 2).unlink()
    with pytest.raises(RuntimeError, match="cannot load"):
        llama_logits(first, tokens, vocab, exact=True)
