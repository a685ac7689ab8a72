"""What the document's language knows and this release does not do, and what halogend never does.

A key in `LATER` is accepted at its neutral values, which say what happens anyway, and refused at
any other; it never reaches the parsed document. A key in `OUT_OF_SCOPE` is refused at any value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from halogend.config import schema
from halogend.config.codes import Code
from halogend.config.values import shown

OFF = "off"

LATER: Mapping[type[BaseModel], Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        schema.ModelConfig: {
            "reasoning_parser": (OFF,),
            "tool_parser": (OFF,),
            "priority": (0,),
            "residency": ("always",),
            "tensor_parallel_size": (1,),
        },
    }
)

# What a key in `LATER` takes when it comes: whole numbers, from this one.
_WHOLE_FROM: Mapping[str, int] = MappingProxyType({"tensor_parallel_size": 1})

_LORA = "serve a checkpoint the adapter was merged into"
_SPECULATIVE = "remove it; every token comes from the model itself"
_IMAGES = "remove it; models take text only"
_HUB = "download the file yourself and give its path in `model`"

OUT_OF_SCOPE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("lora", "loras", "lora_adapters", "enable_lora", "adapters"), ("LoRA adapters", _LORA)),
        **dict.fromkeys(
            ("speculative", "speculative_decoding", "speculative_config", "draft_model", "num_speculative_tokens"),
            ("speculative decoding", _SPECULATIVE),
        ),
        **dict.fromkeys(
            ("images", "image", "multimodal", "mmproj", "vision", "audio", "limit_mm_per_prompt"),
            ("images and other media", _IMAGES),
        ),
        **dict.fromkeys(("hub", "hf_repo", "hf_file", "hf_token", "repo_id", "download_dir"), ("hub downloads", _HUB)),
        "nodes": ("several machines", "run one daemon on each machine, with a document of its own"),
        "tensor_split": ("uneven tensor splits", "remove it; ranks share evenly"),
    }
)


def is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether `value` is one of the neutral ones."""
    return any(_same(value, wanted) for wanted in neutral)


def misfit(key: str, value: Any) -> tuple[Code, str] | None:
    """What is wrong with a value that no release will take: the code, and what it must be. None where nothing
    is, or where nothing is known of the key."""
    lowest = _WHOLE_FROM.get(key)
    if lowest is None or value is None:
        return None
    wanted = f"must be a whole number of at least {lowest}, found {shown(value)}"
    if isinstance(value, bool) or not isinstance(value, int):
        return Code.WRONG_TYPE, wanted
    return (Code.BAD_VALUE, wanted) if value < lowest else None


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    return bool(value == wanted)


def neutral_words(neutral: tuple[Any, ...]) -> str:
    """How to write the neutral value, for a hint."""
    if not neutral:
        return "remove it"
    return f"remove it or write {neutral[0]}"
