"""A checkpoint's bytes from its files, for decoders under test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import torch
from torch import Tensor

from halogend.checkpoint.tensor_table import TensorInfo


class FileBytes:
    """A ByteSource of `files`, as a checkpoint numbers them."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files: list[BinaryIO] = [file.open("rb") for file in files]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        """uint8 [nbytes] from `start` of the tensor on."""
        file = self._files[tensor.file]
        file.seek(tensor.offset + start)
        return torch.frombuffer(bytearray(file.read(nbytes)), dtype=torch.uint8)
