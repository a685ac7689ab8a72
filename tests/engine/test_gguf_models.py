"""Whole models in every GGUF type, and models in several files, through the real loader and runner."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from support.engine_logits import engine_logits
from support.f32_gguf import as_f32
from support.gguf_files import bpe_tokenizer, llama_sizes, llama_tensors, write_gguf

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.gguf_types import DECODABLE, GgmlType
from halogend.engine.bench.dequant import random_blocks

VOCAB, WIDTH = 272, 256
PROMPT = [(7 * index) % VOCAB for index in range(41)]
NO_WEIGHTS = sorted(set(GgmlType) - DECODABLE, key=lambda kind: kind.number)


def model_of(path: Path, kind: GgmlType) -> Path:
    """One layer; the embedding table, tied, and all matrices are random blocks of `kind`."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {"block_count": 1, "embedding_length": WIDTH, "feed_forward_length": WIDTH}.items():
        writer.add_uint32(f"llama.{key}", value)
    for key, value in {"head_count": 4, "head_count_kv": 4}.items():
        writer.add_uint32(f"llama.attention.{key}", value)
    writer.add_context_length(256)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    for key, value in bpe_tokenizer().items():
        (writer.add_array if isinstance(value, list) else add_scalar(writer, value))(key, value)
    attention = [f"attn_{part}" for part in ("q", "k", "v", "output")]
    matrices = [f"blk.0.{part}" for part in (*attention, "ffn_gate", "ffn_up", "ffn_down")]
    for name in ("token_embd", *matrices):
        rows = VOCAB if name == "token_embd" else WIDTH
        blocks = random_blocks(kind, rows * WIDTH // kind.block_elements).numpy().reshape(rows, -1)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=gguf.GGMLQuantizationType(kind.number))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", torch.linspace(0.5, 1.5, WIDTH).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_scalar(writer: gguf.GGUFWriter, value: object):
    return {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}[type(value)]


@pytest.mark.parametrize("kind", sorted(DECODABLE, key=lambda kind: kind.number), ids=lambda kind: kind.name)
def test_a_model_in_one_type_is_the_model_of_its_numbers(tmp_path: Path, kind: GgmlType):
    path = model_of(tmp_path / "model.gguf", kind)
    logits = engine_logits(path, PROMPT)
    assert logits.isfinite().all()
    assert logits.std() > 0
    assert torch.equal(logits, engine_logits(as_f32(path, tmp_path), PROMPT))


@pytest.mark.parametrize("kind", NO_WEIGHTS, ids=lambda kind: kind.name)
def test_a_model_in_a_type_that_is_none_of_weights_is_refused(tmp_path: Path, kind: GgmlType):
    path = model_of(tmp_path / "model.gguf", kind)
    with pytest.raises(CheckpointError, match=rf"(?s){path}.*'token_embd.weight'.*{kind.name}"):
        open_checkpoint(path)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_model_in_parts_is_the_model_in_one_file(tmp_path: Path, precision: str, threads: int):
    metadata, weights = {**llama_sizes(), **bpe_tokenizer()}, llama_tensors(VOCAB)
    whole = write_gguf(tmp_path / "whole.gguf", metadata, weights)
    parts = write_gguf(tmp_path / "parts.gguf", metadata, weights, split_max_tensors=5, empty_first=True)
    assert len(open_checkpoint(parts).files) == 5
    got = engine_logits(parts, PROMPT, precision=precision, load_threads=threads)
    assert torch.equal(got, engine_logits(whole, PROMPT, precision=precision))
