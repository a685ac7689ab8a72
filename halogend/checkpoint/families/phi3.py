"""Phi-3 and Phi-4: Llama with one matrix for Q, K and V and one for gate and up; rotary positions that
may turn part of a head, and a divisor for each frequency in the long-context sizes."""

from __future__ import annotations

from halogend.checkpoint.families.family import Family, dense, read_window
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters


def read(p: Parameters) -> Geometry:
    return dense(p, "phi3", windows=(read_window(p),) * p.integer("layers", most=4096))


FAMILY = Family(name="phi3", hf="Phi3ForCausalLM", gguf="phi3", read=read)
