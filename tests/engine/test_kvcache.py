"""The pool's memory: reserved, not touched; given back; cleared."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from halogend.engine.kvcache import CHUNK_BYTES, KvCache


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture(autouse=True, scope="module")
def torch_has_computed() -> None:
    """What it takes for its first steps is there, whichever test comes first."""
    cache = KvCache(4, 512, torch.bfloat16, reserve_blocks=400, floor_blocks=40)
    for layer in cache.layers:
        layer[:] = torch.arange(400).unsqueeze(1)
    cache.resize(100, {300: 7})
    cache.clear([200])


def test_a_reserve_costs_nothing_until_it_is_used() -> None:
    before = resident_bytes()
    cache = KvCache(4, 512, torch.bfloat16, reserve_blocks=1 << 17)  # 8 GiB
    assert cache.block_bytes == 4 * 16 * 512 * 2
    assert resident_bytes() - before < 4 << 20
    for layer in cache.layers:
        layer[1:257] = 1.0
    used = resident_bytes() - before
    assert 256 * cache.block_bytes <= used < 300 * cache.block_bytes


def test_resize_gives_memory_back_and_spares_what_is_below() -> None:
    cache = KvCache(3, 64, torch.float32, reserve_blocks=5001)
    for layer in cache.layers:
        layer[:] = 7.0
    before = resident_bytes()
    cache.resize(100, {})
    assert before - resident_bytes() > 4800 * cache.block_bytes
    for layer in cache.layers:
        assert (layer[:100] == 7.0).all()
        assert (layer[101:] == 0.0).all()
        layer[5000] = 3.0  # and it may be used again
        assert (layer[5000] == 3.0).all()
    cache.resize(5001, {})
    assert all((layer[5000] == 3.0).all() for layer in cache.layers)


def test_clear_touches_only_what_it_names() -> None:
    cache = KvCache(2, 8, torch.float32, reserve_blocks=10, floor_blocks=10)
    for layer in cache.layers:
        assert not layer[0].any()
        layer[1:] = float("nan")
    cache.clear([3, 7])
    for layer in cache.layers:
        assert [bool(row.isnan().any()) for row in layer] == [block not in (0, 3, 7) for block in range(10)]


def test_layers_do_not_overlap() -> None:
    cache = KvCache(5, 6, torch.bfloat16, reserve_blocks=7)
    for index, layer in enumerate(cache.layers):
        assert layer.shape == (7, 96)
        layer[:] = index
    assert [float(layer.mean()) for layer in cache.layers] == [0, 1, 2, 3, 4]


def test_the_floor_is_touched_at_once_and_the_rest_chunk_by_chunk() -> None:
    before = resident_bytes()
    cache = KvCache(4, 512, torch.bfloat16, reserve_blocks=1 << 15, floor_blocks=400)  # 64 KiB a block
    assert cache.chunk_blocks == 32
    assert cache.touched_bytes == 400 * cache.block_bytes
    assert abs(resident_bytes() - before - cache.touched_bytes) < 2 << 20
    cache.clear([399])
    assert cache.touched_bytes == 400 * cache.block_bytes
    cache.clear([400, 3])
    assert cache.touched_bytes == 416 * cache.block_bytes
    cache.clear([650, 32_000, 649])
    assert cache.touched_bytes == 480 * cache.block_bytes, "and no other between"
    assert abs(resident_bytes() - before - cache.touched_bytes) < 2 << 20


def test_a_chunk_never_reaches_past_the_limit() -> None:
    cache = KvCache(4, 512, torch.bfloat16, reserve_blocks=1000, floor_blocks=40)
    cache.resize(45, {})
    cache.clear([41])
    assert cache.touched_bytes == 45 * cache.block_bytes
    cache.resize(1000, {})
    cache.clear([45])
    assert cache.touched_bytes == 50 * cache.block_bytes


def test_shrinking_copies_what_moves_before_its_pages_go_back() -> None:
    before = resident_bytes()
    cache = KvCache(4, 512, torch.bfloat16, reserve_blocks=1000, floor_blocks=1000)
    for layer in cache.layers:
        layer[:] = torch.arange(1000).unsqueeze(1)
    cache.resize(100, {900: 7, 999: 8})
    assert cache.touched_bytes == 100 * cache.block_bytes
    assert abs(resident_bytes() - before - cache.touched_bytes) < 2 << 20
    for layer in cache.layers:
        assert [float(layer[block, 0]) for block in (6, 7, 8, 9)] == [6, 900, 1000, 9]  # bf16 rounds 999
        assert torch.equal(layer[7], torch.full_like(layer[7], 900))
        assert not layer[900].any()


@pytest.mark.parametrize(("layers", "width"), [(1, 6), (30, 384), (5, 256), (60, 2048)])
@pytest.mark.parametrize("floor_blocks", [1, 3, 100])
def test_a_chunk_is_whole_pages_of_every_place(layers: int, width: int, floor_blocks: int) -> None:
    cache = KvCache(layers, width, torch.bfloat16, reserve_blocks=1 << 12, floor_blocks=floor_blocks)
    assert cache.chunk_blocks * cache.row_bytes % 4096 == 0
    least = math.lcm(cache.row_bytes, 4096) // cache.row_bytes
    assert cache.chunk_blocks == least or cache.chunk_blocks * cache.block_bytes <= CHUNK_BYTES


def test_copies_follow_each_other_and_bring_their_chunk() -> None:
    cache = KvCache(3, 64, torch.float32, reserve_blocks=1000, floor_blocks=40)
    for place, layer in enumerate(cache.layers):
        layer[1], layer[2] = 10.0 + place, 20.0 + place
    cache.copy(((1, 500), (2, 1)))
    assert cache.touched_bytes == (40 + cache.chunk_blocks) * cache.block_bytes
    for place, layer in enumerate(cache.layers):
        assert (layer[500] == 10.0 + place).all()
        assert (layer[1] == 20.0 + place).all()
        assert not layer[499].any()
