"""Mixtral: Mistral with experts in every layer, whose weights sum to 1."""

from __future__ import annotations

from halogend.checkpoint.families.family import HF_LAYER, Family, dense, read_experts, read_window
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters


def read(p: Parameters) -> Geometry:
    layers = p.integer("layers", most=4096)
    experts = read_experts(p, p.integer("ffn"), normalised=True, layers=(True,) * layers)
    return dense(p, "mixtral", windows=(read_window(p),) * layers, experts=experts)


FAMILY = Family(
    name="mixtral",
    hf="MixtralForCausalLM",
    read=read,
    keys={"experts": "num_local_experts"},
    hf_layer={
        **HF_LAYER,
        "ffn_gate_inp": ("block_sparse_moe.gate.weight", "mlp.gate.weight"),
        "ffn_gate.expert": ("block_sparse_moe.experts.{expert}.w1.weight", *HF_LAYER["ffn_gate.expert"]),
        "ffn_down.expert": ("block_sparse_moe.experts.{expert}.w2.weight", *HF_LAYER["ffn_down.expert"]),
        "ffn_up.expert": ("block_sparse_moe.experts.{expert}.w3.weight", *HF_LAYER["ffn_up.expert"]),
    },
)
