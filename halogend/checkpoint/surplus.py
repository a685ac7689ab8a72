"""Tensors that a model has no place for: which of them may be there, and the refusal of all others.

A surplus bias that is left out gives a model that answers nonsense, so nothing is passed over but what
says nothing. Quantisers write a bias beside every matrix, of zeros where the model has none. Whoever writes
a model anew may drop copies, and what training left behind.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from halogend.checkpoint.errors import TENSOR_MISMATCH, TRUNCATED, CheckpointError
from halogend.checkpoint.files import open_regular, unreadable
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.names import TensorNames
from halogend.checkpoint.stored import Awq, Encoded, Gptq, Plain
from halogend.checkpoint.tensor_table import TensorInfo

_PIECE_BYTES = 1 << 20
# Parts of names, between dots. No weight's name has one.
_TRAINING = frozenset(
    {
        *("optimizer", "optimizer_state", "optimizer_states", "optim", "opt_state", "optimizer_state_dict"),
        *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "momentum", "adam_m", "adam_v"),
        *("grad", "grads", "gradient", "gradients", "grad_scaler", "loss_scaler"),
        *("master_weight", "master_weights", "master_param", "master_params", "fp32_master"),
        *("lr_scheduler", "scheduler", "rng_state", "rng_states", "global_step"),
    }
)


class Surplus(enum.Enum):
    """What becomes of tensors that the model has no place for, beside those that say nothing."""

    REFUSED = "refused"
    COPIES_DROPPED = "copies dropped"
    """A tensor with the very bytes of one that is used."""
    TRAINING_DROPPED = "copies, optimizer state and gradients dropped"


def considered(tensors: Mapping[str, TensorInfo], surplus: Surplus) -> Mapping[str, TensorInfo]:
    """Without what training left behind, where that is dropped."""
    if surplus is not Surplus.TRAINING_DROPPED:
        return tensors
    return {name: tensor for name, tensor in tensors.items() if not is_training_state(name)}


def is_training_state(name: str) -> bool:
    """Whether the tensor is of an optimizer, a gradient, or the state of what steered a training."""
    return not _TRAINING.isdisjoint(name.lower().split("."))


def check_surplus(
    stored: Mapping[str, Encoded],
    used: frozenset[str],
    names: TensorNames,
    geometry: Geometry,
    files: Sequence[Path],
    surplus: Surplus = Surplus.REFUSED,
) -> None:
    """`used` are those names of `stored` that the model has a place for. Biases of quantised matrices, and what may
    be a copy, are read from the `files`. Raises CheckpointError naming the first tensor that cannot be passed over."""
    model = f"the model that {names.source} describes ({geometry.architecture}, layers: {geometry.layers})"
    for name, encoded in stored.items():
        if name in used or names.may_ignore(name, geometry):
            continue
        if surplus is not Surplus.REFUSED and _is_copy(encoded, (stored[each] for each in used), files):
            continue
        tensor = encoded.tensors[0]
        where = files[tensor.file]
        if is_training_state(name):
            what = f"tensor {tensor.name!r} is what training left behind, and has no place in {model}"
            remedy = "`halogend convert` writes the model without it"
            raise CheckpointError(TENSOR_MISMATCH, f"{where}: {what}; {remedy}")
        if not _is_bias_of(encoded, stored.get(name.removesuffix("bias") + "weight")):
            what = f"tensor {tensor.name!r} has no place in {model}"
            raise CheckpointError(TENSOR_MISMATCH, f"{where}: {what}")
        if not _is_zero(where, tensor):
            what = f"tensor {tensor.name!r} is not all zeros, and has no place in {model}"
            raise CheckpointError(TENSOR_MISMATCH, f"{where}: {what}")


def _is_bias_of(encoded: Encoded, matrix: Encoded | None) -> bool:
    """Whether it is as long as a four-bit matrix of its name is high."""
    return isinstance(matrix, Gptq | Awq) and (encoded.rows, encoded.columns) == (matrix.rows, 1)


def _is_copy(encoded: Encoded, others: Iterator[Encoded], files: Sequence[Path]) -> bool:
    """Whether one of the others has its type, shape and bytes."""
    if not isinstance(encoded, Plain):
        return False
    tensor = encoded.tensor
    alike = (
        other.tensor
        for other in others
        if isinstance(other, Plain) and (other.tensor.type, other.tensor.shape) == (tensor.type, tensor.shape)
    )
    return any(_are_equal(files, tensor, other) for other in alike)


def _are_equal(files: Sequence[Path], one: TensorInfo, other: TensorInfo) -> bool:
    pairs = zip(_pieces(files[one.file], one), _pieces(files[other.file], other), strict=True)
    return all(mine == theirs for mine, theirs in pairs)


def _is_zero(path: Path, tensor: TensorInfo) -> bool:
    return all(piece.count(0) == len(piece) for piece in _pieces(path, tensor))


def _pieces(path: Path, tensor: TensorInfo) -> Iterator[bytes]:
    """A tensor's bytes in pieces of 1 MiB. Raises CheckpointError."""
    position, end = tensor.offset, tensor.offset + tensor.nbytes
    with open_regular(path) as file:
        while position < end:
            wanted = min(end - position, _PIECE_BYTES)
            try:
                data = os.pread(file.fileno(), wanted, position)
            except OSError as error:
                raise unreadable(path, error) from error
            if len(data) < wanted:  # truncated by somebody since its header was read
                raise CheckpointError(TRUNCATED, f"{path}: the file ends inside tensor {tensor.name!r}")
            yield data
            position += wanted
