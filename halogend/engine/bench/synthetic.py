"""Models of random weights and of any size, for measuring how fast and in how much memory they load.

A Llama in a Hugging Face directory of several shards, or in one GGUF file, that the engine takes like
any other. There is no tokenizer: nothing sensible could be said with it.

    bf16, fp16          plain numbers
    gptq, awq           four bits in groups of 128 columns, with stored zero points
    fp8                 E4M3 with a scale for each 128 x 128
    q4_k, q8_0          GGUF blocks, embedding and output too
    v2-bf16, v2-int8, v2-int4   see synthetic_v2
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.checkpoint import rope
from halogend.checkpoint.geometry import Geometry
from halogend.engine.bench import synthetic_v2 as v2
from halogend.engine.bench.random_files import Entry, Fill, write_gguf, write_safetensors

FORMATS = ("bf16", "fp16", "gptq", "awq", "fp8", "q4_k", "q8_0")
V2_FORMATS = tuple(v2.FORMATS)
_GGUF_FILLS = {"q4_k": Fill.Q4_K, "q8_0": Fill.Q8_0}
_GROUP = 128
_BLOCK = 128
_SHARDS = 5
_LEAST_LAYERS = 12
_CONTEXT = 4096
_EPS = 1e-5
_ROPE_BASE = 10000.0
_RECIPE = 1  # part of the name: files of an older recipe are not taken for those of a newer one
_SPARE_BYTES = 1 << 30  # of the disk, left free

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """All are multiples of 128, and the columns of every matrix of 256."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def geometry(self, layers: int) -> Geometry:
        return Geometry(
            architecture="llama",
            layers=layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn=self.ffn,
            vocab=self.vocab,
            context_length=_CONTEXT,
            rms_eps=_EPS,
            windows=(None,) * layers,
            ropes=(rope.plain(_ROPE_BASE, self.head_dim),),
            rope_of=(0,) * layers,
            query_scale=self.head_dim**-0.5,
            tied_embeddings=False,
        )

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Of one layer, by their names in Hugging Face directories."""
        key = self.kv_heads * self.head_dim
        return {
            "self_attn.q_proj": (self.hidden, self.hidden),
            "self_attn.k_proj": (key, self.hidden),
            "self_attn.v_proj": (key, self.hidden),
            "self_attn.o_proj": (self.hidden, self.hidden),
            "mlp.gate_proj": (self.ffn, self.hidden),
            "mlp.up_proj": (self.ffn, self.hidden),
            "mlp.down_proj": (self.hidden, self.ffn),
        }


# Smallest first; the larger two are those of models with one and with seven thousand million weights.
_SIZES = (
    Sizes(hidden=256, ffn=768, heads=4, kv_heads=2, vocab=1024),
    Sizes(hidden=1024, ffn=3072, heads=16, kv_heads=4, vocab=8192),
    Sizes(hidden=2048, ffn=8192, heads=32, kv_heads=8, vocab=32768),
    Sizes(hidden=4096, ffn=14336, heads=32, kv_heads=8, vocab=32768),
)
_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


class NoSpaceError(Exception):
    """The disk has too little room."""


def make(kind: str, nbytes: int, folder: Path, report: Report, *, like: str | None = None) -> Path:
    """The model that takes about `nbytes` as `kind`, or as `like`, in `folder`, made unless it is there already;
    `report` is told the bytes written and wanted. Raises NoSpaceError, and OSError or CheckpointError if it
    cannot be written."""
    suffix = ".gguf" if kind in _GGUF_FILLS else ".hgn2" if kind in V2_FORMATS else ""
    size = f"{nbytes >> 20}MiB" if like in (None, kind) else f"{nbytes >> 20}MiB-as-{like}"
    path = folder / f"synthetic-{kind}-{size}-{_RECIPE}{suffix}"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder).free) < nbytes + _SPARE_BYTES:
        raise NoSpaceError(f"{folder}: {free >> 20} MiB are free; {nbytes + _SPARE_BYTES >> 20} MiB are wanted")
    partial = path.with_name(f"{path.name}.partial")
    _discard(partial)
    try:
        sizes, layers = choose(like or kind, nbytes)
        if kind in V2_FORMATS:
            v2.write_v2(partial, sizes.geometry(layers), kind, report)
        elif suffix:
            write_gguf(partial, _gguf_metadata(sizes, layers), list(_gguf_entries(sizes, layers, kind)), report)
        else:
            partial.mkdir()
            (partial / "config.json").write_text(json.dumps(_config(sizes, layers, kind), indent=1))
            write_safetensors(partial, list(_hf_entries(sizes, layers, kind)), _SHARDS, report)
        partial.rename(path)
    finally:
        _discard(partial)
    return path


def choose(kind: str, nbytes: int) -> tuple[Sizes, int]:
    """The widest sizes of which several layers fit, and how many do."""
    for sizes in reversed(_SIZES):
        no_layer, one_layer = (_total(sizes, layers, kind) for layers in (0, 1))
        layers = round((nbytes - no_layer) / (one_layer - no_layer))
        if layers >= _LEAST_LAYERS:
            break
    return sizes, max(1, layers)


def _total(sizes: Sizes, layers: int, kind: str) -> int:
    if kind in V2_FORMATS:
        return v2.v2_bytes(sizes.geometry(layers), kind)
    entries = _gguf_entries if kind in _GGUF_FILLS else _hf_entries
    return sum(entry.nbytes for entry in entries(sizes, layers, kind))


def _discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _config(sizes: Sizes, layers: int, kind: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": sizes.vocab,
        "max_position_embeddings": _CONTEXT,
        "rms_norm_eps": _EPS,
        "rope_theta": _ROPE_BASE,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16" if _plain(kind) is Fill.BF16 else "float16",
    }
    four_bits = {"bits": 4, "group_size": _GROUP}
    quantised: dict[str, dict[str, Any]] = {
        "awq": {"quant_method": "awq", "version": "gemm", "zero_point": True, **four_bits},
        "gptq": {"quant_method": "gptq", "checkpoint_format": "gptq", "desc_act": False, **four_bits},
        "fp8": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [_BLOCK, _BLOCK]},
    }
    return config | ({"quantization_config": quantised[kind]} if kind in quantised else {})


def _plain(kind: str) -> Fill:
    """Of what stays plain numbers in a directory of this format."""
    return Fill.BF16 if kind in ("bf16", "fp8") else Fill.F16


def _hf_entries(sizes: Sizes, layers: int, kind: str) -> Iterator[Entry]:
    plain = _plain(kind)
    yield Entry("model.embed_tokens.weight", (sizes.vocab, sizes.hidden), plain)
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for name, (rows, columns) in sizes.matrices().items():
            yield from _stored(f"{prefix}.{name}", rows, columns, kind)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield Entry(f"{prefix}.{norm}.weight", (sizes.hidden,), plain)
    yield Entry("model.norm.weight", (sizes.hidden,), plain)
    yield Entry("lm_head.weight", (sizes.vocab, sizes.hidden), plain)


def _stored(name: str, rows: int, columns: int, kind: str) -> Iterator[Entry]:
    """The tensors that a matrix of a layer is stored as."""
    groups = columns // _GROUP
    match kind:
        case "gptq":
            yield Entry(f"{name}.qweight", (columns // 8, rows), Fill.CODES)
            yield Entry(f"{name}.g_idx", (columns,), Fill.GROUPS)
        case "awq":
            yield Entry(f"{name}.qweight", (columns, rows // 8), Fill.CODES)
        case "fp8":
            yield Entry(f"{name}.weight", (rows, columns), Fill.E4M3)
            yield Entry(f"{name}.weight_scale_inv", (-(-rows // _BLOCK), -(-columns // _BLOCK)), Fill.SCALES_F32)
            return
        case _:
            yield Entry(f"{name}.weight", (rows, columns), _plain(kind))
            return
    yield Entry(f"{name}.qzeros", (groups, rows // 8), Fill.CODES)
    yield Entry(f"{name}.scales", (groups, rows), Fill.SCALES_F16)


def _gguf_entries(sizes: Sizes, layers: int, kind: str) -> Iterator[Entry]:
    fill = _GGUF_FILLS[kind]
    yield Entry("token_embd.weight", (sizes.vocab, sizes.hidden), fill)
    for layer in range(layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield Entry(f"blk.{layer}.{_GGUF_NAMES[norm]}.weight", (sizes.hidden,), Fill.F32)
        for name, shape in sizes.matrices().items():
            yield Entry(f"blk.{layer}.{_GGUF_NAMES[name]}.weight", shape, fill)
    yield Entry("output_norm.weight", (sizes.hidden,), Fill.F32)
    yield Entry("output.weight", (sizes.vocab, sizes.hidden), fill)


def _gguf_metadata(sizes: Sizes, layers: int) -> dict[str, str | float]:
    return {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.context_length": _CONTEXT,
        "llama.embedding_length": sizes.hidden,
        "llama.feed_forward_length": sizes.ffn,
        "llama.attention.head_count": sizes.heads,
        "llama.attention.head_count_kv": sizes.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": _EPS,
        "llama.rope.freq_base": _ROPE_BASE,
    }
