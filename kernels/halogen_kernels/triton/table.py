"""The Triton backend's operators as one table."""

from __future__ import annotations

import torch

from halogen_kernels.formats import WeightFormat
from halogen_kernels.seam import Kernels
from halogen_kernels.triton import attention, embedding, rms_norm, rotate, sample, write_kv
from halogen_kernels.triton.attention_plan import FixedDecode
from halogen_kernels.triton.experts import Experts
from halogen_kernels.triton.linear import Products


def table(dtype: torch.dtype, weights: WeightFormat, device: torch.device) -> Kernels:
    """For products in `dtype` with weights held on `device`."""
    products = Products(dtype, weights, device)
    return Kernels(
        pack_linear=products.pack_linear,
        linear=products.linear,
        logits=products.logits,
        gated_linear=products.gated_linear,
        mixture=Experts(),
        pack_norm=rms_norm.pack_norm,
        rms_norm=rms_norm.rms_norm,
        add_rms_norm=rms_norm.add_rms_norm,
        norm_of_sum=rms_norm.norm_of_sum,
        rotate=rotate.rotate,
        write_kv=write_kv.write_kv,
        plan_attention=attention.plan_attention,
        fix_plan=FixedDecode,
        attend=attention.attend,
        names={
            **products.names,
            **attention.NAMES,
            "embedding": "triton.embedding",
            "mixture": "triton.experts",
            "rms_norm": "triton.rms_norm",
            "rotate": "triton.rotate",
            "sample": "triton.sample",
        },
        takes=products.takes,
        adopt_linear=products.adopt_linear,
        sample=sample.sample,
        embedding=embedding.embedding,
    )
