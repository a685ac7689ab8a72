"""Malformed Hugging Face directories start from these: a llama model in two shards, or a mixture of
experts in one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from support.malformed_files import Folder, Tensors, as_json, file_bytes, header_and_data, safetensors
from support.malformed_gguf import ROWS, TOKENS

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
HIDDEN, FFN, HEAD, EXPERTS = 8, 8, 8, 2
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": ROWS,
    "dtype": "float16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
MIXTURE: dict[str, Any] = CONFIG | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": EXPERTS,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": FFN,
    "norm_topk_prob": True,
}
Header = dict[str, Any]
Edit = Callable[[Header, bytes], bytes]


# --- sound parts ----------------------------------------------------------------------------------


def tokenizer_json() -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": TOKENS[index], **flags} for index in range(2)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: index for index, text in enumerate(TOKENS)},
            "merges": [["a", "b"], ["c", "d"], ["Ġ", "a"]],
        },
    }


TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}


def text_part() -> Folder:
    return {"tokenizer.json": as_json(tokenizer_json()), "tokenizer_config.json": as_json(TOKENIZER_CONFIG)}


def _attention(prefix: str, h: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{prefix}.input_layernorm.weight": ("F16", (h,)),
        f"{prefix}.self_attn.q_proj.weight": ("F16", (2 * HEAD, h)),
        f"{prefix}.self_attn.k_proj.weight": ("F16", (HEAD, h)),
        f"{prefix}.self_attn.v_proj.weight": ("F16", (HEAD, h)),
        f"{prefix}.self_attn.o_proj.weight": ("F16", (h, 2 * HEAD)),
        f"{prefix}.post_attention_layernorm.weight": ("F16", (h,)),
    }


def _feed_forward(prefix: str, h: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{prefix}.gate_proj.weight": ("F16", (FFN, h)),
        f"{prefix}.up_proj.weight": ("F16", (FFN, h)),
        f"{prefix}.down_proj.weight": ("F16", (h, FFN)),
    }


def tensors(h: int = HIDDEN) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Of a model `h` wide."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {"model.embed_tokens.weight": ("F16", (ROWS, h))}
    for layer in ("model.layers.0", "model.layers.1"):
        found |= _attention(layer, h) | _feed_forward(f"{layer}.mlp", h)
    return found | {"model.norm.weight": ("F16", (h,)), "lm_head.weight": ("F16", (ROWS, h))}


def mixture_tensors() -> dict[str, tuple[str, tuple[int, ...]]]:
    found: dict[str, tuple[str, tuple[int, ...]]] = {"model.embed_tokens.weight": ("F16", (ROWS, HIDDEN))}
    for layer in ("model.layers.0", "model.layers.1"):
        found |= _attention(layer, HIDDEN)
        found |= {f"{layer}.self_attn.{part}_norm.weight": ("F16", (HEAD,)) for part in "qk"}
        found[f"{layer}.mlp.gate.weight"] = ("F16", (EXPERTS, HIDDEN))
        for expert in range(EXPERTS):
            found |= _feed_forward(f"{layer}.mlp.experts.{expert}", HIDDEN)
    return found | {"model.norm.weight": ("F16", (HIDDEN,)), "lm_head.weight": ("F16", (ROWS, HIDDEN))}


# --- whole directories ----------------------------------------------------------------------------


def sharded(table: Tensors | None = None, config: Mapping[str, Any] = CONFIG, edit: Edit | None = None) -> Folder:
    """`edit` makes the first shard's file of its header and its data."""
    table = tensors() if table is None else table
    names = list(table)
    parts = [{name: table[name] for name in half} for half in (names[:11], names[11:])]
    header, data = header_and_data(parts[0])
    weight_map = {name: shard for shard, part in zip(SHARDS, parts, strict=True) for name in part}
    return {
        "config.json": as_json(config),
        INDEX: as_json({"metadata": {}, "weight_map": weight_map}),
        SHARDS[0]: edit(header, data) if edit else file_bytes(header, data),
        SHARDS[1]: safetensors(parts[1]),
        **text_part(),
    }


def single(table: Tensors, config: Mapping[str, Any]) -> Folder:
    return {"config.json": as_json(config), SINGLE: safetensors(table), **text_part()}


def mixture(**changes: Any) -> Folder:
    return single(mixture_tensors(), _changed(MIXTURE, changes))


def with_config(**changes: Any) -> Folder:
    """`...` leaves a key out."""
    return sharded(config=_changed(CONFIG, changes))


def _changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**config, **changes}.items() if value is not ...}


def without(folder: Folder, *names: str) -> Folder:
    return {name: content for name, content in folder.items() if name not in names}


CASES: dict[str, Callable[[], Folder]] = {"sound-hf-llama": sharded, "sound-hf-qwen3-moe": mixture}
