"""Tiny models with random weights as Hugging Face directories, with transformers as their oracle.

tiny = make("qwen3", tmp_path / "model", seed=3)
tiny.path            config.json, shards with an index, tokenizer files
tiny.reference()     the model in transformers: float64, eager attention
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from support.tiny_families import COMMON, VARIANTS, Variant
from support.tiny_tokenizer import write_tokenizer
from support.tiny_vocab import TinyVocab, bpe_vocab, spm_vocab
from torch import Tensor

_SHARD = "150KB"


@dataclass(frozen=True)
class TinyDir:
    """A directory in some layout; `source` is one with the same weights that transformers reads.
    `stretched` tells which factors the oracle of a longrope model takes, for every length: the long
    ones, as an engine does that serves its whole context, or the short ones."""

    path: Path
    name: str
    source: Path
    stretched: bool = True

    @property
    def variant(self) -> Variant:
        return VARIANTS[self.name]

    @property
    def vocab(self) -> TinyVocab:
        return vocabulary(self.variant)

    @property
    def config(self) -> dict[str, Any]:
        """config.json of `source`."""
        return read_config(self.source)

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table."""
        return int(self.config["vocab_size"])

    def reference(self) -> Any:
        """In float64, eval mode, eager attention."""
        quiet()
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(
            self.source, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32
        )
        if self.config.get("rope_parameters", {}).get("rope_type") == "longrope":
            _fix_factors(model, stretched=self.stretched)
        return model.double().eval()


def make(name: str, path: Path, *, seed: int = 0, **overrides: Any) -> TinyDir:
    """The variant `name` of VARIANTS in the new folder `path`; `overrides` are configuration keys of
    transformers."""
    quiet()
    import transformers

    variant = VARIANTS[name]
    vocab = vocabulary(variant)
    values = {
        **COMMON,
        "vocab_size": len(vocab.tokens) + variant.extra_rows,
        "bos_token_id": vocab.metadata["bos_token_id"],
        "eos_token_id": vocab.metadata["eos_token_id"],
        **variant.config,
        **overrides,
    }
    prefix = "Gemma3Text" if variant.model == "Gemma3" else variant.model
    config = getattr(transformers, f"{prefix}Config")(**json.loads(json.dumps(values)))
    model = getattr(transformers, f"{variant.model}ForCausalLM")(config)
    fill(model, seed, gemma=variant.gemma)
    model.save_pretrained(path, max_shard_size=_SHARD)
    write_tokenizer(path, vocab)
    return TinyDir(path, name, path)


def read_config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


def vocabulary(variant: Variant) -> TinyVocab:
    return spm_vocab() if variant.spm else bpe_vocab()


@torch.no_grad()
def fill(model: Any, seed: int, *, gemma: bool) -> None:
    """Random weights, large enough that logits are well apart and text does not repeat itself."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        parameter.copy_(_random(name, parameter, generator, gemma=gemma))
    model.tie_weights()


def _random(name: str, like: Tensor, generator: torch.Generator, *, gemma: bool) -> Tensor:
    drawn = torch.randn(like.shape, generator=generator)
    if name.endswith("bias"):
        return drawn * 0.4
    if name == "model.norm.weight" and gemma:
        return drawn * 0.2 + 6.0
    if like.dim() == 1:
        return drawn * 0.2 + (0.0 if gemma else 1.0)
    if name in ("model.embed_tokens.weight", "lm_head.weight"):
        # Gemma scales embeddings up: with larger ones a tied model repeats its input.
        return drawn * (0.03 if gemma else 1.0)
    return drawn * 1.6 * like.shape[-1] ** -0.5


def _fix_factors(model: Any, *, stretched: bool) -> None:
    """transformers changes over when a sequence grows past the original length, keys in its cache or not."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rotary = model.model.rotary_emb
    original = rotary.config.rope_parameters["original_max_position_embeddings"]
    length = original + 1 if stretched else original
    factors, _ = ROPE_INIT_FUNCTIONS["longrope"](rotary.config, "cpu", seq_len=length)
    rotary.original_inv_freq.copy_(factors)
    rotary.long_inv_freq = factors


def quiet() -> None:
    """transformers without progress bars and notes of what it saved."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
