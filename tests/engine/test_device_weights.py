"""What changes about weights on their way to a device: here there is none, so they stay on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from halogen_kernels import LinearWeight, StoredPart
from support.tiny_models import tiny_llama

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.sizes import kv_position_bytes, weight_bytes
from halogend.engine.device.place import Place
from halogend.engine.device.pool import KvForm
from halogend.engine.device.staging import StepWorkspace, WeightStaging
from halogend.engine.device.weights import moved_embedding
from halogend.engine.embedding import Embedding
from halogend.sched.blocks import BLOCK_TOKENS

VOCAB, WIDTH = 5000, 64
TOKENS = torch.tensor([0, 4999, 17, 4096, 4095])


def table_in_blocks() -> Embedding:
    """Q8_0: a float16 scale and 32 codes."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(-127, 128, (VOCAB, WIDTH // 32, 32), generator=generator, dtype=torch.int8)
    scales = torch.rand(VOCAB, WIDTH // 32, 1, generator=generator).half()
    raw = torch.cat((scales.view(torch.uint8), codes.view(torch.uint8)), dim=-1)
    return Embedding(GgmlType.Q8_0, raw.view(VOCAB, -1), WIDTH)


@pytest.mark.parametrize(("dtype", "held"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float16, 2)])
def test_a_table_in_blocks_is_decoded(dtype: torch.dtype, held: int) -> None:
    table = table_in_blocks()
    moved = moved_embedding(table, WeightStaging(Place()), dtype)
    assert moved.nbytes == VOCAB * WIDTH * held > table.nbytes
    kept = table(TOKENS) if held == 4 else table(TOKENS).bfloat16().float()
    assert torch.equal(moved(TOKENS), kept)


def test_a_table_of_numbers_stays_as_it_is_stored() -> None:
    numbers = torch.randn(VOCAB, WIDTH).half()
    table = Embedding(GgmlType.F16, numbers.view(torch.uint8), WIDTH)
    moved = moved_embedding(table, WeightStaging(Place()), torch.bfloat16)
    assert moved.nbytes == table.nbytes
    assert torch.equal(moved(TOKENS), numbers[TOKENS].float())


@pytest.mark.parametrize(("kind", "grows"), [("Q8_0", True), ("F16", False)])
def test_a_plan_counts_what_a_table_becomes(tmp_path: Path, kind: str, grows: bool) -> None:
    checkpoint = open_checkpoint(tiny_llama(tmp_path / "model.gguf", kind=kind).path)
    table = checkpoint.weights["token_embd"]
    there, here = (weight_bytes(checkpoint, "bf16", "bf16", decodes_table=on_device) for on_device in (True, False))
    stored = table.nbytes if grows else table.rows * table.columns * 2
    assert there - here == table.rows * table.columns * 2 - stored


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp8", torch.float8_e4m3fn), ("int8", torch.int8)],
)
def test_a_plan_counts_a_block_as_a_pool_does(name: str, dtype: torch.dtype) -> None:
    form = KvForm(places=7, kv_heads=2, head_dim=80, dtype=dtype)
    assert form.block_bytes == 7 * BLOCK_TOKENS * kv_position_bytes(2, 80, name)


def test_on_the_host_nothing_is_copied_or_wrapped() -> None:
    def pack(slices: object) -> LinearWeight:
        raise NotImplementedError

    def adopt(parts: Sequence[StoredPart]) -> LinearWeight:
        raise NotImplementedError

    staging, values = WeightStaging(Place(is_interpreted=True)), torch.ones(3)
    assert staging.move(values) is values
    assert staging.packing(pack) is pack
    assert staging.adopting(adopt) is adopt
    assert StepWorkspace(Place()).send(values) is values
