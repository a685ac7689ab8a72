"""Scales that a GGUF file has beside a matrix, as converters of NVFP4 models write them.

blk.0.ffn_up.weight        blocks of four-bit floats
blk.0.ffn_up.scale         [1], or [experts] beside a stack: what the blocks' numbers are multiplied by
blk.0.ffn_up.input_scale   for activations of four bits, which nothing here has
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from halogend.checkpoint.errors import TENSOR_MISMATCH, CheckpointError
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.stored import Encoded, Plain, Scaled
from halogend.checkpoint.tensor_table import TensorInfo

_WEIGHT, _SCALE, _INPUT_SCALE = "weight", "scale", "input_scale"


def with_scales(tensors: Mapping[str, TensorInfo], files: Sequence[Path]) -> dict[str, Encoded]:
    """Each stored matrix and vector by its name, scales as part of what they belong to. Raises
    CheckpointError for a scale that is no float32, or of another shape."""
    stored: dict[str, Encoded] = {}
    for name, tensor in tensors.items():
        of, _, kind = name.rpartition(".")
        if kind in (_SCALE, _INPUT_SCALE) and _may_be_scaled(of, tensors.get(f"{of}.{_WEIGHT}")):
            continue
        scale = tensors.get(f"{of}.{_SCALE}") if kind == _WEIGHT and _may_be_scaled(of, tensor) else None
        stored[name] = Plain(tensor) if scale is None else _scaled(tensor, scale, files)
    return stored


def _may_be_scaled(of: str, tensor: TensorInfo | None) -> bool:
    """A matrix of a layer, or the output; an embedding table is looked up, never multiplied."""
    return tensor is not None and len(tensor.shape) > 1 and (of.startswith("blk.") or of == "output")


def _scaled(tensor: TensorInfo, scale: TensorInfo, files: Sequence[Path]) -> Scaled:
    count = tensor.shape[0] if len(tensor.shape) == 3 else 1
    if scale.type is not GgmlType.F32 or scale.elements != count:
        found = f"is {scale.type.name} {list(scale.shape)}; {tensor.name!r} wants F32 {[count]} beside it"
        raise CheckpointError(TENSOR_MISMATCH, f"{files[scale.file]}: tensor {scale.name!r} {found}")
    return Scaled(Plain(tensor), scale)
