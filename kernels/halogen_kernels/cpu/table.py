"""The CPU backend's operators as one table."""

from __future__ import annotations

from dataclasses import replace

import torch

from halogen_kernels import reference
from halogen_kernels.cpu import attention, linear, norm, rotary
from halogen_kernels.seam import Kernels


def table(dtype: torch.dtype, flash_attention: bool) -> Kernels:
    """For weights of `dtype`; without `flash_attention` scores are written out."""
    product = "cpu.onednn_packed" if linear.can_pack(dtype) else "cpu.torch"
    gated = "cpu.onednn_fused" if linear.can_pack(dtype) else "cpu.torch"
    fused = Kernels(
        pack_linear=linear.pack_linear,
        linear=linear.linear,
        logits=linear.logits,
        gated_linear=linear.gated_linear,
        pack_norm=norm.pack_norm,
        rms_norm=norm.rms_norm,
        add_rms_norm=norm.add_rms_norm,
        rotate=rotary.rotate,
        write_kv=rotary.write_kv,
        plan_attention=attention.plan_attention,
        attend=attention.attend,
        names={
            "linear": product,
            "gated_linear": gated,
            "rms_norm": "cpu.length",
            "rotate": "cpu.complex",
            "write_kv": "cpu.index_copy",
            "attention_prefill": "cpu.sdpa",
            "attention_decode": "cpu.sdpa_grouped",
        },
    )
    if flash_attention:
        return fused
    explicit = {"attention_prefill": "reference.softmax", "attention_decode": "reference.softmax"}
    return replace(
        fused,
        plan_attention=reference.plan_attention,
        attend=reference.attend,
        names={**fused.names, **explicit},
    )
