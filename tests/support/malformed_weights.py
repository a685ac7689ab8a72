"""Malformed weights of Hugging Face directories: files, indexes, headers, tensors; and what is no model at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.malformed_files import LFS_POINTER, Folder, Link, as_json, file_bytes
from support.malformed_gguf import ROWS
from support.malformed_gguf import model as gguf_model
from support.malformed_hf import (
    CONFIG,
    HEAD,
    HIDDEN,
    INDEX,
    MIXTURE,
    SHARDS,
    Header,
    mixture_tensors,
    sharded,
    single,
    tensors,
    with_config,
    without,
)


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

_Q = "model.layers.0.self_attn.q_proj.weight"


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


def _pickled() -> Folder:
    return without(sharded(), INDEX, *SHARDS) | {"pytorch_model.bin": b"PK\x03\x04"}


def _dangling() -> Folder:
    return sharded() | {SHARDS[1]: Link("../../blobs/9f86d081884c7d659a2feaa0c55ad015")}


def _not_whole(header: Header, data: bytes) -> bytes:
    return file_bytes(header, data)[:-20]


def _trailing(header: Header, data: bytes) -> bytes:
    return file_bytes(header, data) + b"more"


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
    "hf-shard-lfs-pointer": lambda: sharded() | {SHARDS[1]: LFS_POINTER},
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
    **_FILE_CASES,
    **_HEADER_CASES,
    **_TENSOR_CASES,
    # what is named and what the document says
    "format-directory-as-gguf": sharded,
    "format-gguf-as-safetensors": gguf_model,
    "format-unknown": lambda: {"model.gguf": b"PK\x03\x04, an archive"},
    "format-v2": lambda: {"model.hgn2": b"HALOGEN2" + bytes(56)},
    "format-folder-of-gguf": gguf_model,
    "format-lfs-pointer": lambda: {"model.gguf": LFS_POINTER},
    "format-weights-alone": lambda: single(tensors(), CONFIG),
    "format-hub-cache": lambda: {f"snapshots/3c7e2a/{name}": content for name, content in sharded().items()},
    "format-adapter": lambda: {"adapter_config.json": as_json({"peft_type": "LORA"}), "adapter_model.safetensors": b""},
    "format-nothing-there": lambda: {"elsewhere.txt": b"no model\n"},
}
