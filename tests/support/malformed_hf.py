"""Malformed Hugging Face directories: a llama model in two shards, or a mixture of experts in one file,
with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from support.malformed_files import Folder, Link, Tensors, as_json, file_bytes, header_and_data, safetensors
from support.malformed_gguf import ROWS, TOKENS
from support.malformed_gguf import model as gguf_model

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


def _with_tensor(name: str, dtype: str, *shape: int) -> Folder:
    return sharded(tensors() | {name: (dtype, shape)})


def _without_tensor(name: str) -> Folder:
    return sharded({each: kind for each, kind in tensors().items() if each != name})


def _with_index(weight_map: Any) -> Folder:
    return sharded() | {INDEX: as_json({"metadata": {}, "weight_map": weight_map})}


def _weight_map(name: str, shard: str) -> Folder:
    """The index with one more line, or with another."""
    names = list(tensors())
    sound = dict.fromkeys(names[:11], SHARDS[0]) | dict.fromkeys(names[11:], SHARDS[1])
    return _with_index(sound | {name: shard})


# --- broken headers -------------------------------------------------------------------------------

_Q, _EMBEDDING = "model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight"


def _entry(name: str, **changes: Any) -> Folder:
    def edit(header: Header, data: bytes) -> bytes:
        header[name] |= changes
        return file_bytes(header, data)

    return sharded(edit=edit)


def _moved(name: str, by: int) -> Folder:
    """The tensor's place, shifted."""

    def edit(header: Header, data: bytes) -> bytes:
        begin, end = header[name]["data_offsets"]
        header[name]["data_offsets"] = [begin + by, end + by]
        return file_bytes(header, data)

    return sharded(edit=edit)


def _expert_lost() -> Folder:
    lost = "model.layers.1.mlp.experts.1.up_proj.weight"
    return single({name: kind for name, kind in mixture_tensors().items() if name != lost}, MIXTURE)


def _hole() -> Folder:
    """A tensor left out of the header, its bytes not."""

    def edit(header: Header, data: bytes) -> bytes:
        del header[_Q]
        return file_bytes(header, data)

    return sharded(edit=edit)


def _header_twice(header: Header, data: bytes) -> bytes:
    raw = file_bytes(header)[8:]
    first = raw.index(b',"model.layers')
    return file_bytes(raw[:first] + b"," + raw[1:first] + raw[first:], data)


def _no_json(header: Header, data: bytes) -> bytes:
    raw = file_bytes(header)[8:]
    return file_bytes(raw[:-1] + b"]", data)


def _too_long(header: Header, data: bytes) -> bytes:
    return (1 << 40).to_bytes(8, "little") + file_bytes(header, data)[8:]


def _past_file(header: Header, data: bytes) -> bytes:
    return (1 << 20).to_bytes(8, "little") + file_bytes(header, data)[8:]


_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 1024\n"
_LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_CONTEXT = {"original_max_position_embeddings": 64}
_VISION = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
_SLIDING = {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 64}


def _pickled() -> Folder:
    return without(sharded(), INDEX, *SHARDS) | {"pytorch_model.bin": b"PK\x03\x04"}


def _dangling() -> Folder:
    return sharded() | {SHARDS[1]: Link("../../blobs/9f86d081884c7d659a2feaa0c55ad015")}


def _not_whole(header: Header, data: bytes) -> bytes:
    return file_bytes(header, data)[:-20]


def _trailing(header: Header, data: bytes) -> bytes:
    return file_bytes(header, data) + b"more"


