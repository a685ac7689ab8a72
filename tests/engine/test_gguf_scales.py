"""Matrices of four-bit floats with a scale beside them, against the `gguf` package's numbers times the scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from support.byte_sources import FileSource
from support.engine_logits import engine_logits
from support.gguf_files import bpe_tokenizer, write_gguf
from support.llamacpp_logits import llama_logits

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import TENSOR_MISMATCH, CheckpointError
from halogend.checkpoint.gguf_types import GgmlType
from halogend.engine.bench.dequant import random_blocks
from halogend.engine.codecs import decode_rows, packed

VOCAB, WIDTH, EXPERTS = 272, 64, 3
PROMPT = [(7 * index) % VOCAB for index in range(41)]
Arrays = dict[str, np.ndarray]
NVFP4 = gguf.GGMLQuantizationType.NVFP4


def sizes(experts: int) -> dict[str, Any]:
    mixture = {"llama.expert_count": experts, "llama.expert_used_count": 2} if experts else {}
    return {
        "llama.block_count": 1,
        "llama.context_length": 256,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": WIDTH,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        **mixture,
        **bpe_tokenizer(),
    }


def matrices(experts: int) -> Arrays:
    """Blocks of every matrix, by its name without `.weight`."""
    shapes = {f"blk.0.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")} | {"output": (VOCAB, WIDTH)}
    suffix, stack = ("_exps", (experts,)) if experts else ("", ())
    shapes |= {f"blk.0.ffn_{part}{suffix}": (*stack, WIDTH, WIDTH) for part in ("gate", "up", "down")}
    rows = {name: int(np.prod(shape[:-1])) for name, shape in shapes.items()}
    blocks = random_blocks(GgmlType.NVFP4, sum(rows.values())).numpy()
    ends = np.cumsum(list(rows.values()))
    return {
        name: part.reshape(*shape[:-1], -1)
        for (name, shape), part in zip(shapes.items(), np.split(blocks, ends[:-1]), strict=True)
    }


def others(experts: int) -> Arrays:
    rng = np.random.default_rng(0)
    names = ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    found = {f"{name}.weight": rng.uniform(0.5, 1.5, WIDTH).astype(np.float32) for name in names}
    found["token_embd.weight"] = rng.standard_normal((VOCAB, WIDTH), dtype=np.float32)
    if experts:
        found["blk.0.ffn_gate_inp.weight"] = rng.standard_normal((experts, WIDTH), dtype=np.float32)
    return found


def scales(blocks: Arrays) -> Arrays:
    """Another for each matrix, and for each of a stack."""
    rng = np.random.default_rng(1)
    return {
        name: rng.uniform(0.01, 0.06, len(each) if each.ndim == 3 else 1).astype(np.float32)
        for name, each in blocks.items()
    }


def numbers(blocks: np.ndarray, scale: np.ndarray) -> np.ndarray:
    found = gguf.quants.dequantize(blocks, NVFP4)
    return found * (scale[:, None, None] if found.ndim == 3 else scale)


@pytest.fixture(params=[0, EXPERTS], ids=["dense", "experts"])
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """The model as a converter writes it, with `changes` to its scales (None leaves one out), or its numbers
    in float32."""

    def written(changes: dict[str, np.ndarray | None] | None = None, *, as_numbers: bool = False) -> Path:
        blocks = matrices(request.param)
        factors = scales(blocks)
        if as_numbers:
            plain = {f"{name}.weight": numbers(each, factors[name]) for name, each in blocks.items()}
            return write_gguf(tmp_path / "numbers.gguf", sizes(request.param), others(request.param) | plain)
        beside: dict[str, np.ndarray | None] = {f"{name}.scale": factor for name, factor in factors.items()}
        beside |= {f"{name}.input_scale": factor * 7 for name, factor in factors.items()} | (changes or {})
        tensors = {f"{name}.weight": each for name, each in blocks.items()}
        kinds = dict.fromkeys(tensors, "NVFP4")
        tensors |= {name: each for name, each in beside.items() if each is not None}
        return write_gguf(tmp_path / "m.gguf", sizes(request.param), others(request.param) | tensors, kinds=kinds)

    return written


def test_numbers_are_the_packages_times_the_scale(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed, "CHUNK_ELEMENTS", 5 * WIDTH)
    path = write()
    checkpoint = open_checkpoint(path)
    expected = {name: tensor.data for name, tensor in _tensors(write(as_numbers=True)).items()}
    source = FileSource(checkpoint.files)
    for name, weight in checkpoint.weights.items():
        piece = weight.pieces[0]
        stored = expected[piece.encoded.tensors[0].name]
        rows = torch.from_numpy(stored.reshape(-1, weight.columns).copy())[piece.first : piece.first + piece.rows]
        for first, count in ((0, piece.rows), (piece.rows // 3, piece.rows // 2)):
            out = torch.empty(count, weight.columns)
            decode_rows(piece.encoded, piece.first + first, count, out, source)
            assert torch.equal(out, rows[first : first + count]), name


def _tensors(path: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_model_is_that_of_its_numbers(write: Callable[..., Path], precision: str):
    got, plain = (engine_logits(path, PROMPT, precision=precision) for path in (write(), write(as_numbers=True)))
    assert got.isfinite().all()
    assert torch.equal(got, plain)


@pytest.mark.slow
def test_llamacpp_makes_the_same_of_it(write: Callable[..., Path]):
    """As far as its products of four-bit weights with rounded activations allow."""
    path = write()
    expected = torch.from_numpy(llama_logits(path, PROMPT, VOCAB, exact=True, threads=1))[-12:]
    assert (engine_logits(path, PROMPT) - expected).abs().max() < 0.05 * expected.abs().max()


def test_a_scale_is_of_one_type_and_shape(write: Callable[..., Path]):
    for wrong in (np.ones(5, np.float32), np.ones(1, np.float16), np.ones((1, 5), np.float32)):
        with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_q\.scale'") as caught:
            open_checkpoint(write({"blk.0.attn_q.scale": wrong}))
        assert caught.value.code == TENSOR_MISMATCH


@pytest.mark.parametrize("name", ["blk.0.attn_norm.scale", "token_embd.scale", "blk.1.attn_q.scale", "scale"])
def test_a_scale_of_nothing_is_surplus(write: Callable[..., Path], name: str):
    with pytest.raises(CheckpointError, match=f"'{name}' has no place"):
        open_checkpoint(write({name: np.ones(1, np.float32)}))


def test_a_matrix_without_a_scale_is_as_its_blocks_are(write: Callable[..., Path]):
    path = write({"blk.0.attn_q.scale": None})
    piece = open_checkpoint(path).weights["blk.0.attn_q"].pieces[0]
    out = torch.empty(WIDTH, WIDTH)
    decode_rows(piece.encoded, 0, WIDTH, out, FileSource((path,)))
    blocks = _tensors(path)["blk.0.attn_q.weight"].data
    assert torch.equal(out, torch.from_numpy(gguf.quants.dequantize(blocks, NVFP4).copy()))
