"""Malformed GGUF files: a llama model of two layers, 8 wide, with one thing wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from support.malformed_files import F16, F32, I32, Q4_0, Entry, Folder, gguf

FILE = "model.gguf"
TOKENS = ["<s>", "</s>", *"abcdefghijklmnop", "Ġ", "ab", "cd", "Ġa"]
ROWS = 24  # of the embedding: two to spare
HIDDEN, KV = 8, 4  # values of a position, and of its key
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, *[1] * (len(TOKENS) - 2)],
    "tokenizer.ggml.merges": ["a b", "c d", "Ġ a"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
}
KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": HIDDEN,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    **TOKENIZER,
}
MERGED_ROWS = HIDDEN + 2 * KV  # Q, K and V
_KEY_NAMES = ("llama.embedding_length", "llama.attention.key_length", "llama.attention.value_length")


def tensors(h: int = HIDDEN) -> dict[str, Entry]:
    """By name, for a model `h` wide."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (ROWS, h), "output_norm": (h,)}
    for layer in range(2):
        shapes |= {
            f"blk.{layer}.attn_norm": (h,),
            f"blk.{layer}.attn_q": (HIDDEN, h),
            f"blk.{layer}.attn_k": (KV, h),
            f"blk.{layer}.attn_v": (KV, h),
            f"blk.{layer}.attn_output": (h, HIDDEN),
            f"blk.{layer}.ffn_norm": (h,),
            f"blk.{layer}.ffn_gate": (HIDDEN, h),
            f"blk.{layer}.ffn_up": (HIDDEN, h),
            f"blk.{layer}.ffn_down": (h, HIDDEN),
        }
    kinds = {1: F32, 2: F16}
    return {f"{name}.weight": Entry(f"{name}.weight", shape, kinds[len(shape)]) for name, shape in shapes.items()}


def model(keys: Mapping[str, Any] = KEYS, entries: Iterable[Entry] | None = None, **header: Any) -> Folder:
    return {FILE: gguf(keys.items(), tensors().values() if entries is None else entries, **header)}


def with_keys(changes: Mapping[str, Any], entries: Iterable[Entry] | None = None) -> Folder:
    """None leaves a key out."""
    changed = {key: value for key, value in (KEYS | changes).items() if value is not None}
    return model(changed, entries)


def with_tensor(name: str, **changes: Any) -> Folder:
    """The line of one tensor, otherwise."""
    entries = tensors()
    return model(entries=(entries | {name: replace(entries[name], **changes)}).values())


def _raw(number: int, layout: str, *values: Any) -> bytes:
    return struct.pack("<I" + layout, number, *values)


def _cut_at(needle: bytes, beyond: int = 0) -> Folder:
    """The file up to where `needle` ends, and some bytes more."""
    data = model()[FILE]
    return {FILE: data[: data.index(needle) + len(needle) + beyond]}


def _cut_in_data() -> Folder:
    return {FILE: model()[FILE][:-100]}


def _key_twice() -> Folder:
    return {FILE: gguf([*KEYS.items(), ("llama.block_count", 4)], tensors().values())}


def _merged(rows: int) -> Folder:
    """Q, K and V of the first layer in one matrix."""
    parts = [f"blk.0.attn_{part}.weight" for part in "qkv"]
    entries = [entry for name, entry in tensors().items() if name not in parts]
    return model(entries=[*entries, Entry("blk.0.attn_qkv.weight", (rows, HIDDEN))])


def _norm_in_blocks() -> Folder:
    """Four times as wide, so that a norm is as long as a block."""
    name, wide = "blk.0.attn_norm.weight", 4 * HIDDEN
    sizes = dict(zip(_KEY_NAMES, (wide, KV, KV), strict=True))
    entries = tensors(wide) | {name: Entry(name, (wide,), Q4_0)}
    return with_keys(sizes, entries=entries.values())


def _mixture() -> Folder:
    """Two experts of which three are asked."""
    return with_keys({"llama.expert_count": 2, "llama.expert_used_count": 3})


def _without(name: str) -> Folder:
    return model(entries=[entry for entry in tensors().values() if entry.name != name])


def _twice(name: str) -> Folder:
    return model(entries=[*tensors().values(), tensors()[name]])


