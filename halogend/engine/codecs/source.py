"""Where a codec gets a tensor's bytes from: a mapped file, or reads into a buffer."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.tensor_table import TensorInfo


class TensorError(CheckpointError):
    """What a tensor holds cannot be decoded. Codecs know no files: whoever opened them names the one of
    `tensor`."""

    def __init__(self, code: str, tensor: TensorInfo, what: str) -> None:
        super().__init__(code, f"tensor {tensor.name!r}: {what}")
        self.tensor = tensor


class ByteSource(Protocol):
    """The bytes of a checkpoint's tensors. Safe from several threads."""

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        """Bytes `start` to `start + nbytes - 1` of the tensor, uint8 [nbytes], contiguous, at any
        alignment. To be read only, and only until this thread's next take of the same tensor.

        Raises CheckpointError where the file ends early or cannot be read.
        """
