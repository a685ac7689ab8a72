"""The GGUF header: what is read, and what hostile files get."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gguf_files import bpe_tokenizer, llama_sizes, llama_tensors, write_gguf

from halogend.checkpoint import errors
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf import ArrayRef, GgufHeader, read_header
from halogend.checkpoint.gguf_types import GgmlType
from halogend.config.codes import Code

Write = Callable[..., Path]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "small.gguf", {**llama_sizes(), **bpe_tokenizer()}, llama_tensors(272))


@pytest.fixture
def raw(tmp_path: Path) -> Write:
    """A file made of the given bytes."""

    def write(*pieces: bytes) -> Path:
        path = tmp_path / "raw.gguf"
        path.write_bytes(b"".join(pieces))
        return path

    return write


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def head(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


ARCH = string("general.architecture") + struct.pack("<I", 8) + string("llama")


def entry(name: str, shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return (
        string(name)
        + struct.pack("<I", len(shape))
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", kind, offset)
    )


def refusal(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    return caught.value


def as_python(field: gguf.ReaderField) -> object:
    value = field.contents()
    return tuple(value) if isinstance(value, list) else value


def agree(header: GgufHeader, path: Path) -> None:
    """Everything in the header is what the `gguf` package reads."""
    reader = gguf.GGUFReader(path)
    theirs = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert list(header.metadata) == list(theirs)
    for name, field in theirs.items():
        ours = header.metadata[name]
        if isinstance(ours, ArrayRef):
            strings = field.types[-1] == gguf.GGUFValueType.STRING
            ours = tuple(header.strings(name)) if strings else header.numbers(name)
        assert ours == as_python(field), name
    assert list(header.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        info = header.tensors[tensor.name]
        assert info.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert (info.type.name, info.offset, info.nbytes) == (
            tensor.tensor_type.name,
            tensor.data_offset,
            tensor.n_bytes,
        )
        assert info.elements == tensor.n_elements
    assert header.alignment == reader.alignment


def test_a_small_file_reads_as_the_gguf_package_reads_it(small: Path):
    agree(read_header(small), small)


@pytest.mark.slow
@pytest.mark.models
def test_smollm2_reads_as_the_gguf_package_reads_it(smollm2: Path):
    agree(read_header(smollm2), smollm2)


@pytest.mark.slow
@pytest.mark.models
def test_gemma_reads_as_the_gguf_package_reads_it(gemma: Path):
    agree(read_header(gemma), gemma)


def test_every_tensor_type_has_the_block_layout_of_the_gguf_package():
    for kind in GgmlType:
        theirs = gguf.GGMLQuantizationType[kind.name]
        assert kind.number == theirs.value
        assert (kind.block_elements, kind.block_bytes) == gguf.GGML_QUANT_SIZES[theirs]


def test_every_code_is_in_the_documents_table_under_the_checkpoint_family():
    table = {code.value for code in Code}
    assert set(errors.ALL_CODES) <= table
    assert len(set(errors.ALL_CODES)) == len(errors.ALL_CODES)


def test_all_kinds_of_values_and_alignment(tmp_path: Path):
    writer = gguf.GGUFWriter(tmp_path / "kinds.gguf", "llama")
    writer.add_custom_alignment(256)
    writer.add_uint8("a.u8", 255)
    writer.add_int8("a.i8", -128)
    writer.add_uint16("a.u16", 65535)
    writer.add_int16("a.i16", -32768)
    writer.add_int32("a.i32", -5)
    writer.add_uint64("a.u64", 1 << 63)
    writer.add_int64("a.i64", -(1 << 62))
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "né 漢")
    writer.add_array("a.flags", [True, False])
    writer.add_array("a.long", list(range(1000)))
    writer.add_array("a.words", [f"w{index}" for index in range(1000)])
    writer.add_tensor("t", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(tmp_path / "kinds.gguf")
    agree(header, tmp_path / "kinds.gguf")
    assert header.alignment == 256
    assert header.tensors["t"].shape == (2, 32)
    assert header.tensors["t"].offset % 256 == 0
    assert isinstance(header.metadata["a.long"], ArrayRef)
    assert header.metadata["a.flags"] == (True, False)


def test_the_digest_covers_the_header_and_nothing_else(small: Path):
    before = read_header(small)
    data = bytearray(small.read_bytes())
    data[-1] ^= 1
    small.write_bytes(data)
    assert read_header(small).digest == before.digest
    at = data.index(b"llama.block_count") + len("llama.block_count") + 4
    data[at] ^= 1
    small.write_bytes(data)
    assert read_header(small).digest != before.digest


def test_version_2_is_read(raw: Write):
    assert read_header(raw(head(0, 1, version=2), ARCH)).version == 2


@pytest.mark.parametrize(
    ("version", "words"), [(1, "version 1"), (4, "version 4"), (0x03000000, "big-endian"), (0x02000000, "big-endian")]
)
def test_other_versions_and_byte_orders_are_refused_by_name(raw: Write, version: int, words: str):
    error = refusal(raw(head(version=version)))
    assert error.code == errors.VERSION_UNSUPPORTED
    assert words in error.message


def test_an_empty_file_a_wrong_magic_and_a_short_one(raw: Write):
    assert "empty" in refusal(raw(b"")).message
    assert refusal(raw(b"<!DOCTYPE html>" * 9)).code == errors.FORMAT_UNKNOWN
    assert refusal(raw(b"GG")).code == errors.FORMAT_UNKNOWN
    assert refusal(raw(b"GGUF")).code == errors.TRUNCATED


def test_missing_a_directory_a_pipe_and_a_closed_door(tmp_path: Path):
    assert "No such file" in refusal(tmp_path / "none.gguf").message
    assert "directory" in refusal(tmp_path).message
    os.mkfifo(tmp_path / "pipe")
    assert "regular" in refusal(tmp_path / "pipe").message
    with pytest.raises(CheckpointError, match="null byte"):
        read_header("nul\0byte")


def test_an_unreadable_file(tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch):
    """Root may read everything, so the kernel's refusal is put in its place."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    error = refusal(small)
    assert error.code == errors.FILE_UNREADABLE
    assert "Permission denied" in error.message


