"""The model families: each a table of names and constants and one function that reads its traits.

A family says what its models have (norms, biases, windows, experts) and how files call their
tensors; how a layer is computed follows from the Geometry alone. A new dense family is a table here
and a test. Must never know bytes, torch or a device.
"""

from __future__ import annotations

from halogend.checkpoint.families import gemma2, gemma3, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe
from halogend.checkpoint.families.family import Family

FAMILIES: tuple[Family, ...] = (
    gemma2.FAMILY,
    gemma3.MULTIMODAL,
    gemma3.FAMILY,
    llama.FAMILY,
    mistral.FAMILY,
    mixtral.FAMILY,
    phi3.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    qwen3_moe.FAMILY,
)
# Of two that GGUF calls alike the last: they differ in how directories lay them out.
BY_GGUF = {family.gguf: family for family in FAMILIES if family.gguf}
BY_HF = {family.hf: family for family in FAMILIES}

__all__ = ["BY_GGUF", "BY_HF", "FAMILIES", "Family"]
