"""A flipped bit anywhere is found (C2): by opening where it lies in front of the data, else by verify."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.v2_files import copy_v2, edited, flipped, read_parts, tiny_geometry, write_v2

from halogend.checkpoint.errors import DIGEST_MISMATCH, INDEX_INVALID, CheckpointError
from halogend.checkpoint.files import open_regular
from halogend.checkpoint.v2.digests import check_chunk, chunks_of
from halogend.checkpoint.v2.index import CHUNK_BYTES
from halogend.checkpoint.v2.reader import open_v2
from halogend.checkpoint.v2.verify import verify, verify_bytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_v2(tmp_path / "m.hgn2", quantisation="int8")


def found(path: Path) -> bool:
    try:
        return bool(verify(open_v2(path), threads=1))
    except CheckpointError:
        return True


def test_a_sound_file_has_no_fault_and_every_byte_is_told(path: Path):
    file, told = open_v2(path), []
    assert verify(file, advance=told.append) == ()
    assert sum(told) == verify_bytes(file)


def test_a_bit_of_each_byte_of_the_header_is_found(path: Path):
    """All that count, and some of the zeros behind them."""
    source = random.Random(0)
    for position in [*range(120), *source.sample(range(120, 4096), 30)]:
        mask = 1 << source.randrange(8)
        assert found(flipped(path, position, mask)), position
        flipped(path, position, mask)
    assert not found(path)


def test_a_bit_of_the_metadata_and_of_the_zeros_behind_it_is_found(path: Path):
    source = random.Random(1)
    fields = read_parts(path.read_bytes())[0]
    places = [
        *source.sample(range(4096, 4096 + fields["length"]), 40),
        *source.sample(range(4096 + fields["length"], fields["start"]), 20),
    ]
    for position in places:
        mask = 1 << source.randrange(8)
        with pytest.raises(CheckpointError) as caught:
            open_v2(flipped(path, position, mask))
        assert caught.value.code in (DIGEST_MISMATCH, INDEX_INVALID)
        flipped(path, position, mask)


def test_a_bit_of_the_data_is_found_and_its_tensor_named(path: Path):
    source = random.Random(2)
    file = open_v2(path)
    for entry in source.sample(file.metadata.entries, 8):
        position, mask = source.randrange(entry.offset, entry.end), 1 << source.randrange(8)
        flipped(path, position, mask)
        faults = verify(open_v2(path), threads=2)
        assert {fault.code for fault in faults} == {DIGEST_MISMATCH}
        assert any(f"tensor {entry.name!r} is damaged" in fault.message for fault in faults)
        assert any("bytes " in fault.message for fault in faults)
        flipped(path, position, mask)


def test_a_bit_between_tensors_is_found(path: Path):
    entry = next(each for each in open_v2(path).metadata.entries if each.nbytes % 4096)
    assert len(verify(open_v2(flipped(path, entry.end)))) == 2  # its chunk, and zeros that are none


def test_a_bit_of_any_file_of_a_manifest_is_found(tmp_path: Path):
    path = write_v2(tmp_path / "m.hgn2", part_bytes=100_000)
    assert not found(path)
    for each in sorted(tmp_path.glob("*.hgn2")):
        for position in (20, 100, 4100, each.stat().st_size - 1):
            flipped(each, position)
            assert found(path), (each.name, position)
            flipped(each, position)
    assert not found(path)


def test_chunks_tile_the_data_and_each_rank_can_check_its_own(tmp_path: Path):
    """Chunk i is of rank i mod N: together they see all."""
    path = write_v2(tmp_path / "m.hgn2", model=tiny_geometry(vocab=60_000), quantisation="bf16")
    file = open_v2(path)
    chunks = chunks_of(file)
    assert len(chunks) == 2
    assert [chunk.number for chunk in chunks] == [0, 1]
    assert chunks[0].offset == file.header.data_start
    assert chunks[0].nbytes == CHUNK_BYTES
    assert chunks[1].offset + chunks[1].nbytes == file.header.file_bytes
    flipped(path, chunks[1].offset)
    with open_regular(path) as opened:
        check_chunk(file, chunks[0], opened.fileno())
        with pytest.raises(CheckpointError, match=r"bytes \d+ to \d+ are damaged: .* in 'token_embd'"):
            check_chunk(file, chunks[1], opened.fileno())


def test_a_file_cut_short_after_it_was_opened_ends_verify(path: Path):
    file = open_v2(path)
    with path.open("r+b") as opened:
        opened.truncate(file.header.file_bytes - 10)
    with pytest.raises(CheckpointError, match="cut short"):
        verify(file)


def test_faults_are_all_told(path: Path):
    def two(document: dict[str, list[dict[str, str]]]) -> None:
        for index in (0, 3):
            document["tensors"][index]["sha256"] = "11" * 32

    assert len(verify(open_v2(edited(path, metadata=two)))) == 2
