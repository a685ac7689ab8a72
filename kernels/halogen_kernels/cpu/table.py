"""The CPU backend's operators as one table."""

from __future__ import annotations

from dataclasses import replace

import torch

from halogen_kernels import reference
from halogen_kernels.cpu import attention, int8, linear, norm, rotary
from halogen_kernels.cpu.mixture import GroupedMixture
from halogen_kernels.cpu.row_sizes import row_sizes
from halogen_kernels.dequantised import Dequantised, with_products
from halogen_kernels.formats import WeightFormat
from halogen_kernels.seam import Kernels, nothing_built


def table(dtype: torch.dtype, flash_attention: bool, weights: WeightFormat) -> Kernels:
    """For products in `dtype`; without `flash_attention` scores are written out."""
    kernels = _with_weights(_plain(dtype), dtype, weights)
    if flash_attention:
        return kernels
    explicit = {"attention_prefill": "reference.softmax", "attention_decode": "reference.softmax"}
    return replace(
        kernels,
        plan_attention=reference.plan_attention,
        attend=reference.attend,
        names={**kernels.names, **explicit},
        softcap_names={},
    )


def _plain(dtype: torch.dtype) -> Kernels:
    packed = linear.can_pack(dtype)
    return Kernels(
        pack_linear=linear.pack_linear,
        linear=linear.linear,
        logits=linear.logits,
        gated_linear=linear.gated_linear,
        mixture=GroupedMixture(linear.linear, linear.gated_linear),
        pack_norm=norm.pack_norm,
        rms_norm=norm.rms_norm,
        add_rms_norm=norm.add_rms_norm,
        rotate=rotary.rotate,
        write_kv=rotary.write_kv,
        plan_attention=attention.plan_attention,
        attend=attention.attend,
        names={
            "linear": "cpu.onednn_packed" if packed else "cpu.torch",
            "gated_linear": "cpu.onednn_fused" if packed else "cpu.torch",
            "mixture": "cpu.grouped",
            "rms_norm": "cpu.length",
            "rotate": "cpu.complex",
            "write_kv": "cpu.index_copy",
            "attention_prefill": "cpu.sdpa",
            "attention_decode": "cpu.sdpa_grouped",
        },
        softcap_names={"attention_prefill": "cpu.softcap_tiled", "attention_decode": "cpu.softcap_grouped"},
        built_sizes=row_sizes if packed else nothing_built,
    )


def _with_weights(kernels: Kernels, dtype: torch.dtype, weights: WeightFormat) -> Kernels:
    if weights == "plain":
        return kernels
    if weights == "int8" and int8.can_run(dtype):
        return with_products(kernels, int8.Int8Packed(), "cpu.int8pack", GroupedMixture)
    return with_products(kernels, Dequantised(dtype, weights), f"reference.{weights}", GroupedMixture)