CASES: dict[str, Callable[[], Folder]] = {
    "sound-gguf": model,
    "sound-gguf-merged-qkv": lambda: _merged(MERGED_ROWS),
    # the file itself
    "gguf-empty-file": lambda: {FILE: b""},
    "gguf-magic-wrong": lambda: model(magic=b"GGML"),
    "gguf-version-1": lambda: model(version=1),
    "gguf-version-4": lambda: model(version=4),
    "gguf-big-endian": lambda: model(order=">"),
    "gguf-cut-in-header": lambda: {FILE: model()[FILE][:10]},
    "gguf-cut-in-metadata": lambda: _cut_at(b"tokenizer.ggml.token_type", 40),
    "gguf-cut-in-tensor-table": lambda: _cut_at(b"blk.1.attn_k.weight", 7),
    "gguf-cut-in-data": _cut_in_data,
    # metadata
    "gguf-cut-after-counts": lambda: {FILE: model()[FILE][:200]},
    "gguf-key-count-impossible": lambda: model(counts=(20, 1 << 40)),
    "gguf-key-twice": _key_twice,
    "gguf-key-type-unknown": lambda: with_keys({"general.name": _raw(99, "I", 0)}),
    "gguf-key-no-utf8": lambda: with_keys({"general.name": _raw(8, "Q3s", 3, b"\xff\xfe\xfd")}),
    "gguf-array-length-impossible": lambda: with_keys({"general.tags": _raw(9, "IQ", 4, 1 << 50)}),
    "gguf-array-of-arrays": lambda: with_keys({"general.tags": _raw(9, "IQ", 9, 1)}),
    "gguf-alignment-impossible": lambda: with_keys({"general.alignment": 48}),
    "gguf-architecture-missing": lambda: with_keys({"general.architecture": None}),
    "gguf-architecture-no-text": lambda: with_keys({"general.architecture": 7}),
    "gguf-architecture-unsupported": lambda: with_keys({"general.architecture": "mamba"}),
    # hyper-parameters
    "gguf-hidden-missing": lambda: with_keys({"llama.embedding_length": None}),
    "gguf-layers-as-text": lambda: with_keys({"llama.block_count": "2"}),
    "gguf-heads-zero": lambda: with_keys({"llama.attention.head_count": 0}),
    "gguf-heads-a-list": lambda: with_keys({"llama.attention.head_count": [2, 2, 2]}),
    "gguf-heads-not-dividing": lambda: with_keys({"llama.attention.head_count": 3}),
    "gguf-kv-heads-not-dividing": lambda: with_keys({"llama.attention.head_count_kv": 4}),
    "gguf-head-size-odd": lambda: with_keys({"llama.attention.key_length": 7}),
    "gguf-epsilon-zero": lambda: with_keys({"llama.attention.layer_norm_rms_epsilon": 0.0}),
    "gguf-epsilon-infinite": lambda: with_keys({"llama.attention.layer_norm_rms_epsilon": float("inf")}),
    "gguf-rope-base-below-one": lambda: with_keys({"llama.rope.freq_base": 0.5}),
    "gguf-rope-dimension-too-large": lambda: with_keys({"llama.rope.dimension_count": 64}),
    "gguf-rope-scaling-unknown": lambda: with_keys({"llama.rope.scaling.type": "ntk"}),
    "gguf-experts-too-many": lambda: with_keys({"llama.expert_count": 65536, "llama.expert_used_count": 3}),
    "gguf-experts-used-too-many": _mixture,
    # the tensor table
    "gguf-tensor-count-impossible": lambda: model(counts=(1 << 40, len(KEYS))),
    "gguf-tensor-past-the-end": lambda: with_tensor("blk.1.ffn_up.weight", offset=1 << 20),
    "gguf-tensor-misaligned": lambda: with_tensor("blk.1.ffn_up.weight", offset=33),
    "gguf-tensors-overlap": lambda: with_tensor("blk.0.attn_k.weight", offset=64),
    "gguf-tensor-twice": lambda: _twice("blk.1.ffn_norm.weight"),
    "gguf-tensor-type-unknown": lambda: with_tensor("blk.0.attn_v.weight", kind=77),
    "gguf-tensor-of-integers": lambda: with_tensor("blk.0.attn_v.weight", kind=I32),
    "gguf-tensor-row-no-whole-blocks": lambda: with_tensor("blk.0.attn_v.weight", kind=Q4_0),
    "gguf-tensor-without-rows": lambda: with_tensor("blk.0.attn_v.weight", shape=(0, HIDDEN)),
    "gguf-tensor-of-five-dimensions": lambda: with_tensor("blk.0.attn_v.weight", shape=(1, 1, 1, KV, HIDDEN)),
    "gguf-norm-in-blocks": _norm_in_blocks,
    # the model's tensors
    "gguf-embedding-missing": lambda: _without("token_embd.weight"),
    "gguf-embedding-no-matrix": lambda: with_tensor("token_embd.weight", shape=(ROWS, 2, HIDDEN)),
    "gguf-tensor-missing": lambda: _without("blk.1.attn_output.weight"),
    "gguf-tensor-surplus": lambda: model(entries=[*tensors().values(), Entry("blk.0.ffn_gate.bias", (HIDDEN,), F32)]),
    "gguf-tensor-misshapen": lambda: with_tensor("blk.1.attn_v.weight", shape=(HIDDEN, HIDDEN)),
    "gguf-merged-qkv-too-low": lambda: _merged(MERGED_ROWS - KV),
    "gguf-layer-too-few": lambda: with_keys({"llama.block_count": 1}),
    "gguf-layer-too-many": lambda: with_keys({"llama.block_count": 3}),
    "gguf-more-tokens-than-rows": lambda: with_tensor("token_embd.weight", shape=(16, HIDDEN)),
}
