"""What is written is what is opened."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest
from support.v2_files import SOURCE, TEXT, edited, rich_geometry, tiny_geometry, wanted_of, write_v2

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.inventory import wanted_weights
from halogend.checkpoint.stored import Plain, RowFp8, RowInt8, TiledInt4
from halogend.checkpoint.v2.index import Quantisation
from halogend.checkpoint.v2.reader import open_v2, part_names
from halogend.checkpoint.v2.verify import verify

STORED = {"fp32": Plain, "fp16": Plain, "bf16": Plain, "fp8": RowFp8, "int8": RowInt8, "int4": TiledInt4}


@pytest.mark.parametrize("model", [tiny_geometry(), rich_geometry()], ids=["tiny", "rich"])
@pytest.mark.parametrize("quantisation", STORED)
def test_a_checkpoint_has_the_model_that_was_written(quantisation: Quantisation, model: Geometry, tmp_path: Path):
    path = write_v2(tmp_path / "m.hgn2", quantisation=quantisation, model=model)
    opened = open_checkpoint(path)
    assert (opened.format, opened.geometry, opened.adjacent_pairs, opened.norm_offset) == ("v2", model, True, 0.0)
    assert list(opened.weights) == [wanted.name for wanted in wanted_weights(model)]
    for wanted in wanted_weights(model):
        weight = opened.weights[wanted.name]
        assert (weight.rows, weight.columns) == (wanted.rows, wanted.columns)
        (piece,) = weight.pieces
        assert (piece.first, piece.rows) == (0, wanted.rows)
        is_plain = wanted.columns == 1 or wanted.name in ("token_embd", "output")
        assert type(piece.encoded) is (Plain if is_plain else STORED[quantisation])
    assert opened.v2 is not None
    assert opened.v2.metadata.source == SOURCE
    assert opened.v2.metadata.dropped == ("optimizer.step",)


def test_entries_follow_each_other_at_multiples_of_4096_in_the_order_of_loading(tmp_path: Path):
    file = open_v2(write_v2(tmp_path / "m.hgn2", quantisation="int4"))
    entries = file.metadata.entries
    assert [entry.name for entry in entries] == [each.name for each in wanted_of(tiny_geometry(), "int4", TEXT)]
    assert entries[0].offset == file.header.data_start
    for entry, after in pairwise(entries):
        assert after.offset % 4096 == 0
        assert 0 <= after.offset - entry.end < 4096
    assert entries[-1].end == (tmp_path / "m.hgn2").stat().st_size


def test_text_files_are_inside(tmp_path: Path):
    file = open_v2(write_v2(tmp_path / "m.hgn2"))
    assert {name: file.text(name) for name in file.text_names} == TEXT
    with pytest.raises(KeyError):
        file.text("none")


def test_damaged_text_is_refused_when_it_is_read(tmp_path: Path):
    path = write_v2(tmp_path / "m.hgn2")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(TEXT["config.json"], TEXT["config.json"].replace(b"1", b"2")))
    with pytest.raises(CheckpointError, match=r"'text/config\.json' is damaged"):
        open_v2(path).text("config.json")


def test_a_manifest_and_its_parts_are_the_same_checkpoint(tmp_path: Path):
    whole = open_v2(write_v2(tmp_path / "one.hgn2", quantisation="int8"))
    parted = open_v2(write_v2(tmp_path / "many.hgn2", quantisation="int8", part_bytes=50_000))
    assert len(parted.files) > 2
    assert parted.files == part_names(tmp_path / "many.hgn2", len(parted.files))
    assert parted.all_files == (*parted.files, tmp_path / "many.hgn2")
    assert [entry.name for entry in parted.metadata.entries] == [entry.name for entry in whole.metadata.entries]
    for entry in whole.metadata.entries:
        other = parted.entries[entry.name]
        assert other.sha256 == entry.sha256
        with parted.files[other.part].open("rb") as file:
            file.seek(other.offset)
            assert hashlib.sha256(file.read(other.nbytes)).hexdigest() == entry.sha256
    assert all(path.stat().st_size <= 50_000 + 8192 for path in parted.files[1:])


def test_parts_are_not_made_where_one_file_does(tmp_path: Path):
    path = write_v2(tmp_path / "m.hgn2", part_bytes=1 << 30)
    assert open_v2(path).files == (path,)
    assert [each.name for each in tmp_path.iterdir()] == ["m.hgn2"]


def test_a_part_names_its_manifest(tmp_path: Path):
    write_v2(tmp_path / "m.hgn2", part_bytes=100_000)
    part = min(tmp_path.glob("m-*"))
    with pytest.raises(CheckpointError, match=r"is part 1 of \d+ of a checkpoint; name m\.hgn2"):
        open_v2(part)


@pytest.mark.parametrize("files", ["its manifest", "all"])
def test_a_symlink_to_a_manifest_is_that_checkpoint(tmp_path: Path, files: str):
    """The parts lie beside what the link names, or, where all are links as in a hub's cache, beside the link."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    there = open_v2(write_v2(tmp_path / "there/m.hgn2", part_bytes=100_000))
    link = tmp_path / "here/current.hgn2"
    if files == "all":
        names = part_names(link, len(there.files))
        for name, part in zip(names, there.files, strict=True):
            part.rename(tmp_path / "there" / part.name.replace("-", ""))
            name.symlink_to(tmp_path / "there" / part.name.replace("-", ""))
    (tmp_path / "newest.hgn2").symlink_to("there/m.hgn2")
    link.symlink_to("../newest.hgn2")
    found = open_v2(link)
    assert (found.path, found.digest) == (link, there.digest)
    assert found.files == (names if files == "all" else part_names(link.parent / "../there/m.hgn2", len(there.files)))
    assert verify(found) == ()