@pytest.mark.parametrize("count", [1 << 60, (1 << 64) - 1, 1 << 20])
def test_counts_that_the_file_has_no_room_for(raw: Write, count: int):
    assert refusal(raw(head(tensors=count))).code == errors.TRUNCATED
    assert refusal(raw(head(keys=count))).code == errors.TRUNCATED
    array = string("x") + struct.pack("<IIQ", 9, 4, count)
    assert "'x'" in refusal(raw(head(keys=2), ARCH, array)).message
    words = string("x") + struct.pack("<IIQ", 9, 8, count)
    assert "'x'" in refusal(raw(head(keys=2), ARCH, words)).message
    name = struct.pack("<Q", count) + b"abc"
    assert refusal(raw(head(keys=1), name, bytes(32))).code == errors.TRUNCATED


def test_a_string_inside_a_long_array_that_runs_past_the_end(raw: Write):
    strings = string("a") * 500 + struct.pack("<Q", 1 << 60) + string("b") * 200
    error = refusal(raw(head(keys=2), ARCH, string("x"), struct.pack("<IIQ", 9, 8, 701), strings))
    assert error.code == errors.TRUNCATED
    assert "'x'" in error.message


def test_metadata_that_contradicts_itself(raw: Write):
    assert "twice" in refusal(raw(head(keys=2), ARCH, ARCH)).message
    assert "type 99" in refusal(raw(head(keys=1), string("k"), struct.pack("<IQ", 99, 0))).message
    nested = string("k") + struct.pack("<IIQ", 9, 9, 0) + bytes(16)
    assert "array of arrays" in refusal(raw(head(keys=1), nested)).message
    assert "UTF-8" in refusal(raw(head(keys=1), string(b"\xff\xfe"), struct.pack("<IQ", 0, 0))).message
    assert "general.architecture" in refusal(raw(head())).message
    number = string("general.architecture") + struct.pack("<II", 4, 7)
    assert "general.architecture" in refusal(raw(head(keys=1), number)).message


@pytest.mark.parametrize("alignment", [0, 3, 48, 1 << 21])
def test_an_alignment_that_is_none(raw: Write, alignment: int):
    key = string("general.alignment") + struct.pack("<II", 4, alignment)
    assert "general.alignment" in refusal(raw(head(keys=2), ARCH, key)).message


@pytest.mark.parametrize(
    ("entries", "code", "words"),
    [
        ([entry("t", offset=1 << 40)], errors.TRUNCATED, "'t' ends at"),
        ([entry("t", offset=(1 << 64) - 32)], errors.TRUNCATED, "'t' ends at"),
        ([entry("t", offset=8)], errors.INDEX_INVALID, "'t' begins at 8"),
        ([entry("t"), entry("t", offset=128)], errors.INDEX_INVALID, "'t' is there twice"),
        ([entry("a"), entry("b", offset=96)], errors.INDEX_INVALID, "'b' overlaps tensor 'a'"),
        ([entry("t", (1 << 62, 1 << 62))], errors.TRUNCATED, "'t' ends at"),
        ([entry("t", (32, 0))], errors.INDEX_INVALID, "'t' has a dimension of 0"),
        ([entry("t", ())], errors.INDEX_INVALID, "'t' has 0 dimensions"),
        ([entry("t", (1,) * 5)], errors.INDEX_INVALID, "'t' has 5 dimensions"),
        ([entry("t", kind=77)], errors.TYPE_UNSUPPORTED, "'t' has the unknown type 77"),
        ([entry("t", (33,), kind=8)], errors.INDEX_INVALID, "'t' has rows of 33"),
    ],
)
def test_tensor_tables_that_cannot_be(raw: Write, entries: list[bytes], code: str, words: str):
    error = refusal(raw(head(len(entries), 1), ARCH, *entries, bytes(4096)))
    assert error.code == code
    assert words in error.message


