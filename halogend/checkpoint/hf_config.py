"""A model's parameters from the config.json of a Hugging Face directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from halogend.checkpoint import hf_rope
from halogend.checkpoint.errors import ARCHITECTURE_UNSUPPORTED, KEY_INVALID, CheckpointError, shown
from halogend.checkpoint.parameters import LEAST, MOST, RopeKind
from halogend.checkpoint.rope import Rope

# Of several spellings that are in use, the usual one comes first.
_KEYS: Mapping[str, str | tuple[str, ...]] = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "value_dim": "v_head_dim",
    "ffn": "intermediate_size",
    "context_length": "max_position_embeddings",
    "rms_eps": "rms_norm_eps",
    "window": "sliding_window",
    "window_pattern": "sliding_window_pattern",
    "window_switch": "use_sliding_window",
    "window_from": "max_window_layers",
    "layer_types": "layer_types",
    "attention_softcap": "attn_logit_softcapping",
    "logits_softcap": "final_logit_softcapping",
    "query_scalar": "query_pre_attn_scalar",
    "activation": "hidden_act",
    "qkv_bias": "attention_bias",
    "output_bias": "attention_bias",
    "mlp_bias": "mlp_bias",
    "bidirectional": "use_bidirectional_attention",
    "experts": ("num_experts", "num_local_experts"),
    "experts_used": "num_experts_per_tok",
    "expert_ffn": "moe_intermediate_size",
    "experts_normalised": "norm_topk_prob",
    "expert_step": "decoder_sparse_step",
    "dense_layers": "mlp_only_layers",
    "shared_experts": "num_shared_experts",
}


@dataclass(frozen=True, slots=True)
class HfParameters:
    """Implements `parameters.Parameters`. `renamed` are keys that differ in one family, `section` is
    what their names begin with in messages."""

    path: Path
    config: Mapping[str, Any]
    renamed: Mapping[str, str] = field(default_factory=dict)
    section: str = ""

    @property
    def is_gguf(self) -> bool:
        return False

    @property
    def tied_embeddings(self) -> bool | None:
        if self.config.get("tie_word_embeddings") is None:
            return None
        tied: bool = self._typed("tie_word_embeddings", bool, "true or false")
        return tied

    @property
    def vocab(self) -> int:
        return self._integer("vocab_size", None, 1, 1 << 24)

    def has(self, name: str) -> bool:
        return self.config.get(self._key(name)) is not None

    def integer(self, name: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int:
        return self._integer(self._key(name), default, least, most)

    def positive(self, name: str, default: float | None = None, *, or_zero: bool = False) -> float:
        key = self._key(name)
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(key, "is missing" if value is None else f"is {shown(value)}; a number is wanted")
        if not (LEAST <= value <= MOST or (or_zero and value == 0)):
            raise self._bad(key, f"is {shown(value)}; a number from {LEAST:g} to {MOST:g} is wanted")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        return self._typed(self._key(name), bool, "true or false") if self.has(name) else default

    def text(self, name: str, default: str | None = None) -> str:
        if default is not None and not self.has(name):
            return default
        value: str = self._typed(self._key(name), str, "a string")
        return value

    def texts(self, name: str) -> tuple[str, ...] | None:
        return tuple(self._list(name, str, "strings")) if self.has(name) else None

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._list(name, int, "whole numbers")) if self.has(name) else ()

    def rope(self, kind: RopeKind, head_dim: int, *, base: float = 10_000.0) -> Rope:
        return hf_rope.read_rope(self.path, self.config, kind, head_dim, base, self.section)

    def invalid(self, name: str, what: str) -> NoReturn:
        raise self._bad(self._key(name), what)

    def unsupported(self, name: str, what: str) -> NoReturn:
        raise CheckpointError(ARCHITECTURE_UNSUPPORTED, f"{self.path}: key {self.section + self._key(name)!r} {what}")

    def _key(self, name: str) -> str:
        known = self.renamed.get(name) or _KEYS[name]
        spellings = (known,) if isinstance(known, str) else known
        return next((key for key in spellings if self.config.get(key) is not None), spellings[0])

    def _integer(self, key: str, default: int | None, least: int, most: int) -> int:
        if default is not None and self.config.get(key) is None:
            return default
        value: int = self._typed(key, int, "a whole number")
        if not least <= value <= most:
            raise self._bad(key, f"is {shown(value)}; it must be from {least} to {most}")
        return value

    def _typed(self, key: str, wanted: type[Any], words: str) -> Any:
        value = self.config.get(key)
        if value is None:
            raise self._bad(key, "is missing")
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise self._bad(key, f"is {shown(value)}; {words} is wanted")
        return value

    def _list(self, name: str, element: type[Any], words: str) -> list[Any]:
        key = self._key(name)
        values = self._typed(key, list, f"a list of {words}")
        if not all(isinstance(value, element) and not isinstance(value, bool) for value in values):
            raise self._bad(key, f"is {shown(values)}; a list of {words} is wanted")
        return list(values)

    def _bad(self, key: str, what: str) -> CheckpointError:
        return CheckpointError(KEY_INVALID, f"{self.path}: key {self.section + key!r} {what}")
