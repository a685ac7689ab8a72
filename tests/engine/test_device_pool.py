"""A device's pool: chunks behind a table of addresses, here on the host."""

from __future__ import annotations

import ctypes

import pytest
import torch

from halogend.engine.device.place import Place, PlaceError, place_of
from halogend.engine.device.pool import CHUNK_BYTES, DeviceKvCache, KvForm

HOST = Place(is_interpreted=True)
FORM = KvForm(places=3, kv_heads=2, head_dim=8, dtype=torch.float32)


def first_values(cache: DeviceKvCache, block: int) -> list[float]:
    """The first value of a block in each place, found as kernels find it: through the table."""
    found = []
    for layer in cache.layers:
        address = int(layer.addresses[block // layer.chunk_blocks])
        assert address, "no memory behind the table"
        place = block % layer.chunk_blocks * FORM.block_values * 4
        found.append(ctypes.c_float.from_address(address + place).value)
    return found


@torch.inference_mode()
def write(cache: DeviceKvCache, block: int, value: float) -> None:
    """Into all of a block."""
    chunk = cache._chunks[block // cache.chunk_blocks]  # the test reaches inside
    assert chunk is not None
    for place in range(FORM.places):
        chunk.values[place, block % cache.chunk_blocks] = value + place


def test_the_floor_is_there_at_once_and_the_rest_chunk_by_chunk() -> None:
    cache = DeviceKvCache(FORM, HOST, reserve_blocks=1000, floor_blocks=40)
    assert cache.chunk_blocks == 8
    assert cache.block_bytes == 3 * 16 * 2 * 2 * 8 * 4
    assert cache.touched_bytes == 40 * cache.block_bytes
    assert first_values(cache, 0) == [0.0, 0.0, 0.0]
    cache.clear([39])
    assert cache.touched_bytes == 40 * cache.block_bytes
    cache.clear([100, 3])
    assert cache.touched_bytes == 48 * cache.block_bytes  # what lies between was not asked for
    write(cache, 100, 5.0)
    assert first_values(cache, 100) == [5.0, 6.0, 7.0]
    odd = DeviceKvCache(FORM, HOST, reserve_blocks=1000, floor_blocks=44)
    assert odd.touched_bytes == 44 * odd.block_bytes  # no more than it was to take
    odd.clear([44])
    assert odd.touched_bytes == 48 * odd.block_bytes


def test_a_pool_takes_no_more_than_its_limit() -> None:
    cache = DeviceKvCache(FORM, HOST, reserve_blocks=1000, floor_blocks=40)
    cache.resize(45, {})
    cache.clear([41])
    assert cache.touched_bytes == 45 * cache.block_bytes
    write(cache, 44, 3.0)
    cache.resize(1000, {})
    cache.clear([45])  # the short chunk becomes a whole one, and keeps what it holds
    assert cache.touched_bytes == 48 * cache.block_bytes
    assert first_values(cache, 44) == [3.0, 4.0, 5.0]


def test_shrinking_copies_what_moves_and_forgets_the_addresses() -> None:
    cache = DeviceKvCache(FORM, HOST, reserve_blocks=200, floor_blocks=200)
    for block in (9, 150, 199):
        write(cache, block, float(block))
    cache.resize(21, {150: 7, 199: 8})
    assert cache.touched_bytes == 21 * cache.block_bytes
    for block, value in ((7, 150.0), (8, 199.0), (9, 9.0)):
        assert first_values(cache, block) == [value, value + 1, value + 2]
    assert all(not int(layer.addresses[chunk]) for layer in cache.layers for chunk in range(3, 7))
    with pytest.raises(IndexError, match="never written"):
        cache.copy([(199, 3)])


def test_copies_follow_each_other_and_bring_their_chunk() -> None:
    cache = DeviceKvCache(FORM, HOST, reserve_blocks=1000, floor_blocks=40)
    write(cache, 1, 10.0)
    write(cache, 2, 20.0)
    cache.copy(((1, 500), (2, 1)))
    assert first_values(cache, 500) == [10.0, 11.0, 12.0]
    assert first_values(cache, 1) == [20.0, 21.0, 22.0]


def test_values_of_eight_bits_have_scales_that_move_with_them() -> None:
    form = KvForm(places=2, kv_heads=2, head_dim=8, dtype=torch.int8)
    assert form.block_bytes == 2 * 16 * 2 * 2 * (8 + 4)
    cache = DeviceKvCache(form, HOST, reserve_blocks=64, floor_blocks=8)
    chunk = cache._chunks[0]
    assert chunk is not None
    assert chunk.scales is not None
    chunk.values[:, 1], chunk.scales[:, 1] = 5, 0.5
    cache.resize(40, {1: 30})
    moved = cache._chunks[30 // cache.chunk_blocks]
    assert moved is not None
    assert moved.scales is not None
    assert (moved.values[:, 30 % cache.chunk_blocks] == 5).all()
    assert (moved.scales[:, 30 % cache.chunk_blocks] == 0.5).all()
    for layer in cache.layers:
        assert layer.scale_addresses is not None
        assert int(layer.scale_addresses[30 // cache.chunk_blocks]) != 0


@pytest.mark.parametrize(("heads", "floor_blocks", "chunk_blocks"), [(1, 3, 1), (1, 40, 8), (8, 100, 16), (8, 1, 1)])
def test_a_chunk_is_a_power_of_two_of_blocks(heads: int, floor_blocks: int, chunk_blocks: int) -> None:
    form = KvForm(places=60, kv_heads=heads, head_dim=128, dtype=torch.bfloat16)
    cache = DeviceKvCache(form, HOST, reserve_blocks=1 << 12, floor_blocks=floor_blocks)
    assert cache.chunk_blocks == chunk_blocks
    assert cache.chunk_blocks * cache.block_bytes <= CHUNK_BYTES


def test_where_an_engine_s_tensors_lie() -> None:
    assert place_of("cpu:0", "cpu") == Place()
    assert place_of("cpu:3", "triton") == Place(is_interpreted=True)
    assert place_of("cpu:0", "triton").runs_like_a_device
    with pytest.raises(PlaceError, match="the backend 'cpu' does not run on cuda:0; triton does"):
        place_of("cuda:0", "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has such a device")
@pytest.mark.parametrize("device", ["cuda:0", "rocm:1"])
def test_a_device_that_torch_does_not_see(device: str) -> None:
    with pytest.raises(PlaceError, match=f"{device} cannot be used"):
        place_of(device, "triton")
