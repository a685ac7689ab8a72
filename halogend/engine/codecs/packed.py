"""What the codecs share: chunks, views of bytes, four-bit codes, and groups of columns."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.codecs.source import ByteSource

CHUNK_ELEMENTS = 1 << 18  # what is computed at once stays in the caches
SCRATCH_BYTES = 16 << 20  # the most that decoding holds beside its output and its source
TORCH_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I32": torch.int32,
}


def chunks(count: int, columns: int) -> Iterator[tuple[int, int]]:
    """[start, stop) of pieces of `count` rows with about CHUNK_ELEMENTS each."""
    step = max(1, CHUNK_ELEMENTS // columns)
    for start in range(0, count, step):
        yield start, min(start + step, count)


def typed(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 [nbytes] as `dtype`; copied only where it does not lie aligned."""
    if raw.storage_offset() % dtype.itemsize or raw.data_ptr() % dtype.itemsize:
        raw = raw.clone()
    return raw.view(dtype)


def take_matrix(source: ByteSource, tensor: TensorInfo) -> Tensor:
    """A whole tensor of a plain type, [leading axes flattened, last axis]."""
    values = typed(source.take(tensor, 0, tensor.nbytes), TORCH_TYPES[tensor.type.name])
    return values.view(-1, tensor.shape[-1] if tensor.shape else 1)


def nibbles(words: Tensor) -> Tensor:
    """int32 [..., w], contiguous -> uint8 [..., 8 w]: the four-bit codes of each word, lowest first."""
    pairs = words.view(torch.uint8).to(torch.int16)
    pairs |= pairs << 4
    pairs &= 0x0F0F  # one code in each byte, in memory's (little-endian) order
    return pairs.view(torch.uint8)


def scale_groups(values: Tensor, zeros: Tensor | None, scales: Tensor, group: int) -> None:
    """values[i, c] = (values[i, c] - zeros[i, c // group]) * scales[i, c // group], in place and in
    float32; the last group may be shorter."""
    full = values.shape[1] // group
    rest = values[:, full * group :]
    if full:
        whole = values[:, : full * group].view(-1, full, group)
        if zeros is not None:
            whole.sub_(zeros[:, :full, None])
        whole.mul_(scales[:, :full, None])
    if rest.shape[1]:
        if zeros is not None:
            rest.sub_(zeros[:, full:])
        rest.mul_(scales[:, full:])
