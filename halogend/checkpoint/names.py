"""How each format calls a weight: from our name to the names a file may have it under."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from halogend.checkpoint.families.family import HF_TOP, Family
from halogend.checkpoint.geometry import Geometry

_EXPERT = re.compile(r"(ffn_(?:gate|up|down))\.(\d+)")
_ROTARY_BUFFER = re.compile(r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


class TensorNames(Protocol):
    """`source` is what gives the model's sizes, in messages."""

    @property
    def source(self) -> str: ...

    def of(self, name: str) -> tuple[str, ...]:
        """Names in the file, the usual one first; empty where the format has no such tensor."""
        ...

    def may_ignore(self, stored: str, geometry: Geometry) -> bool:
        """Whether a surplus tensor of the file says nothing that is not known otherwise."""
        ...


class GgufNames:
    @property
    def source(self) -> str:
        return "the metadata"

    def of(self, name: str) -> tuple[str, ...]:
        if name.endswith(".bias"):
            return (name,)
        if name.endswith("ffn_gate_up"):  # a matrix twice as high stands under the name of its second half
            return (f"{name.removesuffix('gate_up')}up.weight",)
        return (f"{name}.weight",)

    def may_ignore(self, stored: str, geometry: Geometry) -> bool:
        del stored, geometry
        return False


@dataclass(frozen=True, slots=True)
class HfNames:
    family: Family

    @property
    def source(self) -> str:
        return "config.json"

    def of(self, name: str) -> tuple[str, ...]:
        if name in HF_TOP:
            return HF_TOP[name]
        _, layer, part = name.split(".", 2)
        expert = ""
        if match := _EXPERT.fullmatch(part):
            part, expert = f"{match[1]}.expert", match[2]
        names = self.family.hf_layer.get(part, ())
        return tuple(f"model.layers.{layer}.{each.format(expert=expert)}" for each in names)

    def may_ignore(self, stored: str, geometry: Geometry) -> bool:
        """Frequencies that some versions saved, and the output of a model whose output is its embedding."""
        tied = geometry.tied_embeddings and stored in HF_TOP["output"]
        return tied or _ROTARY_BUFFER.fullmatch(stored) is not None
