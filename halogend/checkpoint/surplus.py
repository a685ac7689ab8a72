"""Tensors that a model has no place for: which of them may be there, and the refusal of all others.

A surplus bias that is left out gives a model that answers nonsense, so nothing is passed over but what
says nothing. Quantisers write a bias beside every matrix, of zeros where the model has none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from halogend.checkpoint.errors import TENSOR_MISMATCH, TRUNCATED, CheckpointError
from halogend.checkpoint.files import open_regular, unreadable
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.names import TensorNames
from halogend.checkpoint.stored import Awq, Encoded, Gptq
from halogend.checkpoint.tensor_table import TensorInfo

_PIECE_BYTES = 1 << 20


def check_surplus(
    stored: Mapping[str, Encoded],
    used: frozenset[str],
    names: TensorNames,
    geometry: Geometry,
    files: Sequence[Path],
) -> None:
    """`used` are those names of `stored` that the model has a place for. Biases of quantised matrices are
    read from the `files`. Raises CheckpointError naming the first tensor that cannot be passed over."""
    model = f"the model that {names.source} describes ({geometry.architecture}, layers: {geometry.layers})"
    for name, encoded in stored.items():
        if name in used or names.may_ignore(name, geometry):
            continue
        tensor = encoded.tensors[0]
        where = files[tensor.file]
        if not _is_bias_of(encoded, stored.get(name.removesuffix("bias") + "weight")):
            what = f"tensor {tensor.name!r} has no place in {model}"
            raise CheckpointError(TENSOR_MISMATCH, f"{where}: {what}")
        if not _is_zero(where, tensor):
            what = f"tensor {tensor.name!r} is not all zeros, and has no place in {model}"
            raise CheckpointError(TENSOR_MISMATCH, f"{where}: {what}")


def _is_bias_of(encoded: Encoded, matrix: Encoded | None) -> bool:
    """Whether it is as long as a four-bit matrix of its name is high."""
    return isinstance(matrix, Gptq | Awq) and (encoded.rows, encoded.columns) == (matrix.rows, 1)


def _is_zero(path: Path, tensor: TensorInfo) -> bool:
    position, end = tensor.offset, tensor.offset + tensor.nbytes
    with open_regular(path) as file:
        while position < end:
            try:
                data = os.pread(file.fileno(), min(end - position, _PIECE_BYTES), position)
            except OSError as error:
                raise unreadable(path, error) from error
            if not data:  # truncated by somebody since its header was read
                raise CheckpointError(TRUNCATED, f"{path}: the file ends inside tensor {tensor.name!r}")
            if data.count(0) != len(data):
                return False
            position += len(data)
    return True