_CONFIG_CASES: dict[str, Callable[[], Folder]] = {
    "hf-config-missing": lambda: without(sharded(), "config.json"),
    "hf-config-empty": lambda: sharded() | {"config.json": b""},
    "hf-config-no-json": lambda: sharded() | {"config.json": as_json(CONFIG).replace(b'": 2,', b'": two,', 1)},
    "hf-config-a-list": lambda: sharded() | {"config.json": as_json([CONFIG])},
    "hf-config-key-twice": lambda: (
        sharded() | {"config.json": as_json(CONFIG).replace(b"{", b'{\n "hidden_size": 32,', 1)}
    ),
    "hf-config-dangling": lambda: sharded() | {"config.json": Link("../../blobs/2c26b46b68ffc68ff99b453c1d304134")},
    "hf-architectures-missing": lambda: with_config(architectures=...),
    "hf-architectures-two": lambda: with_config(architectures=["LlamaForCausalLM", "Qwen2ForCausalLM"]),
    "hf-architecture-vision": lambda: with_config(**_VISION),
    "hf-architecture-classifier": lambda: with_config(architectures=["LlamaForSequenceClassification"]),
    "hf-activation-unsupported": lambda: with_config(hidden_act="relu2"),
    "hf-mlp-bias": lambda: with_config(mlp_bias=True),
    "hf-rope-type-unsupported": lambda: with_config(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    "hf-rope-llama3-without-factor": lambda: with_config(rope_scaling=_LLAMA3 | _LLAMA3_CONTEXT),
    "hf-rope-llama3-factors-swapped": lambda: with_config(
        rope_scaling=_LLAMA3 | _LLAMA3_CONTEXT | {"factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}
    ),
    "hf-rope-yarn-beta-absurd": lambda: with_config(
        rope_scaling={"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e300}
    ),
    "hf-rope-no-object": lambda: with_config(rope_scaling="yarn"),
    "hf-rope-theta-text": lambda: with_config(rope_theta="1e6"),
    "hf-rope-longrope-list-too-short": lambda: with_config(
        rope_scaling={"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0] * 4}
    ),
    "hf-layer-types-too-many": lambda: with_config(**_SLIDING, layer_types=["full_attention"] * 3),
    "hf-layer-types-unknown": lambda: with_config(**_SLIDING, layer_types=["full_attention", "linear_attention"]),
    "hf-window-zero": lambda: with_config(architectures=["MistralForCausalLM"], sliding_window=0),
    "hf-hidden-missing": lambda: with_config(hidden_size=...),
    "hf-layers-as-text": lambda: with_config(num_hidden_layers="2"),
    "hf-heads-zero": lambda: with_config(num_attention_heads=0),
    "hf-heads-not-dividing": lambda: with_config(num_attention_heads=3, head_dim=...),
    "hf-kv-heads-not-dividing": lambda: with_config(num_attention_heads=4, num_key_value_heads=3),
    "hf-epsilon-negative": lambda: with_config(rms_norm_eps=-1e-5),
    "hf-vocabulary-missing": lambda: with_config(vocab_size=...),
    "hf-tied-as-text": lambda: with_config(tie_word_embeddings="false"),
    "hf-experts-missing": lambda: mixture(num_experts=...),
    "hf-experts-used-too-many": lambda: mixture(num_experts_per_tok=3),
    "hf-experts-dense-layers-text": lambda: mixture(mlp_only_layers=["0"]),
    "hf-experts-fewer-than-stored": lambda: mixture(num_experts=1),
}
_FILE_CASES: dict[str, Callable[[], Folder]] = {
    "hf-no-weights": lambda: without(sharded(), INDEX, *SHARDS),
    "hf-only-pickled": _pickled,
    "hf-index-missing": lambda: without(sharded(), INDEX),
    "hf-only-gguf": lambda: without(sharded(), INDEX, *SHARDS) | gguf_model(),
    "hf-index-no-json": lambda: sharded() | {INDEX: as_json({"weight_map": {}})[:-3]},
    "hf-index-without-map": lambda: _with_index(["model.safetensors"]),
    "hf-index-leaves-the-folder": lambda: _weight_map("lm_head.weight", "../other/model.safetensors"),
    "hf-index-names-missing-shard": lambda: _weight_map(
        "model.layers.2.mlp.up_proj.weight", "model-00003-of-00003.safetensors"
    ),
    "hf-index-names-missing-tensor": lambda: _weight_map("model.layers.2.mlp.up_proj.weight", SHARDS[1]),
    "hf-index-names-other-shard": lambda: _weight_map(_Q, SHARDS[1]),
    "hf-shard-missing": lambda: without(sharded(), SHARDS[1]),
    "hf-shard-dangling": _dangling,
    "hf-shard-a-folder": lambda: without(sharded(), SHARDS[1]) | {f"{SHARDS[1]}/part": b"1"},
    "hf-shard-empty": lambda: sharded() | {SHARDS[1]: b""},
    "hf-shard-lfs-pointer": lambda: sharded() | {SHARDS[1]: _LFS},
}
_HEADER_CASES: dict[str, Callable[[], Folder]] = {
    "hf-header-too-long": lambda: sharded(edit=_too_long),
    "hf-header-past-the-end": lambda: sharded(edit=_past_file),
    "hf-header-no-json": lambda: sharded(edit=_no_json),
    "hf-header-name-twice": lambda: sharded(edit=_header_twice),
    "hf-dtype-unknown": lambda: _entry(_Q, dtype="F6_E3M2"),
    "hf-shape-negative": lambda: _entry(_Q, shape=[-16, 8]),
    "hf-bytes-not-those-of-shape": lambda: _entry(_Q, shape=[16, 7]),
    "hf-offsets-missing": lambda: _entry(_Q, data_offsets=[0]),
    "hf-offsets-overlap": lambda: _moved(_Q, -16),
    "hf-offsets-past-the-end": lambda: sharded(edit=_not_whole),
    "hf-offsets-hole": _hole,
    "hf-bytes-of-no-tensor": lambda: sharded(edit=_trailing),
}
_TENSOR_CASES: dict[str, Callable[[], Folder]] = {
    "hf-tensor-missing": lambda: _without_tensor("model.layers.1.mlp.down_proj.weight"),
    "hf-tensor-surplus": lambda: _with_tensor("model.layers.0.self_attn.q_proj.bias", "F16", 16),
    "hf-tensor-misshapen": lambda: _with_tensor("model.layers.0.self_attn.k_proj.weight", "F16", 16, HIDDEN),
    "hf-tensor-of-integers": lambda: _with_tensor("model.layers.0.self_attn.k_proj.weight", "I64", HEAD, HIDDEN),
    "hf-tensor-in-eight-bits": lambda: _with_tensor("model.layers.0.self_attn.k_proj.weight", "F8_E4M3", HEAD, HIDDEN),
    "hf-output-missing": lambda: _without_tensor("lm_head.weight"),
    "hf-embedding-misshapen": lambda: with_config(vocab_size=ROWS + 8),
    "hf-expert-missing": _expert_lost,
}
CASES: dict[str, Callable[[], Folder]] = {
    "sound-hf-llama": sharded,
    "sound-hf-qwen3-moe": mixture,
    **_CONFIG_CASES,
    **_FILE_CASES,
    **_HEADER_CASES,
    **_TENSOR_CASES,
    # what is named and what the document says
    "format-directory-as-gguf": sharded,
    "format-gguf-as-safetensors": gguf_model,
    "format-unknown": lambda: {"model.gguf": b"PK\x03\x04, an archive"},
    "format-v2": lambda: {"model.hgn2": b"HALOGEN2" + bytes(56)},
    "format-folder-of-gguf": gguf_model,
    "format-lfs-pointer": lambda: {"model.gguf": _LFS},
    "format-weights-alone": lambda: single(tensors(), CONFIG),
    "format-hub-cache": lambda: {f"snapshots/3c7e2a/{name}": content for name, content in sharded().items()},
    "format-adapter": lambda: {"adapter_config.json": as_json({"peft_type": "LORA"}), "adapter_model.safetensors": b""},
    "format-nothing-there": lambda: {"elsewhere.txt": b"no model\n"},
}
