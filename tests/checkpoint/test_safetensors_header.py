"""One safetensors file: what is read, and what wrong and hostile ones get."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support.safetensors_files import entry, file_bytes

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.plain_types import PLAIN_TYPES
from halogend.checkpoint.safetensors import read_shards
from halogend.checkpoint.safetensors_header import MAX_HEADER_BYTES, MAX_TENSORS, read_safetensors_header

A = entry("F32", [2, 3], 0, 24)
B = entry("BF16", [4], 24, 32)
DATA = bytes(range(32))
TWO = {"__metadata__": {"format": "pt"}, "a": A, "b": B}

# What is wrong: header (or its bytes), data, code, what the message says.
BROKEN: dict[str, tuple[Any, bytes, str, str]] = {
    "not json": (b"{nonsense", b"", errors.INDEX_INVALID, "no valid JSON"),
    "not an object": (b"[1, 2]", b"", errors.INDEX_INVALID, "no JSON object"),
    "space before": (b' {"a": 1}', b"", errors.INDEX_INVALID, "no JSON object"),
    "two values": (b"{} {}", b"", errors.INDEX_INVALID, "no valid JSON"),
    "not utf-8": (b'{"\xff": 1}', b"", errors.INDEX_INVALID, "not UTF-8"),
    "nan": (b'{"a": NaN}', b"", errors.INDEX_INVALID, "NaN"),
    "deep": (b'{"a":' + b"[" * 100_000, b"", errors.INDEX_INVALID, "no valid JSON"),
    "endless number": (b'{"a":' + b"9" * 100_000 + b"}", b"", errors.INDEX_INVALID, "no valid JSON"),
    "tensor twice": (
        b'{"a":' + json.dumps(A).encode() + b', "a":' + json.dumps(A).encode() + b"}",
        DATA[:24],
        errors.INDEX_INVALID,
        "key 'a' twice",
    ),
    "key twice inside": (
        b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [], "data_offsets": [0, 4]}}',
        DATA[:4],
        errors.INDEX_INVALID,
        "key 'dtype' twice",
    ),
    "metadata list": ({"__metadata__": [], "a": A}, DATA[:24], errors.INDEX_INVALID, "'__metadata__'"),
    "metadata number": ({"__metadata__": {"n": 1}, "a": A}, DATA[:24], errors.INDEX_INVALID, "'n' is no string"),
    "tensor list": ({"a": []}, b"", errors.INDEX_INVALID, "tensor 'a' is no JSON object"),
    "no name": ({"": A}, DATA[:24], errors.INDEX_INVALID, "0 characters"),
    "long name": ({"n" * 513: A}, DATA[:24], errors.INDEX_INVALID, "513 characters"),
    "unprintable name": ({"a\n": A}, DATA[:24], errors.INDEX_INVALID, r"'a\n' has a name that cannot be printed"),
    "lone surrogate": ({"\ud800": A}, DATA[:24], errors.INDEX_INVALID, r"key '\ud800' is no valid Unicode"),
    "no dtype": ({"a": {"shape": [], "data_offsets": [0, 0]}}, b"", errors.INDEX_INVALID, "'a' has no 'dtype'"),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 0]}}, b"", errors.INDEX_INVALID, "'a' has no 'shape'"),
    "no offsets": ({"a": {"dtype": "F32", "shape": []}}, b"", errors.INDEX_INVALID, "'a' has no 'data_offsets'"),
    "strange dtype": ({"a": entry("F4", [2], 0, 1)}, b"0", errors.TYPE_UNSUPPORTED, "'a' has the unknown dtype 'F4'"),
    "dtype number": ({"a": entry(7, [], 0, 4)}, DATA[:4], errors.TYPE_UNSUPPORTED, "dtype 7"),  # type: ignore[arg-type]
    "negative size": ({"a": entry("U8", [-2, -2], 0, 4)}, DATA[:4], errors.INDEX_INVALID, "shape [-2, -2]"),
    "float size": ({"a": entry("U8", [4.0], 0, 4)}, DATA[:4], errors.INDEX_INVALID, "shape [4.0]"),
    "true as size": ({"a": entry("U8", [True], 0, 1)}, b"0", errors.INDEX_INVALID, "shape [True]"),
    "huge size": ({"a": entry("U8", [1 << 62, 0], 0, 0)}, b"", errors.INDEX_INVALID, "no list of whole numbers"),
    "nine axes": ({"a": entry("U8", [1] * 9, 0, 1)}, b"0", errors.INDEX_INVALID, "9 dimensions"),
    "overflowing size": ({"a": entry("U8", [1 << 33, 1 << 33], 0, 4)}, DATA[:4], errors.INDEX_INVALID, "needs 73786"),
    "offsets backwards": ({"a": entry("U8", [4], 4, 0)}, DATA[:4], errors.INDEX_INVALID, "data_offsets [4, 0]"),
    "one offset": (
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0]}},
        DATA[:4],
        errors.INDEX_INVALID,
        "data_offsets [0]",
    ),
    "negative offset": ({"a": entry("U8", [4], -4, 0)}, DATA[:4], errors.INDEX_INVALID, "data_offsets [-4, 0]"),
    "text offset": ({"a": entry("U8", [4], "0", 4)}, DATA[:4], errors.INDEX_INVALID, "data_offsets ['0', 4]"),
    "too few bytes": ({"a": entry("F32", [2, 3], 0, 20)}, DATA[:20], errors.INDEX_INVALID, "'a' has 20 bytes"),
    "too many bytes": ({"a": entry("F32", [2, 3], 0, 28)}, DATA[:28], errors.INDEX_INVALID, "'a' has 28 bytes"),
    "overlap": (
        {"a": A, "b": entry("BF16", [4], 20, 28)},
        DATA[:28],
        errors.INDEX_INVALID,
        "'b' overlaps tensor 'a'",
    ),
    "same place": ({"a": A, "b": A}, DATA[:24], errors.INDEX_INVALID, "'b' overlaps tensor 'a'"),
    "hole": ({"a": A, "b": entry("BF16", [4], 26, 34)}, DATA + b"00", errors.INDEX_INVALID, "a hole of 2 bytes"),
    "hole in front": (
        {"a": entry("U8", [4], 4, 8)},
        DATA[:8],
        errors.INDEX_INVALID,
        "hole of 4 bytes behind the header",
    ),
    "cut short": (TWO, DATA[:31], errors.TRUNCATED, "'b' ends at byte"),
    "no data at all": (TWO, b"", errors.TRUNCATED, "'a' ends at byte"),
    "bytes left over": (TWO, DATA + b"!", errors.INDEX_INVALID, "1 bytes behind tensor 'b'"),
    "data of nobody": ({}, b"!", errors.INDEX_INVALID, "1 bytes behind the header"),
}


def refusal(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read_shards(path)
    assert caught.value.message.startswith(str(path))
    assert len(caught.value.message) < 1000
    return caught.value


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_with_its_own_message(case: str, tmp_path: Path) -> None:
    header, data, code, says = BROKEN[case]
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_bytes(header, data))
    error = refusal(path)
    assert error.code == code
    assert says in error.message


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"", errors.FORMAT_UNKNOWN, "is empty"),
        (b"abc", errors.TRUNCATED, "the header's length"),
        (struct.pack("<Q", 1000) + b"{}", errors.TRUNCATED, "the file ends inside the header"),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}", errors.FORMAT_UNKNOWN, "more than the"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", errors.FORMAT_UNKNOWN, "git lfs pull"),
        (b"<!DOCTYPE html><html>", errors.FORMAT_UNKNOWN, "no safetensors file"),
        (b"GGUF\3\0\0\0" + bytes(100), errors.FORMAT_UNKNOWN, "no safetensors file"),
    ],
)
def test_what_does_not_begin_as_a_header_does(content: bytes, code: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    error = refusal(path)
    assert error.code == code
    assert says in error.message


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "dangling", "NUL in the name"])
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "dir" / "x.safetensors"
    path.parent.mkdir()
    if kind == "directory":
        (path.parent / "model.safetensors").mkdir()
        path = path.parent
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to("../blobs/0123")
    elif kind == "NUL in the name":
        path = Path("a\0b")
    error = refusal(path)
    assert error.code == errors.FILE_UNREADABLE
    if kind == "dangling":
        assert "dangling symlink to ../blobs/0123: the download is incomplete" in error.message


def test_every_type_reads_as_the_package_wrote_it(tmp_path: Path) -> None:
    types = [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
        torch.bool,
    ]  # fmt: skip
    wanted = {str(kind): torch.randint(0, 2, (3, 2, 5)).to(kind) for kind in types}
    wanted |= {"scalar": torch.tensor(2.5), "none": torch.empty(0, 7), "odd": torch.ones(3, dtype=torch.uint8)}
    path = tmp_path / "all.safetensors"
    save_file(wanted, path, metadata={"format": "pt"})
    shards = read_shards(path)
    assert shards.files == (path,)
    assert {info.type for info in shards.tensors.values()} == set(PLAIN_TYPES.values())
    content = path.read_bytes()
    for name, tensor in load_file(path).items():
        info = shards.tensors[name]
        assert (info.name, info.shape, info.file) == (name, tuple(tensor.shape), 0)
        assert info.nbytes == tensor.nbytes
        raw = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        assert content[info.offset : info.offset + info.nbytes] == raw
    assert set(shards.tensors) == set(wanted)


def test_the_digest_is_that_of_the_header(tmp_path: Path) -> None:
    def digest(header: Any, data: bytes) -> str:
        path = tmp_path / "x.safetensors"
        path.write_bytes(file_bytes(header, data))
        return read_shards(path).digest

    first = digest(TWO, DATA)
    assert digest(TWO, DATA) == first
    assert digest({**TWO, "__metadata__": {"format": "np"}}, DATA) != first
    assert digest({"c": A, "b": B}, DATA) != first


VALID = file_bytes(TWO, DATA)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(VALID)), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=4
    )
)
def test_random_edits_give_a_checkpoint_error_or_sane_tensors(
    edits: list[tuple[int, int, bytes]], tmp_path: Path
) -> None:
    content = VALID
    for at, removed, inserted in edits:
        content = content[:at] + inserted + content[at + removed :]
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    try:
        shards = read_shards(path)
    except CheckpointError as error:
        error.message.encode()
        return
    for info in shards.tensors.values():
        assert info.offset + info.nbytes <= len(content)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(sorted(PLAIN_TYPES)) | _JSON,
        "shape": st.lists(st.integers(-1, 1 << 64), max_size=3) | _JSON,
        "data_offsets": st.lists(st.integers(-1, 40), min_size=2, max_size=2) | _JSON,
    },
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.dictionaries(st.sampled_from(["a", "b", "__metadata__", "\ud800"]), _ENTRY | _JSON))
def test_random_headers_give_a_checkpoint_error_or_sane_tensors(header: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_bytes(header, DATA))
    try:
        shards = read_shards(path)
    except CheckpointError as error:
        error.message.encode()
        return
    assert sum(info.nbytes for info in shards.tensors.values()) == len(DATA)


def test_a_header_of_too_many_tensors_is_refused(tmp_path: Path) -> None:
    """Empty ones are written in fifty bytes each, and read into a thousand."""
    path = tmp_path / "m.safetensors"
    one = b'{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    names = (b'"%x":' % number for number in range(MAX_TENSORS + 1))
    path.write_bytes(file_bytes(b"{" + b",".join(name + one for name in names) + b"}"))
    with pytest.raises(CheckpointError) as caught:
        read_safetensors_header(path)
    assert caught.value.message == f"{path}: has {MAX_TENSORS + 1} tensors, more than the {MAX_TENSORS} accepted"
