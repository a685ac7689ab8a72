"""What the codecs share: work in chunks, views of bytes, four-bit codes, groups of columns.

Buffers are used again from chunk to chunk: fresh memory costs more in page faults than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.plain_types import PlainType
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.codecs.source import ByteSource

CHUNK_ELEMENTS = 1 << 19  # computed at once: 2 MiB of float32, and a few more of what leads to it
_TORCH_TYPES: dict[GgmlType | PlainType, torch.dtype] = {
    GgmlType.F32: torch.float32,
    PlainType.F32: torch.float32,
    PlainType.F16: torch.float16,
    PlainType.BF16: torch.bfloat16,
    PlainType.I32: torch.int32,
}


class Codes(NamedTuple):
    """Four-bit codes as they are stored: value = (code - zero point) * scale. `codes` are uint8 [rows, columns],
    `zeros` and `scales` float32 [rows, groups]."""

    codes: Tensor
    zeros: Tensor
    scales: Tensor


def fill_in_chunks(out: Tensor, fill: Callable[[Tensor, int, int], None]) -> None:
    """Calls `fill(values, start, stop)` for pieces of about CHUNK_ELEMENTS: it writes rows `start` to
    `stop - 1` of `out` into `values`, float32 [stop - start, columns], which may hold anything before."""
    count, columns = out.shape
    step = max(1, CHUNK_ELEMENTS // columns)
    room = None if out.dtype == torch.float32 else torch.empty(min(step, count), columns)
    for start in range(0, count, step):
        piece = out[start : start + step]
        values = piece if room is None else room[: len(piece)]
        fill(values, start, start + len(piece))
        if room is not None:
            piece.copy_(values)


def aligned(raw: Tensor, unit: int) -> Tensor:
    """uint8 [nbytes] at a multiple of `unit` bytes, copied only where it is not."""
    return raw.clone() if raw.storage_offset() % unit or raw.data_ptr() % unit else raw


def take_matrix(source: ByteSource, tensor: TensorInfo) -> Tensor:
    """A whole tensor of codes or scales, [leading axes flattened, last axis]."""
    kind = _TORCH_TYPES[tensor.type]
    raw = aligned(source.take(tensor, 0, tensor.nbytes), kind.itemsize)
    return raw.view(kind).view(-1, tensor.shape[-1] if tensor.shape else 1)


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