def test_a_link_to_a_manifest_without_parts_says_which_is_missing(tmp_path: Path):
    (tmp_path / "there").mkdir()
    for part in open_v2(write_v2(tmp_path / "there/m.hgn2", part_bytes=100_000)).files:
        part.unlink()
    (tmp_path / "l.hgn2").symlink_to("there/m.hgn2")
    with pytest.raises(CheckpointError, match=r"part 1 of \d+ is missing: l-00001-of-\d+\.hgn2"):
        open_v2(tmp_path / "l.hgn2")


def test_a_folder_that_holds_one_says_what_to_name(tmp_path: Path):
    write_v2(tmp_path / "m.hgn2", part_bytes=100_000)
    with pytest.raises(CheckpointError, match=r"a directory with m\.hgn2 and without .*: name the \.hgn2 file itself"):
        open_checkpoint(tmp_path)


def test_the_digest_is_of_headers_and_so_of_everything(tmp_path: Path):
    digests = {
        open_checkpoint(write_v2(tmp_path / f"{index}.hgn2", **options)).digest
        for index, options in enumerate(
            [{}, {"seed": 1}, {"dropped": ()}, {"text": {"tokenizer.json": b"{}"}}, {"part_bytes": 100_000}]
        )
    }
    assert len(digests) == 5
    assert open_v2(write_v2(tmp_path / "again.hgn2")).digest in digests


@pytest.mark.parametrize(("quantisation", "stored"), [("fp16", "F16"), ("int4", "int4")])
def test_a_checkpoint_says_how_it_is_stored(quantisation: Quantisation, stored: str, tmp_path: Path):
    opened = open_checkpoint(write_v2(tmp_path / "m.hgn2", quantisation=quantisation))
    assert opened.quantisation == stored
    assert opened.is_quantised == (quantisation == "int4")


def test_what_was_quantised_before_it_was_converted_is_quantised(tmp_path: Path):
    path = write_v2(tmp_path / "m.hgn2", quantisation="bf16")
    edited(path, metadata=lambda document: document["source"].update(quantisation="Q4_1"))
    assert open_checkpoint(path).is_quantised


def test_a_newer_writer_may_write_for_this_reader(tmp_path: Path):
    assert open_v2(edited(write_v2(tmp_path / "m.hgn2"), header={"version": 7})).header.version == 7


def test_a_gguf_section_is_the_text_of_its_kind(tmp_path: Path):
    file = open_v2(write_v2(tmp_path / "m.hgn2", text={"gguf": b"GGUF"}))
    assert (file.metadata.text, file.text_names, file.text("gguf")) == ("gguf", ("gguf",), b"GGUF")
