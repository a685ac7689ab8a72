"""Ranks read what is theirs: together all, nothing twice but what every rank has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.v2_files import rich_geometry, tiny_geometry, write_v2

from halogend.checkpoint.errors import SHARD_INVALID, CheckpointError
from halogend.checkpoint.v2.entries import WHOLE, Entry, Shard
from halogend.checkpoint.v2.index import Quantisation
from halogend.checkpoint.v2.layout import TILED_INT4
from halogend.checkpoint.v2.reader import V2File, open_v2
from halogend.checkpoint.v2.shards import check_size, is_shared, ranges, shard_of, sizes

QUANTISATIONS = ("bf16", "int8", "fp8", "int4")


def opened(tmp_path: Path, quantisation: Quantisation = "bf16", **changes: object) -> V2File:
    return open_v2(write_v2(tmp_path / "m.hgn2", quantisation=quantisation, model=tiny_geometry(**changes)))


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
@pytest.mark.parametrize(("of", "kv_heads"), [(2, 6), (3, 6), (4, 4)])
def test_ranks_have_all_together_and_nothing_twice(quantisation: Quantisation, of: int, kv_heads: int, tmp_path: Path):
    for entry in opened(tmp_path, quantisation, kv_heads=kv_heads, ffn=384).metadata.entries:
        seen = np.zeros(entry.nbytes, np.uint8)
        for rank in range(of):
            for offset, nbytes in ranges(entry, rank, of):
                assert entry.offset <= offset < offset + nbytes <= entry.end
                seen[offset - entry.offset : offset - entry.offset + nbytes] += 1
        for plane in entry.planes:
            counts = set(seen[plane.offset : plane.offset + plane.nbytes].tolist())
            is_whole = not is_shared(entry, of) or (
                entry.shard.axis == 1 and plane.name == "scales" and plane.shape == (entry.rows,)
            )
            assert counts == {of if is_whole else 1}


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_a_rank_reads_its_share_of_the_matrices_and_no_more(quantisation: Quantisation, tmp_path: Path):
    file = opened(tmp_path, quantisation)
    matrices = [entry for entry in file.metadata.entries if entry.shard.axis is not None]
    for of in (2, 3, 6):
        if of not in sizes(matrices):
            continue
        read = sum(nbytes for entry in matrices for _, nbytes in ranges(entry, 1, of))
        total = sum(entry.nbytes for entry in matrices)
        assert total / of <= read < total / of * 1.05


def values(file: V2File, entry: Entry) -> np.ndarray:
    with file.files[entry.part].open("rb") as opened_file:
        opened_file.seek(entry.offset)
        return np.frombuffer(opened_file.read(entry.nbytes), np.uint8)


def taken(file: V2File, entry: Entry, rank: int, of: int) -> np.ndarray:
    raw = values(file, entry)
    return np.concatenate([raw[o - entry.offset : o - entry.offset + n] for o, n in ranges(entry, rank, of)])


def test_rows_and_columns_are_those_of_the_rank(tmp_path: Path):
    file = opened(tmp_path)
    rows, columns = file.entries["blk.1.attn_k"], file.entries["blk.1.attn_output"]
    matrix = values(file, rows).view(np.uint16).reshape(rows.shape)
    assert np.array_equal(taken(file, rows, 1, 3).view(np.uint16).reshape(-1, 96), matrix[64:128])
    matrix = values(file, columns).view(np.uint16).reshape(columns.shape)
    assert np.array_equal(taken(file, columns, 2, 3).view(np.uint16).reshape(96, -1), matrix[:, 256:384])


def test_tiles_and_groups_are_those_of_the_rank(tmp_path: Path):
    """A rank's ranges of a tiled matrix are the tiled matrix of its rows or columns."""
    file = opened(tmp_path, "int4")
    down = file.entries["blk.0.ffn_down"]
    raw, (codes, scales, _) = values(file, down), down.planes
    share = taken(file, down, 1, 2)
    whole_codes = raw[codes.offset : codes.offset + codes.nbytes].reshape(codes.shape)
    count = codes.nbytes // 2
    assert np.array_equal(share[:count].reshape(3, 3, 16, 32), whole_codes[:, 3:])
    whole_scales = raw[scales.offset : scales.offset + scales.nbytes].view(np.float16).reshape(scales.shape)
    got = share[count : count + scales.nbytes // 2].view(np.uint16).reshape(3, 3, 32)
    assert np.array_equal(got, whole_scales[:, 3:].view(np.uint16))


def test_ranges_that_touch_are_one(tmp_path: Path):
    file = opened(tmp_path)
    assert len(ranges(file.entries["blk.0.attn_q"], 1, 2)) == 1
    assert len(ranges(file.entries["blk.0.attn_output"], 1, 2)) == 96
    assert ranges(file.entries["blk.0.attn_output"], 0, 1) == [
        (file.entries["blk.0.attn_output"].offset, file.entries["blk.0.attn_output"].nbytes)
    ]


def test_the_sizes_are_those_that_heads_and_widths_divide_by(tmp_path: Path):
    assert sizes(opened(tmp_path).metadata.entries) == (1, 2, 3, 6)
    assert sizes(opened(tmp_path, kv_heads=4, ffn=192).metadata.entries) == (1, 2, 4)
    assert sizes(opened(tmp_path, ffn=193).metadata.entries) == (1,)


def test_a_layout_that_cannot_be_parted_makes_fewer_sizes(tmp_path: Path):
    """Rows of 16 in tiles of 32: two heads belong together."""
    changes = {"heads": 12, "kv_heads": 4, "head_dim": 16, "ropes": tiny_geometry().ropes[:0]}
    from halogend.checkpoint.rope import plain

    changes["ropes"] = (plain(10_000.0, 16),)
    assert sizes(opened(tmp_path, "bf16", **changes).metadata.entries) == (1, 2, 4)
    assert sizes(opened(tmp_path, "int4", **changes).metadata.entries) == (1, 2)


def test_a_size_that_does_not_divide_is_refused_with_those_that_do(tmp_path: Path):
    file = opened(tmp_path)
    check_size(file.metadata.entries, 3, file.path)
    with pytest.raises(CheckpointError, match=r"do not divide by 4; .* that divide are 1, 2, 3, 6") as caught:
        check_size(file.metadata.entries, 4, file.path)
    assert caught.value.code == SHARD_INVALID
    with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_k' of shape \[192, 96\] does not divide by 4"):
        ranges(file.entries["blk.0.attn_k"], 0, 4)


def test_a_table_of_the_vocabulary_that_does_not_divide_is_whole_in_each_rank(tmp_path: Path):
    file = opened(tmp_path, vocab=61)
    table = file.entries["token_embd"]
    assert sizes(file.metadata.entries) == (1, 2, 3, 6)
    assert ranges(table, 1, 2) == [(table.offset, table.nbytes)]
    assert ranges(opened(tmp_path).entries["token_embd"], 1, 2)[0][1] == 60 * 96


def test_experts_are_shared_out_as_a_feed_forward_is():
    model = rich_geometry()
    assert shard_of(model, "blk.1.ffn_gate.2", TILED_INT4, 32) == Shard(0, 32)
    assert shard_of(model, "blk.1.ffn_down.2", TILED_INT4, 32) == Shard(1, 32)
    assert shard_of(model, "blk.0.attn_q.bias", "row", 1) == Shard(0, 32)
    for name in ("blk.1.ffn_gate_inp", "blk.0.attn_output.bias", "blk.0.attn_q_norm", "output_norm", "rope_freqs"):
        assert shard_of(model, name, "row", 1) == WHOLE
