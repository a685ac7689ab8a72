"""Before a model on a device is read: its kernels are in the cache, or are compiled, or it is refused.

Knows which variants of the kernels a model's geometry and formats lead to. On a processor nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from halogen_kernels.formats import WeightFormat

from halogend.checkpoint.geometry import Geometry
from halogend.engine.progress import Progress
from halogend.engine.refusal import StartRefusedError
from halogend.wire.specs import EngineSpec

if TYPE_CHECKING:
    from halogen_kernels.triton.shapes import KvFormat, Shapes

KERNEL_NOT_FOUND = "HRT-1102"
START_FAILED = "HRT-1010"
_KV_FORMATS: Mapping[str, KvFormat] = MappingProxyType({"fp8": "fp8", "int8": "int8"})


def ready_kernels(spec: EngineSpec, wanted: Shapes, progress: Progress) -> None:
    """All kernels of these shapes can be launched at once when this returns. Raises StartRefusedError where one is
    missing and may not be compiled, or cannot be."""
    from halogen_kernels.triton.cache import KernelNotFoundError  # noqa: PLC0415 (Triton, which only a device needs)
    from halogen_kernels.triton.preparing import prepare  # noqa: PLC0415

    if not spec.kernel_cache:
        raise StartRefusedError(KERNEL_NOT_FOUND, "there is no folder for compiled kernels: set `kernels.cache_dir`")
    progress.begin("compiling")
    try:
        prepare(wanted, Path(spec.kernel_cache), may_compile=spec.may_compile, moved=progress.bump)
    except KernelNotFoundError as error:
        raise StartRefusedError(KERNEL_NOT_FOUND, f"{error}; compile it with `{error.remedy}`") from error
    except (RuntimeError, OSError) as error:
        raise StartRefusedError(START_FAILED, f"kernels in {spec.kernel_cache}: {error}") from error


def shapes_of(geometry: Geometry, dtype: torch.dtype, weights: Iterable[WeightFormat], kv: str) -> Shapes:
    """What a model leads to that computes in `dtype`, with weights held in these formats and keys and values as `kv`
    says, a word of the document. Tables and routers are plain whatever the rest is."""
    from halogen_kernels.triton.shapes import Shapes  # noqa: PLC0415

    return Shapes(
        head_dims=(geometry.head_dim,),
        dtypes=(dtype,),
        kv_formats=(_KV_FORMATS.get(kv, "same"),),
        weight_formats=tuple(sorted({"plain", *weights})),
        softcaps=(geometry.attention_softcap > 0,),
        norms=(geometry.qk_norm,),
        activations=(geometry.activation,),
        experts=tuple(sorted({geometry.has_experts(layer) for layer in range(geometry.layers)})),
    )
