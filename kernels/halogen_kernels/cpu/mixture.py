"""A mixture's feed-forward, grouped by expert: each expert's products run once, over all rows that chose it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halogen_kernels.reference import check_choices
from halogen_kernels.seam import GatedLinear, Linear
from halogen_kernels.values import Activation, ExpertWeights


@dataclass(frozen=True, slots=True)
class GroupedMixture:
    """The operator out of these products. A row's experts are added up in the order of their numbers."""

    linear: Linear
    gated_linear: GatedLinear

    def __call__(
        self, x: Tensor, chosen: Tensor, shares: Tensor, experts: ExpertWeights, activation: Activation
    ) -> Tensor:
        check_choices(chosen, len(experts.gate))
        order = chosen.flatten().argsort(stable=True)
        rows = order // chosen.shape[1]
        sorted_x = x.index_select(0, rows)
        sorted_shares = shares.flatten().index_select(0, order).unsqueeze(1)
        out = torch.zeros(x.shape, dtype=torch.promote_types(x.dtype, torch.float32))
        done = 0
        for number, count in enumerate(chosen.flatten().bincount().tolist()):
            if count:
                group = slice(done, done + count)
                inner = self.gated_linear(sorted_x[group], experts.gate[number], experts.up[number], activation)
                outer = self.linear(inner, experts.down[number])
                out.index_add_(0, rows[group], outer * sorted_shares[group])
                done += count
        return out.to(x.dtype)
