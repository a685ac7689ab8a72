"""Tiny models with random weights, written as GGUF, with `transformers` as their oracle.

    tiny = tiny_llama(tmp_path / "a.gguf", layers=2, seed=3)
    tiny.path                   the file, with a working tokenizer
    tiny.reference()            the same weights in transformers, float32, eval mode

Writing a file takes milliseconds and does not import transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from support.tiny_vocab import TinyVocab, bpe_vocab, spm_vocab, value_type
from torch import Tensor

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
    "+ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class TinyShape:
    """What both architectures share. `kind` is the GGUF type of the matrices."""

    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 96
    context: int = 512
    tied: bool = True
    kind: str = "F32"
    seed: int = 0
    chat_template: str | None = None
    extra_vocab: int = 0  # unused tokens at the end, to make the vocabulary larger


@dataclass(frozen=True)
class TinyModel:
    path: Path
    vocab_size: int
    context: int
    build: Callable[[], Any]

    def reference(self) -> Any:
        """The transformers model."""
        return self.build()


def tiny_llama(path: Path, *, rope_base: float = 10_000.0, long_rope: bool = False, **shape: Any) -> TinyModel:
    """`shape` are fields of TinyShape. `long_rope` adds Llama 3's frequency factors."""
    form = TinyShape(**shape)
    vocab = bpe_vocab()
    weights = _random_weights(form, len(vocab.tokens) + form.extra_vocab, gemma=False)
    writer = _writer(path, "llama", form, vocab, rope_base)
    writer.add_rope_dimension_count(form.head_dim)
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 64
    if long_rope:
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(form.head_dim, rope_base, scaling))
    for name, tensor in weights.items():
        heads = {"q_proj": form.heads, "k_proj": form.kv_heads}.get(name.split(".")[-2])
        _add(writer, _GGUF_NAMES, name, _adjacent(tensor, heads) if heads else tensor, form.kind)
    _finish(writer)

    def build() -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM

        parameters = {"rope_theta": rope_base, **(scaling if long_rope else {"rope_type": "default"})}
        config = LlamaConfig(**_common_config(form, weights), rope_parameters=parameters, rms_norm_eps=1e-5)
        return _filled(LlamaForCausalLM(config), weights, form.tied)

    return TinyModel(path, len(vocab.tokens) + form.extra_vocab, form.context, build)


def tiny_gemma3(path: Path, *, window: int = 16, **shape: Any) -> TinyModel:
    """`shape` are fields of TinyShape; with 7 layers the sixth is global, the others see `window`."""
    form = TinyShape(**{"layers": 7, "kv_heads": 1, "head_dim": 32, **shape})
    vocab = spm_vocab()
    weights = _random_weights(form, len(vocab.tokens) + form.extra_vocab, gemma=True)
    writer = _writer(path, "gemma3", form, vocab, 1_000_000.0)
    writer.add_sliding_window(window)
    for name, tensor in weights.items():
        _add(writer, _GEMMA_NAMES, name, tensor + 1 if "norm" in name else tensor, form.kind)
    _finish(writer)

    def build() -> Any:
        from transformers import Gemma3ForCausalLM, Gemma3TextConfig

        config = Gemma3TextConfig(
            **_common_config(form, weights),
            sliding_window=window,
            query_pre_attn_scalar=form.head_dim,
            rms_norm_eps=1e-5,
        )
        return _filled(Gemma3ForCausalLM(config), weights, form.tied)

    return TinyModel(path, len(vocab.tokens) + form.extra_vocab, form.context, build)


