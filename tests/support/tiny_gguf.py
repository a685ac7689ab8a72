"""A tiny Hugging Face directory written as a GGUF file, as llama.cpp's converter writes such models.

Names come from the `gguf` package's own map, values of keys from config.json. What a converter loses
is lost here too: windows of Mistral and Qwen2 have no key.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from support.tiny_hf import TinyDir
from support.tiny_layouts import read_state, write_dir
from support.tiny_vocab import TinyVocab, value_type
from torch import Tensor, from_numpy, stack

_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
}
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
NO_NUMBERS: Mapping[str, float] = MappingProxyType({})
_UNUSED = 5  # the type of a token that only pads the vocabulary


def from_hf(tiny: TinyDir, path: Path, kind: str = "F32", numbers: Mapping[str, float] = NO_NUMBERS) -> Path:
    """The model of `tiny` in the file `path`, matrices as the GGUF type `kind`, vectors and routers F32;
    `numbers` are keys beside the usual, below the architecture's name."""
    config = tiny.config
    architecture = _ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_name("tiny")  # llama.cpp asks a file that is named after Phi for its tokens
    _sizes(writer, config)
    _rope(writer, config)
    _special(writer, config)
    for key, number in numbers.items():
        writer.add_float32(f"{gguf.MODEL_ARCH_NAMES[architecture]}.{key}", number)
    _tokens(writer, tiny.vocab, config["vocab_size"])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, tensor in _tensors(tiny, config).items():
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if ours is None:
            raise ValueError(f"{name} has no place in {architecture.name}")
        _add(writer, ours, tensor, "F32" if "ffn_gate_inp" in ours else kind)
    for ours, factors in _rope_factors(config).items():
        writer.add_tensor(ours, np.array(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rounded(tiny: TinyDir, path: Path, kind: str) -> TinyDir:
    """The directory whose float32 weights are those that `from_hf` leaves in a file of this kind."""
    state = read_state(tiny.source)
    for name, tensor in state.items():
        if tensor.dim() > 1 and not name.endswith(".gate.weight"):
            quantised = gguf.GGMLQuantizationType[kind]
            packed = gguf.quants.quantize(tensor.numpy(), quantised)
            state[name] = from_numpy(gguf.quants.dequantize(packed, quantised).copy())
    write_dir(path, state, tiny.config, tiny.source)
    return TinyDir(path, tiny.name, path)


def _sizes(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config["model_type"] != "phi3":
        writer.add_key_length(_head_dim(config))
        writer.add_value_length(_head_dim(config))
    if config["model_type"] in ("llama", "mistral", "mixtral"):
        writer.add_vocab_size(config["vocab_size"])


def _rope(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = _global_rope(config)
    writer.add_rope_freq_base(rope["rope_theta"])
    if "sliding_attention" in config["rope_parameters"]:
        writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
    if config["model_type"] in ("llama", "mistral", "mixtral", "phi3"):
        writer.add_rope_dimension_count(int(_head_dim(config) * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if config["model_type"] == "phi3":
        original = config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        if rope["rope_type"] == "longrope":
            stretch = config["max_position_embeddings"] / original
            writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))


def _special(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    model = config["model_type"]
    if model in ("gemma2", "gemma3_text"):
        writer.add_sliding_window(config["sliding_window"])
    if model == "phi3":
        writer.add_sliding_window(config["sliding_window"] or 0)
    if model == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if experts := config.get("num_local_experts", config.get("num_experts")):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def _tokens(writer: gguf.GGUFWriter, vocab: TinyVocab, rows: int) -> None:
    padding = rows - len(vocab.tokens)
    writer.add_token_list([*vocab.tokens, *(f"[PAD{len(vocab.tokens) + index}]" for index in range(padding))])
    writer.add_token_types([*vocab.types, *[_UNUSED] * padding])
    for key, value in vocab.metadata.items():
        if key == "scores":
            writer.add_token_scores([*value, *[-1000.0] * padding])
        else:
            writer.add_key_value(f"tokenizer.ggml.{key}", value, *value_type(value))


def _tensors(tiny: TinyDir, config: dict[str, Any]) -> dict[str, Tensor]:
    """By the names of transformers, experts stacked, values as GGUF files of this architecture hold them."""
    out: dict[str, Tensor] = {}
    experts: dict[str, dict[int, Tensor]] = defaultdict(dict)
    for name, tensor in read_state(tiny.source).items():
        if found := _EXPERT.fullmatch(name):
            experts[_stacked_name(*found.group(1, 3))][int(found[2])] = tensor
        else:
            out[name] = _converted(name, tensor, config)
    return out | {name: stack([parts[index] for index in sorted(parts)]) for name, parts in experts.items()}


def _stacked_name(prefix: str, part: str) -> str:
    if part in ("w1", "w2", "w3"):
        layer = prefix.split(".")[2]
        return f"layers.{layer}.feed_forward.experts.{part}.weight"
    return f"{prefix}.{part}.weight"


def _converted(name: str, tensor: Tensor, config: dict[str, Any]) -> Tensor:
    if config["model_type"].startswith("gemma") and name.endswith("norm.weight"):
        return tensor + 1
    if config["model_type"] in ("llama", "mistral", "mixtral"):
        if ".q_proj." in name:
            return _adjacent(tensor, config["num_attention_heads"])
        if ".k_proj." in name:
            return _adjacent(tensor, config["num_key_value_heads"])
    return tensor


def _adjacent(tensor: Tensor, heads: int) -> Tensor:
    """Rows of each head from (i, i + d/2) to (2i, 2i + 1)."""
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _rope_factors(config: dict[str, Any]) -> dict[str, list[float]]:
    """Tensors of RoPE: what each pair's frequency is divided by."""
    rope = _global_rope(config)
    if rope["rope_type"] == "longrope":
        return {"rope_factors_long.weight": rope["long_factor"], "rope_factors_short.weight": rope["short_factor"]}
    if rope["rope_type"] == "llama3":
        return {"rope_freqs.weight": [_llama3_divisor(rope, pair / _head_dim(config)) for pair in _pairs(config)]}
    return {}


def _pairs(config: dict[str, Any]) -> range:
    return range(0, _head_dim(config), 2)


def _llama3_divisor(rope: dict[str, Any], exponent: float) -> float:
    """Llama 3.1's published rule: long waves are stretched, short ones kept, between them blended."""
    turns = rope["original_max_position_embeddings"] / (2 * math.pi * rope["rope_theta"] ** exponent)
    blend = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    blend = min(max(blend, 0.0), 1.0)
    return float(1 / ((1 - blend) / rope["factor"] + blend))


def _global_rope(config: dict[str, Any]) -> dict[str, Any]:
    return dict(config["rope_parameters"].get("full_attention", config["rope_parameters"]))


def _head_dim(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _add(writer: gguf.GGUFWriter, name: str, tensor: Tensor, kind: str) -> None:
    values = tensor.float().contiguous().numpy()
    if kind == "F32" or values.ndim == 1:
        writer.add_tensor(name, values)
        return
    quantised = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(name, gguf.quants.quantize(values, quantised), raw_dtype=quantised)
