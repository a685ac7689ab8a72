"""A model's shape, from a checkpoint's header: what memory planning and the engine both need.

Architectures are rows: a function that reads one architecture's keys and constants. The tensors
that each must have are in `inventory`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halogend.checkpoint import keys
from halogend.checkpoint.errors import ARCHITECTURE_UNSUPPORTED, TENSOR_MISSING, CheckpointError
from halogend.checkpoint.gguf import GgufHeader

_GEMMA3_LOCAL_ROPE_BASE = 10_000.0  # in the architecture's definition, not in the file
_GEMMA3_PATTERN = 6  # every sixth layer attends globally
_GEMMA3_27B_LAYERS = 62  # the one size whose query scale is not head_dim ** -0.5


@dataclass(frozen=True, slots=True)
class Geometry:
    """`global_layers[i]` says that layer i attends to everything and turns with `rope_base_global`;
    the others see the last `sliding_window` positions (the token itself included) and turn with
    `rope_base_local`. `rope_scaling_factor` divides positions on global layers (linear scaling);
    `rope_freqs` says that the tensor `rope_freqs.weight` holds a divisor for each frequency.
    `weight_count` is elements over all tensors of the file; a tied embedding counts once.
    `table_bytes` is the embedding table as the file stores it.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_length: int
    rms_eps: float
    rope_base_global: float
    rope_base_local: float
    rope_scaling_factor: float
    rope_freqs: bool
    sliding_window: int | None
    global_layers: tuple[bool, ...]
    query_scale: float
    embedding_scale: float
    tied_embeddings: bool
    weight_count: int
    table_bytes: int

    @property
    def activation(self) -> str:
        """`silu` or `gelu_tanh`, of the gated feed-forward."""
        return "gelu_tanh" if self.architecture == "gemma3" else "silu"

    @property
    def qk_norm(self) -> bool:
        return self.architecture == "gemma3"

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """K and V of one position over all layers, windows not counted."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value

    def weight_bytes(self, bytes_per_value: int) -> int:
        """What an engine holds: matrices with `bytes_per_value`, and the embedding table as it is stored
        (beside the output matrix, tied or not)."""
        looked_up = 0 if self.tied_embeddings else self.vocab * self.hidden
        return (self.weight_count - looked_up) * bytes_per_value + self.table_bytes


@dataclass(frozen=True, slots=True)
class _Attention:
    """What differs between architectures in how layers attend."""

    rope_base_local: float
    rope_scaling_factor: float
    sliding_window: int | None
    global_layers: tuple[bool, ...]
    query_scale: float
    embedding_scale: float


@dataclass(frozen=True, slots=True)
class _Sizes:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rope_base: float


def read_geometry(header: GgufHeader) -> Geometry:
    """Raises CheckpointError for an architecture that is not supported and for a key that is
    missing or has an impossible value, naming it."""
    architecture = header.architecture
    read_attention = _ARCHITECTURES.get(architecture)
    if read_attention is None:
        known = ", ".join(sorted(_ARCHITECTURES))
        raise _unsupported(header, f"architecture {architecture!r} is not supported; supported are {known}")
    sizes = _read_sizes(header)
    attention = read_attention(header, sizes)
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(TENSOR_MISSING, f"{header.path}: tensor 'token_embd.weight' is missing or no matrix")
    return Geometry(
        architecture=architecture,
        layers=sizes.layers,
        hidden=sizes.hidden,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        ffn=sizes.ffn,
        vocab=embedding.shape[0],
        context_length=keys.integer(header, f"{architecture}.context_length"),
        rms_eps=keys.positive(header, f"{architecture}.attention.layer_norm_rms_epsilon"),
        rope_base_global=sizes.rope_base,
        rope_base_local=attention.rope_base_local,
        rope_scaling_factor=attention.rope_scaling_factor,
        rope_freqs="rope_freqs.weight" in header.tensors,
        sliding_window=attention.sliding_window,
        global_layers=attention.global_layers,
        query_scale=attention.query_scale,
        embedding_scale=attention.embedding_scale,
        tied_embeddings="output.weight" not in header.tensors,
        weight_count=sum(tensor.elements for tensor in header.tensors.values()),
        table_bytes=embedding.nbytes,
    )


def _read_sizes(header: GgufHeader) -> _Sizes:
    prefix = header.architecture
    hidden = keys.integer(header, f"{prefix}.embedding_length")
    heads = keys.integer(header, f"{prefix}.attention.head_count")
    kv_heads = keys.integer(header, f"{prefix}.attention.head_count_kv", heads)
    if heads % kv_heads:
        raise keys.invalid(header, f"{prefix}.attention.head_count_kv", f"is {kv_heads}, no divisor of {heads} heads")
    head_dim = _head_dim(header, hidden, heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if (value := keys.integer(header, f"{prefix}.{name}", head_dim)) != head_dim:
            raise _unsupported(
                header, f"metadata key '{prefix}.{name}' is {value}; only the head size {head_dim} is supported"
            )
    if experts := keys.integer(header, f"{prefix}.expert_count", 0, least=0):
        raise _unsupported(header, f"mixtures of experts ('{prefix}.expert_count' is {experts}) are not supported")
    return _Sizes(
        layers=keys.integer(header, f"{prefix}.block_count", most=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=keys.integer(header, f"{prefix}.feed_forward_length"),
        rope_base=_rope_base(header, "freq_base", 10_000.0),
    )


def _head_dim(header: GgufHeader, hidden: int, heads: int) -> int:
    stated, width = f"{header.architecture}.attention.key_length", f"{header.architecture}.embedding_length"
    if not header.has(stated) and hidden % heads:
        raise keys.invalid(header, width, f"is {hidden}, no multiple of {heads} heads")
    head_dim = keys.integer(header, stated, hidden // heads)
    if head_dim % 2:
        key = stated if header.has(stated) else width
        raise keys.invalid(header, key, f"gives heads of {head_dim}; positions turn pairs, so it must be even")
    return head_dim


def _rope_base(header: GgufHeader, name: str, default: float) -> float:
    """At least 1: below that the frequencies base ** (-2i / head_dim) grow without end."""
    key = f"{header.architecture}.rope.{name}"
    base = keys.positive(header, key, default)
    if base < 1:
        raise keys.invalid(header, key, f"is {base}; it must be at least 1")
    return base


def _rope_scaling_factor(header: GgufHeader) -> float:
    prefix = header.architecture
    older = f"{prefix}.rope.scale_linear"
    kind = keys.text(header, f"{prefix}.rope.scaling.type", "linear" if header.has(older) else "none")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise _unsupported(header, f"rope scaling {kind!r} ('{prefix}.rope.scaling.type') is not supported")
    return keys.positive(header, f"{prefix}.rope.scaling.factor", keys.positive(header, older, 1.0))


def _llama(header: GgufHeader, sizes: _Sizes) -> _Attention:
    return _Attention(
        rope_base_local=sizes.rope_base,
        rope_scaling_factor=_rope_scaling_factor(header),
        sliding_window=None,
        global_layers=(True,) * sizes.layers,
        query_scale=sizes.head_dim**-0.5,
        embedding_scale=1.0,
    )


def _gemma3(header: GgufHeader, sizes: _Sizes) -> _Attention:
    """Constants as in the architecture's published definition; the file carries few of them."""
    softcap = "gemma3.final_logit_softcapping"
    if header.has(softcap) and header.metadata[softcap] != 0:
        raise _unsupported(header, f"metadata key {softcap!r} is set, which is not supported")
    pattern = keys.integer(header, "gemma3.attention.sliding_window_pattern", _GEMMA3_PATTERN, most=4096)
    per_head = sizes.hidden / sizes.heads if sizes.layers == _GEMMA3_27B_LAYERS else sizes.head_dim
    return _Attention(
        rope_base_local=_rope_base(header, "freq_base_swa", _GEMMA3_LOCAL_ROPE_BASE),
        rope_scaling_factor=_rope_scaling_factor(header),
        sliding_window=keys.integer(header, "gemma3.attention.sliding_window"),
        global_layers=tuple((index + 1) % pattern == 0 for index in range(sizes.layers)),
        query_scale=per_head**-0.5,
        embedding_scale=math.sqrt(sizes.hidden),
    )


_ARCHITECTURES = {"gemma3": _gemma3, "llama": _llama}


def _unsupported(header: GgufHeader, what: str) -> CheckpointError:
    return CheckpointError(ARCHITECTURE_UNSUPPORTED, f"{header.path}: {what}")