def _random_weights(form: TinyShape, vocab: int, *, gemma: bool) -> dict[str, Tensor]:
    """By the names transformers uses. Large enough that logits are well apart."""
    generator = torch.Generator().manual_seed(form.seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * 1.6 * columns**-0.5

    def norm(width: int) -> Tensor:
        return torch.randn(width, generator=generator) * 0.2 + (0.0 if gemma else 1.0)

    # Gemma scales embeddings up: with larger ones a tied model repeats its input.
    scale = 0.03 if gemma else 1.0
    weights = {"model.embed_tokens.weight": torch.randn(vocab, form.hidden, generator=generator) * scale}
    for index in range(form.layers):
        layer = {
            "input_layernorm": norm(form.hidden),
            "self_attn.q_proj": matrix(form.heads * form.head_dim, form.hidden),
            "self_attn.k_proj": matrix(form.kv_heads * form.head_dim, form.hidden),
            "self_attn.v_proj": matrix(form.kv_heads * form.head_dim, form.hidden),
            "self_attn.o_proj": matrix(form.hidden, form.heads * form.head_dim),
            "post_attention_layernorm": norm(form.hidden),
            "mlp.gate_proj": matrix(form.ffn, form.hidden),
            "mlp.up_proj": matrix(form.ffn, form.hidden),
            "mlp.down_proj": matrix(form.hidden, form.ffn),
        }
        if gemma:
            layer |= {
                "self_attn.q_norm": norm(form.head_dim),
                "self_attn.k_norm": norm(form.head_dim),
                "pre_feedforward_layernorm": norm(form.hidden),
                "post_feedforward_layernorm": norm(form.hidden),
            }
        weights |= {f"model.layers.{index}.{name}.weight": tensor for name, tensor in layer.items()}
    weights["model.norm.weight"] = norm(form.hidden) + (6.0 if gemma else 0.0)
    if not form.tied:
        weights["lm_head.weight"] = torch.randn(vocab, form.hidden, generator=generator)
    return weights


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA_NAMES = _GGUF_NAMES | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _writer(path: Path, architecture: str, form: TinyShape, vocab: TinyVocab, rope_base: float) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_context_length(form.context)
    writer.add_embedding_length(form.hidden)
    writer.add_block_count(form.layers)
    writer.add_feed_forward_length(form.ffn)
    writer.add_head_count(form.heads)
    writer.add_head_count_kv(form.kv_heads)
    writer.add_key_length(form.head_dim)
    writer.add_value_length(form.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(rope_base)
    writer.add_token_list([*vocab.tokens, *(f"<unused{index}>" for index in range(form.extra_vocab))])
    writer.add_token_types([*vocab.types, *[1] * form.extra_vocab])
    for key, value in vocab.metadata.items():
        if key == "scores":
            writer.add_token_scores([*value, *[-1000.0] * form.extra_vocab])
        else:
            writer.add_key_value(f"tokenizer.ggml.{key}", value, *value_type(value))
    if form.chat_template is not None:
        writer.add_chat_template(form.chat_template)
    return writer


def _add(writer: gguf.GGUFWriter, names: dict[str, str], name: str, tensor: Tensor, kind: str) -> None:
    """Writes a tensor known to transformers as `name`; vectors stay F32."""
    parts = name.removesuffix(".weight").split(".")
    if parts[1:2] == ["layers"]:
        ours = f"blk.{parts[2]}.{names['.'.join(parts[3:])]}.weight"
    else:
        ours = f"{names['.'.join(parts)]}.weight"
    values = tensor.contiguous().numpy().astype(np.float32)
    if kind == "F32" or values.ndim == 1:
        writer.add_tensor(ours, values)
        return
    quantised = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(ours, gguf.quants.quantize(values, quantised), raw_dtype=quantised)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _adjacent(tensor: Tensor, heads: int) -> Tensor:
    """Rows of each head from (i, i + d/2) to (2i, 2i + 1), as converters write this architecture."""
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _llama3_divisors(head_dim: int, base: float, scaling: dict[str, Any]) -> np.ndarray:
    """Llama 3.1's published rule: long waves are stretched, short ones kept, between them blended."""
    frequencies = base ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    waves = 2 * np.pi / frequencies
    length, low, high = (
        scaling["original_max_position_embeddings"],
        scaling["low_freq_factor"],
        scaling["high_freq_factor"],
    )
    smooth = np.clip((length / waves - low) / (high - low), 0, 1)
    divisors = 1 / ((1 - smooth) / scaling["factor"] + smooth)
    return divisors.astype(np.float32)


def _common_config(form: TinyShape, weights: dict[str, Tensor]) -> dict[str, Any]:
    return {
        "vocab_size": len(weights["model.embed_tokens.weight"]),
        "hidden_size": form.hidden,
        "intermediate_size": form.ffn,
        "num_hidden_layers": form.layers,
        "num_attention_heads": form.heads,
        "num_key_value_heads": form.kv_heads,
        "head_dim": form.head_dim,
        "max_position_embeddings": form.context,
        "tie_word_embeddings": form.tied,
        "attn_implementation": "eager",
    }


def _filled(model: Any, weights: dict[str, Tensor], tied: bool) -> Any:
    state = dict(weights)
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model.float().eval()
