"""The pool's memory: reserved, not touched; given back; cleared."""

from __future__ import annotations

from pathlib import Path

import torch

from halogend.engine.kvcache import KvCache


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


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
    cache.resize(100)
    assert before - resident_bytes() > 4800 * cache.block_bytes
    for layer in cache.layers:
        assert (layer[:100] == 7.0).all()
        assert (layer[101:] == 0.0).all()
        layer[5000] = 3.0  # and it may be used again
        assert (layer[5000] == 3.0).all()
    cache.resize(5001)
    assert all((layer[5000] == 3.0).all() for layer in cache.layers)


def test_clear_touches_only_what_it_names() -> None:
    cache = KvCache(2, 8, torch.float32, reserve_blocks=10)
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
