"""The text model in a directory that holds other parts beside it, such as one that sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halogend.checkpoint.errors import KEY_INVALID, TENSOR_MISMATCH, CheckpointError, shown
from halogend.checkpoint.families.family import TextPart
from halogend.checkpoint.tensor_table import TensorInfo

_TIED = "tie_word_embeddings"


def text_config(path: Path, config: Mapping[str, Any], part: TextPart) -> dict[str, Any]:
    """What config.json says of the text model. Its output is the whole model's, so only the whole's
    word on that counts. Raises CheckpointError."""
    values = config.get(part.section)
    if not isinstance(values, dict):
        what = "is missing" if values is None else f"is {shown(values)}; an object is wanted"
        raise CheckpointError(KEY_INVALID, f"{path}: key {part.section!r} {what}")
    return {**values, _TIED: config.get(_TIED, True)}


def text_tensors(tensors: Mapping[str, TensorInfo], part: TextPart, files: Sequence[Path]) -> dict[str, TensorInfo]:
    """The text model's tensors, by the names that they have where it is alone. Raises CheckpointError for
    one that is there twice."""
    found: dict[str, TensorInfo] = {}
    for name, tensor in tensors.items():
        if name.startswith(part.others):
            continue
        alone = next((new + name.removeprefix(old) for old, new in part.names.items() if name.startswith(old)), name)
        if alone in found:
            what = f"tensor {name!r} is {found[alone].name!r} under another name"
            raise CheckpointError(TENSOR_MISMATCH, f"{files[tensor.file]}: {what}")
        found[alone] = tensor
    return found
