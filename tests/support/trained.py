"""A tiny model that has learnt a text, byte by byte: one whose perplexity means something."""

from __future__ import annotations

from pathlib import Path

import torch
from support.tiny_hf import quiet
from support.tiny_tokenizer import write_tokenizer
from support.tiny_vocab import bpe_vocab

from halogend.engine.bench.prose import TEXT

LIMITS = {"int8": 1.01, "int4": 1.04, "fp8": 1.02}
"""Perplexity by policy, to that of bf16."""
_WINDOW, _BATCH, _STEPS = 192, 8, 150


def trained_model(path: Path) -> tuple[Path, list[int]]:
    """The directory, in bfloat16, and tokens of the text that it was trained on."""
    quiet()
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    vocab = bpe_vocab()
    config = LlamaConfig(
        vocab_size=len(vocab.tokens),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    tokens = torch.tensor([byte % len(vocab.tokens) for byte in TEXT.encode()])
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(_STEPS):
        starts = torch.randint(0, len(tokens) - _WINDOW, (_BATCH,))
        batch = torch.stack([tokens[start : start + _WINDOW] for start in starts.tolist()])
        loss = model(input_ids=batch, labels=batch).loss
        adam.param_groups[0]["lr"] = 3e-3 * (1 - step / _STEPS)
        adam.zero_grad()
        loss.backward()
        adam.step()
    model.bfloat16().save_pretrained(path)
    write_tokenizer(path, vocab)
    return path, tokens[:_WINDOW].tolist()
