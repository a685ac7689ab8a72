"""The same weights as other people save them: fused, split, stacked, in one file, in half precision.

Each function takes a directory and writes another. All but `in_dtype` keep every value, so the oracle
of the first is the oracle of the second.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from support.tiny_hf import TinyDir
from torch import Tensor

State = dict[str, Tensor]
Config = dict[str, Any]
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
_FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
_EXPERT = re.compile(r"(?P<layer>model\.layers\.\d+)\.(?P<block>\w+)\.experts\.(?P<index>\d+)\.(?P<part>\w+)\.weight")
_PART_NAMES = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def read_state(folder: Path) -> State:
    """All tensors of a directory, by name."""
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def write_dir(path: Path, state: State, config: Config, like: Path, *, shards: int = 3) -> None:
    """A directory of `shards` files with an index (or of one file without), tokenizer files as in `like`."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config, indent=1))
    for name in _TOKENIZER_FILES:
        shutil.copy(like / name, path / name)
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    if shards == 1:
        save_file(state, path / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map: dict[str, str] = {}
    names = sorted(state)
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        save_file({name: state[name] for name in names[shard::shards]}, path / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names[shard::shards], file)
    total = sum(tensor.nbytes for tensor in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def fused(tiny: TinyDir, path: Path) -> TinyDir:
    """Q, K and V as one matrix, gate and up as one, as Phi-3 names them."""
    return _rewritten(tiny, path, fuse)


def fuse(state: State) -> State:
    out = dict(state)
    for merged, parts in _FUSED.items():
        for name in [name for name in state if f".{parts[0]}." in name]:
            rows = [out.pop(name.replace(parts[0], part)) for part in parts]
            out[name.replace(parts[0], merged)] = torch.cat(rows)
    return out


def split(tiny: TinyDir, path: Path) -> TinyDir:
    """Phi-3's fused matrices as separate ones."""
    config = tiny.config
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    q, kv = head_dim * config["num_attention_heads"], head_dim * config["num_key_value_heads"]
    ffn = config["intermediate_size"]
    rows = {"self_attn.qkv_proj": [q, kv, kv], "mlp.gate_up_proj": [ffn, ffn]}

    def change(state: State) -> State:
        out = dict(state)
        for merged, parts in _FUSED.items():
            for name in [name for name in state if f".{merged}." in name]:
                pieces = out.pop(name).split(rows[merged])
                out |= {name.replace(merged, part): piece for part, piece in zip(parts, pieces, strict=True)}
        return out

    return _rewritten(tiny, path, change)


def single_file(tiny: TinyDir, path: Path) -> TinyDir:
    return _rewritten(tiny, path, dict, shards=1)


def in_dtype(tiny: TinyDir, path: Path, dtype: torch.dtype) -> TinyDir:
    """Rounded to `dtype`; its oracle computes in float64 on the rounded values."""
    state = {name: tensor.to(dtype) for name, tensor in read_state(tiny.source).items()}
    write_dir(path, state, {**tiny.config, "dtype": str(dtype).removeprefix("torch.")}, tiny.source)
    return TinyDir(path, tiny.name, path)


def stacked_experts(tiny: TinyDir, path: Path) -> TinyDir:
    """Experts as transformers holds them in memory: mlp.experts.gate_up_proj [E, 2 f, h], down_proj [E, h, f]."""
    return _rewritten(tiny, path, stack_experts)


def stack_experts(state: State) -> State:
    out: State = {}
    experts: dict[str, dict[int, State]] = {}
    for name, tensor in state.items():
        if found := _EXPERT.fullmatch(name):
            part = _PART_NAMES.get(found["part"], found["part"])
            experts.setdefault(found["layer"], {}).setdefault(int(found["index"]), {})[part] = tensor
        else:
            out[name.replace("block_sparse_moe.gate", "mlp.gate")] = tensor
    for layer, members in experts.items():
        each = [members[index] for index in sorted(members)]
        gate_up = [torch.cat([parts["gate_proj"], parts["up_proj"]]) for parts in each]
        out[f"{layer}.mlp.experts.gate_up_proj"] = torch.stack(gate_up)
        out[f"{layer}.mlp.experts.down_proj"] = torch.stack([parts["down_proj"] for parts in each])
    return out


def renamed_experts(tiny: TinyDir, path: Path) -> TinyDir:
    """One tensor an expert and part, by the other of the two spellings: w1, w2, w3 in block_sparse_moe,
    or gate_proj, down_proj, up_proj in mlp."""
    there = {"mlp": "block_sparse_moe", "block_sparse_moe": "mlp"}
    parts = _PART_NAMES | {name: part for part, name in _PART_NAMES.items()}

    def renamed(name: str) -> str:
        if found := _EXPERT.fullmatch(name):
            return f"{found['layer']}.{there[found['block']]}.experts.{found['index']}.{parts[found['part']]}.weight"
        for block, other in there.items():
            if name.endswith(f".{block}.gate.weight"):
                return name.replace(block, other)
        return name

    return _rewritten(tiny, path, lambda state: {renamed(name): tensor for name, tensor in state.items()})


def with_output(tiny: TinyDir, path: Path) -> TinyDir:
    """A tied model that holds lm_head.weight all the same."""
    return _rewritten(tiny, path, lambda state: state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()})


def old_spelling(tiny: TinyDir, path: Path) -> TinyDir:
    """config.json as it was before transformers 5: rope_theta and rope_scaling, torch_dtype, no layer types."""
    write_dir(path, read_state(tiny.source), old_config(tiny.config), tiny.source)
    return replace(tiny, path=path)


def old_config(config: Config) -> Config:
    out = {key: value for key, value in config.items() if key not in ("rope_parameters", "layer_types", "dtype")}
    out["torch_dtype"] = config["dtype"]
    rope = dict(config["rope_parameters"])
    if "full_attention" in rope:
        out["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        out["sliding_window_pattern"] = out.pop("_sliding_window_pattern", 6)
        rope = dict(rope["full_attention"])
    out["rope_theta"] = rope.pop("rope_theta")
    factor = rope.pop("partial_rotary_factor", None)
    if factor is not None:
        out["partial_rotary_factor"] = factor
    if rope.pop("rope_type") == "default":
        out["rope_scaling"] = None
    else:
        out["rope_scaling"] = rope | _scaling_type(config)
    if config["model_type"] == "qwen3_moe":
        out["num_experts"] = out.pop("num_local_experts")
    return out


def _scaling_type(config: Config) -> dict[str, str]:
    """Older files say `type`; those of Llama 3.1 and Gemma 3 never did."""
    rope = config["rope_parameters"]
    kind = rope.get("full_attention", rope)["rope_type"]
    return {"rope_type": kind} if kind == "llama3" or "full_attention" in rope else {"type": kind}


def _rewritten(tiny: TinyDir, path: Path, change: Callable[[State], State], *, shards: int = 3) -> TinyDir:
    write_dir(path, change(read_state(tiny.source)), tiny.config, tiny.source, shards=shards)
    return replace(tiny, path=path)


# By name: the layout and a variant that it makes a difference to.
LAYOUTS: dict[str, tuple[str, Callable[[TinyDir, Path], TinyDir]]] = {
    "fused-llama": ("llama-bias", fused),
    "fused-qwen3": ("qwen3", fused),
    "split-phi3": ("phi3-longrope", split),
    "single-file": ("qwen2", single_file),
    "bfloat16": ("mistral", lambda tiny, path: in_dtype(tiny, path, torch.bfloat16)),
    "float16": ("llama", lambda tiny, path: in_dtype(tiny, path, torch.float16)),
    "tied-with-output": ("qwen2", with_output),
    "stacked-mixtral": ("mixtral", stacked_experts),
    "stacked-qwen3_moe": ("qwen3_moe-mixed", stacked_experts),
    "renamed-mixtral": ("mixtral", renamed_experts),
    "old-llama3": ("llama-llama3", old_spelling),
    "old-linear": ("llama-linear", old_spelling),
    "old-yarn": ("llama-yarn", old_spelling),
    "old-gemma2": ("gemma2", old_spelling),
    "old-gemma3": ("gemma3_text", old_spelling),
    "old-qwen2-window": ("qwen2-window", old_spelling),
    "old-qwen3_moe": ("qwen3_moe-mixed", old_spelling),
    "old-phi3": ("phi3-longrope", old_spelling),
}
