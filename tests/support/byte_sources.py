"""Sources of tensors' bytes for codecs: memory at any alignment, buffers used again, and whole files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from halogend.checkpoint.plain_types import PLAIN_TYPES
from halogend.checkpoint.tensor_table import TensorInfo

_LABELS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int32: "I32",
    torch.int8: "I8",
}


class MemorySource:
    """Holds what `put` gave it. What `take` hands out lies `skew` bytes off alignment and is overwritten at
    the next take of the same tensor."""

    def __init__(self, skew: int = 0) -> None:
        self.skew = skew
        self.taken_bytes = 0
        self._held: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}

    def put(self, name: str, tensor: Tensor) -> TensorInfo:
        self._held[name] = tensor.contiguous().view(-1).view(torch.uint8)
        return TensorInfo(name, tuple(tensor.shape), PLAIN_TYPES[_LABELS[tensor.dtype]], 0, tensor.nbytes)

    def put_raw(self, info: TensorInfo, raw: Tensor) -> TensorInfo:
        self._held[info.name] = raw
        return info

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        if tensor.name in self._last:
            self._last[tensor.name].fill_(0xA5)
        assert start + nbytes <= len(self._held[tensor.name])
        self.taken_bytes += nbytes
        buffer = torch.full((nbytes + self.skew,), 0xA5, dtype=torch.uint8)
        buffer[self.skew :] = self._held[tensor.name][start : start + nbytes]
        self._last[tensor.name] = buffer
        return buffer[self.skew :]


class FileSource:
    """The bytes of a checkpoint's files, read whole."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        self._content = [torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) for path in files]

    def take(self, tensor: TensorInfo, start: int, nbytes: int) -> Tensor:
        begin = tensor.offset + start
        return self._content[tensor.file][begin : begin + nbytes]
