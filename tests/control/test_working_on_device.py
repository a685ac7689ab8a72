"""What a replica takes on an accelerator beside weights and cache, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.config_documents import read
from support.tiny_models import tiny_llama

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.geometry import Geometry
from halogend.control.working import Work, recorded_sizes, working_on_device
from halogend.engine.device.graphs import bucket_of

WORK = Work("bf16", 2048, has_template=False, products=None)


@pytest.fixture
def geometry(tmp_path: Path) -> Geometry:
    return open_checkpoint(str(tiny_llama(tmp_path / "tiny.gguf").path), "auto").geometry


def on_device(geometry: Geometry, max_batch: int) -> int:
    document = read(f"model: /a.gguf\nmax_batch: {max_batch}\n").document
    assert document is not None
    return working_on_device(geometry, document.models[0], WORK).device_bytes


@pytest.mark.parametrize("max_batch", [1, 2, 3, 64, 65, 100])
def test_the_sizes_are_those_that_an_engine_records(max_batch: int) -> None:
    sizes, bucket = [], bucket_of(max_batch)
    while bucket:
        sizes.append(bucket)
        bucket //= 2
    assert recorded_sizes(max_batch) == sizes[::-1]


def test_recorded_steps_keep_logits_of_their_own(geometry: Geometry) -> None:
    """One more request than a size holds is a size more, of twice as many rows."""
    row = geometry.vocab * 4
    more = [on_device(geometry, count + 1) - on_device(geometry, count) for count in (64, 65)]
    assert more[0] - more[1] >= 128 * row
