"""Mistral: Llama with a sliding window in every layer, where the file states one."""

from __future__ import annotations

from halogend.checkpoint.families.family import Family, dense, read_window
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters


def read(p: Parameters) -> Geometry:
    if p.has("layer_types"):
        p.unsupported("layer_types", "is set, which is not supported for this family")
    return dense(p, "mistral", windows=(read_window(p),) * p.integer("layers", most=4096))


FAMILY = Family(name="mistral", hf="MistralForCausalLM", read=read)