def test_asking_for_an_array_that_is_none(small: Path):
    header = read_header(small)
    for action, key in (
        (header.strings, "no.such"),
        (header.strings, "general.architecture"),
        (header.strings, "tokenizer.ggml.token_type"),
        (header.numbers, "tokenizer.ggml.tokens"),
        (header.numbers, "tokenizer.ggml.merges"),
    ):
        with pytest.raises(CheckpointError, match=key):
            action(key)


@pytest.mark.parametrize("count", [3, 1000])
@pytest.mark.parametrize(
    ("value", "kind"),
    [("a", "strings"), (7, "whole numbers"), (0.5, "fractional numbers"), (True, "booleans")],
)
def test_an_array_of_the_wrong_elements_says_what_it_holds(tmp_path: Path, count: int, value: object, kind: str):
    header = read_header(write_gguf(tmp_path / "a.gguf", {"some.key": [value] * count}))
    for action, good in ((header.strings, {"strings"}), (header.numbers, {"whole numbers", "fractional numbers"})):
        if kind in good:
            assert list(action("some.key")) == [value] * count
            continue
        with pytest.raises(CheckpointError) as caught:
            action("some.key")
        assert caught.value.code == errors.KEY_INVALID
        assert f"metadata key 'some.key' is an array of {kind}; an array of {action.__name__}" in caught.value.message


def test_an_empty_array_is_one_of_anything(raw: Write):
    key = string("some.key") + struct.pack("<IIQ", 9, 5, 0)
    header = read_header(raw(head(keys=2), ARCH, key))
    assert header.strings("some.key") == []
    assert header.numbers("some.key") == ()


def test_a_file_cut_after_its_header_was_read_is_an_error_not_a_crash(small: Path):
    header = read_header(small)
    os.truncate(small, 600)
    with pytest.raises(CheckpointError, match="ends inside"):
        header.strings("tokenizer.ggml.tokens")


def use(path: Path) -> None:
    header = read_header(path)
    for key, value in header.metadata.items():
        if isinstance(value, ArrayRef):
            (header.strings if value.element.name == "STRING" else header.numbers)(key)


@pytest.fixture(scope="module")
def small_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fuzz") / "small.gguf"
    return write_gguf(path, {**llama_sizes(), **bpe_tokenizer()}, llama_tensors(272)).read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "hostile.gguf"


def survives(scratch: Path, data: bytes) -> None:
    scratch.write_bytes(data)
    said = str(scratch)
    try:
        use(scratch)
    except CheckpointError as error:
        said = error.message
    assert str(scratch) in said


@given(place=st.integers(0, 1 << 30))
@settings(max_examples=200, deadline=None)
def test_a_file_cut_anywhere_gives_a_checkpoint_error(small_bytes: bytes, scratch: Path, place: int):
    header_bytes = small_bytes.index(b"blk.1.ffn_down.weight") + 64
    scratch.write_bytes(small_bytes[: place % header_bytes])
    with pytest.raises(CheckpointError):
        read_header(scratch)


@given(flips=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_flipped_bytes_give_nothing_but_checkpoint_errors(
    small_bytes: bytes, scratch: Path, flips: list[tuple[int, int]]
):
    data = bytearray(small_bytes)
    header_bytes = small_bytes.index(b"blk.1.ffn_down.weight") + 64
    for place, bits in flips:
        data[place % header_bytes] ^= bits
    survives(scratch, bytes(data))


@given(place=st.integers(0, 1 << 30), value=st.sampled_from([0, 1, 1 << 31, 1 << 60, (1 << 64) - 1]))
@settings(max_examples=300, deadline=None)
def test_a_huge_number_anywhere_gives_nothing_but_checkpoint_errors(
    small_bytes: bytes, scratch: Path, place: int, value: int
):
    header_bytes = small_bytes.index(b"blk.1.ffn_down.weight") + 64
    at = place % (header_bytes - 8)
    survives(scratch, small_bytes[:at] + struct.pack("<Q", value) + small_bytes[at + 8 :])
