"""Named profiles of defaults: `engine_version` holds a model to the defaults of that version.

A profile fills the fields the user did not set, before anything judges or shows the document, so its
values stand in the canonical form and count for the revision like written ones. What depends on the
checkpoint or the machine (`auto`, and lengths that are the model's) is not pinned. The values of a
published profile never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from halogend.config.schema import Document, EngineVersion, ModelConfig

_Values = Mapping[str, Any]
_Part = TypeVar("_Part", bound=BaseModel)

PROFILES: Mapping[EngineVersion, _Values] = MappingProxyType(
    {
        "0.15.2": {
            "kernels": {"flash_attention": True},
            "load": {"progress_timeout_s": 60.0},
            "kv_cache_ratio": 0.75,
            "kv_block_pool": {"min_free_ratio": 0.03},
            "watermarks": {"soft": 0.75, "hard": 0.9},
            "eviction": {"policy": "lru"},
            "cache_scope": "key",
            "max_batch": 64,
            "max_queue": 512,
            "max_queue_tokens": 0,
            "queue_timeout_ms": 60_000,
            "request_timeout_ms": 0,
            "prefill_timeout_ms": 3000,
            "max_gap_ms": 250,
            "long_prompt": {"threshold": 4096, "max_concurrent": 1},
            "sampling": {
                "temperature": 0.6,
                "top_p": 0.85,
                "top_k": 0,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
            },
        },
    }
)


def leaves(version: EngineVersion) -> Iterator[tuple[str, Any]]:
    """Each field of a profile, `sampling.top_p`, with its value."""
    for name, value in PROFILES[version].items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            yield name, value


def pinned(document: Document) -> Document:
    """The document with each model's profile filled in."""
    is_alone = len(document.models) == 1
    return document.model_copy(update={"models": tuple(_pinned(model, is_alone=is_alone) for model in document.models)})


def _pinned(model: ModelConfig, *, is_alone: bool) -> ModelConfig:
    """A share of KV memory is pinned for a model that shares with none: several would sum to over 1."""
    if model.engine_version is None:
        return model
    values = dict(PROFILES[model.engine_version])
    if not is_alone or model.kv_cache_bytes is not None:
        values.pop("kv_cache_ratio", None)
    return _filled(model, values)


def _filled(part: _Part, values: _Values) -> _Part:
    """`part` with what was not set taken from `values`, section by section."""
    update = {}
    for name, value in values.items():
        own = getattr(part, name)
        if isinstance(own, BaseModel):
            update[name] = _filled(own, value)
        elif name not in part.model_fields_set:
            update[name] = value
    return part.model_copy(update=update)
