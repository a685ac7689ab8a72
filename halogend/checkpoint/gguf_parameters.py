"""A model's parameters from a GGUF header's metadata."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from halogend.checkpoint import gguf_keys, rope
from halogend.checkpoint.errors import (
    ARCHITECTURE_UNSUPPORTED,
    TENSOR_MISMATCH,
    TENSOR_MISSING,
    CheckpointError,
    shown,
)
from halogend.checkpoint.gguf import GgufHeader
from halogend.checkpoint.parameters import RopeKind
from halogend.checkpoint.rope import Rope, Yarn

_KEYS = {
    "layers": "block_count",
    "hidden": "embedding_length",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "value_dim": "attention.value_length",
    "ffn": "feed_forward_length",
    "context_length": "context_length",
    "rms_eps": "attention.layer_norm_rms_epsilon",
    "window": "attention.sliding_window",
    "window_pattern": "attention.sliding_window_pattern",
    "attention_softcap": "attn_logit_softcapping",
    "logits_softcap": "final_logit_softcapping",
    "experts": "expert_count",
    "experts_used": "expert_used_count",
    "expert_ffn": "expert_feed_forward_length",
    "shared_experts": "expert_shared_count",
}
_PER_LAYER = frozenset({"heads", "kv_heads", "ffn"})  # may be arrays, a number for each layer
# What the format says by the presence of a tensor.
_TENSORS = {"qkv_bias": "blk.0.attn_q.bias", "output_bias": "blk.0.attn_output.bias"}
_MERGED_BIAS = "blk.0.attn_qkv.bias"
_LONG, _SHORT = "rope_factors_long", "rope_factors_short"


@dataclass(frozen=True, slots=True)
class GgufParameters:
    """Implements `parameters.Parameters`."""

    header: GgufHeader

    @property
    def is_gguf(self) -> bool:
        return True

    @property
    def tied_embeddings(self) -> bool:
        return "output.weight" not in self.header.tensors

    @property
    def vocab(self) -> int:
        embedding = self.header.tensors.get("token_embd.weight")
        if embedding is None:
            raise CheckpointError(TENSOR_MISSING, f"{self.header.path}: tensor 'token_embd.weight' is missing")
        if len(embedding.shape) != 2:
            where = self.header.files[embedding.file]
            message = f"{where}: tensor 'token_embd.weight' has shape {list(embedding.shape)}; a matrix is wanted"
            raise CheckpointError(TENSOR_MISMATCH, message)
        return embedding.shape[0]

    def has(self, name: str) -> bool:
        if name in _TENSORS:
            return self.flag(name, default=False)
        return self.header.has(self._key(name))

    def integer(self, name: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int:
        key = self._key(name)
        if name in _PER_LAYER and gguf_keys.is_array(self.header, key):
            layers = self.integer("layers", most=4096)
            return gguf_keys.integer_of_layers(self.header, key, layers, least=least, most=most)
        return gguf_keys.integer(self.header, key, default, least=least, most=most)

    def positive(self, name: str, default: float | None = None, *, or_zero: bool = False) -> float:
        return gguf_keys.positive(self.header, self._key(name), default, or_zero=or_zero)

    def flag(self, name: str, *, default: bool) -> bool:
        if name in _TENSORS:
            merged = name == "qkv_bias" and _MERGED_BIAS in self.header.tensors
            return merged or _TENSORS[name] in self.header.tensors
        return gguf_keys.flag(self.header, self._key(name), default=default)

    def text(self, name: str, default: str | None = None) -> str:
        return gguf_keys.text(self.header, self._key(name), default)

    def texts(self, name: str) -> tuple[str, ...] | None:
        return None

    def integers(self, name: str) -> tuple[int, ...]:
        return ()

    def rope(self, kind: RopeKind, head_dim: int, *, base: float = 10_000.0) -> Rope:
        factor = gguf_keys.positive(self.header, self._rope_key("scaling.attn_factor"), 1.0)
        return rope.magnified(self._turned(kind, head_dim, base), factor)

    def invalid(self, name: str, what: str) -> NoReturn:
        raise gguf_keys.invalid(self.header, self._key(name), what)

    def unsupported(self, name: str, what: str) -> NoReturn:
        raise gguf_keys.unsupported(self.header, self._key(name), what)

    def _turned(self, kind: RopeKind, head_dim: int, base: float) -> Rope:
        if kind == "local":
            return rope.plain(self._base("freq_base_swa", base), head_dim)
        turned = gguf_keys.integer(self.header, self._rope_key("dimension_count"), head_dim)
        if turned > head_dim or turned % 2:
            self._refuse(self._rope_key("dimension_count"), f"is {turned}; it must be even and at most {head_dim}")
        plain = self._scaled(self._base("freq_base", base), turned)
        if "rope_freqs.weight" in self.header.tensors:
            return replace(plain, divisors="rope_freqs")
        return plain

    def _scaled(self, base: float, turned: int) -> Rope:
        older = self._rope_key("scale_linear")
        stated = gguf_keys.text(
            self.header, self._rope_key("scaling.type"), "linear" if self.header.has(older) else "none"
        )
        if f"{_LONG}.weight" in self.header.tensors:
            return self._longrope(rope.plain(base, turned))
        if stated == "none":
            return rope.plain(base, turned)
        factor = gguf_keys.positive(
            self.header, self._rope_key("scaling.factor"), gguf_keys.positive(self.header, older, 1.0)
        )
        if stated == "linear":
            return rope.linear(rope.plain(base, turned), factor)
        if stated == "yarn":
            yarn = Yarn(
                factor,
                self._original_context(),
                gguf_keys.positive(self.header, self._rope_key("scaling.yarn_beta_fast"), 32.0),
                gguf_keys.positive(self.header, self._rope_key("scaling.yarn_beta_slow"), 1.0),
            )
            return yarn.apply(base, turned)
        message = (
            f"{self.header.path}: rope scaling {shown(stated)} ({self._rope_key('scaling.type')!r}) is not supported"
        )
        raise CheckpointError(ARCHITECTURE_UNSUPPORTED, message)

    def _longrope(self, plain: Rope) -> Rope:
        beyond = replace(plain, divisors=_LONG)
        return replace(beyond, divisors=_SHORT, original_context=self._original_context(), beyond=beyond)

    def _original_context(self) -> int:
        key = self._rope_key("scaling.original_context_length")
        return gguf_keys.integer(self.header, key, self.integer("context_length"))

    def _base(self, name: str, default: float) -> float:
        """Above 1: the frequencies base ** (-2i / head_dim) fall."""
        key = self._rope_key(name)
        value = gguf_keys.positive(self.header, key, default)
        if value <= 1:
            self._refuse(key, f"is {value}; it must be above 1")
        return value

    def _refuse(self, key: str, what: str) -> NoReturn:
        raise gguf_keys.invalid(self.header, key, what)

    def _rope_key(self, name: str) -> str:
        return f"{self.header.architecture}.rope.{name}"

    def _key(self, name: str) -> str:
        return f"{self.header.architecture}.{_KEYS[name]}"
