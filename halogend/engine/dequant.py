"""GGUF blocks to numbers, vectorised, bit for bit what the `gguf` package gives.

Six common types are decoded here, the plain ones are reinterpreted, and the rest go through that
package. Source of the layouts: ggml's block definitions (`ggml-common.h`). Products of scales are
taken apart exactly as there, since their rounding is part of the result.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.gguf_types import GgmlType

CHUNK_ELEMENTS = 1 << 18  # intermediate values of a chunk stay in the caches

_PLAIN = {
    GgmlType.F32: torch.float32,
    GgmlType.F16: torch.float16,
    GgmlType.BF16: torch.bfloat16,
    GgmlType.F64: torch.float64,
}


def dequantise(kind: GgmlType, raw: Tensor, out: Tensor) -> None:
    """Writes the elements of `raw` (uint8, whole blocks of `kind`, contiguous) into `out` (contiguous,
    any floating dtype, as many elements). Needs memory for one chunk beside the two.

    Raises CheckpointError for a type that nobody can decode.
    """
    plain = _PLAIN.get(kind)
    if plain is not None:
        out.view(-1).copy_(raw.view(-1).view(plain))
        return
    decode = _DECODERS.get(kind) or _fallback(kind)
    blocks = raw.view(-1, kind.block_bytes)
    flat = out.view(-1, kind.block_elements)
    step = max(1, CHUNK_ELEMENTS // kind.block_elements)
    for first in range(0, len(blocks), step):
        flat[first : first + step] = decode(blocks[first : first + step])


def is_native(kind: GgmlType) -> bool:
    """Whether rows of `kind` can be decoded quickly enough to be looked up in every step."""
    return kind in _PLAIN or kind in _DECODERS


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte `at` of each block, float32 [n, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """[..., w] bytes -> [..., 2, w]: low halves, then high halves."""
    return torch.stack((packed & 0x0F, packed >> 4), dim=-2)


def _q4_0(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 2:18]).flatten(1).to(torch.int8) - 8
    return codes.float().mul_(_half(blocks, 0))


def _q4_1(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 4:20]).flatten(1).float()
    return codes.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q5_0(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, 6:22]).flatten(1)
    bits = torch.arange(8, dtype=torch.uint8)
    high = ((blocks[:, 2:6].unsqueeze(-1) >> bits) & 1).flatten(1)
    codes = (low | (high << 4)).to(torch.int8) - 16
    return codes.float().mul_(_half(blocks, 0))


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:34].view(torch.int8).float().mul_(_half(blocks, 0))


def _q4_k(blocks: Tensor) -> Tensor:
    """Eight groups of 32; scales and minima are 6-bit, packed into 12 bytes."""
    packed = blocks[:, 4:16].reshape(-1, 3, 4)
    first, second, rest = packed.unbind(1)
    scales = torch.cat((first & 0x3F, (rest & 0x0F) | ((first >> 2) & 0x30)), dim=1).float()
    minima = torch.cat((second & 0x3F, (rest >> 4) | ((second >> 2) & 0x30)), dim=1).float()
    scales *= _half(blocks, 0)
    minima *= _half(blocks, 2)
    codes = _nibbles(blocks[:, 16:144].reshape(-1, 4, 32)).flatten(1, 2).float()
    return codes.mul_(scales.unsqueeze(-1)).sub_(minima.unsqueeze(-1)).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    """Sixteen groups of 16; codes are 4 low bits from one array and 2 high bits from another."""
    low = _nibbles(blocks[:, 0:128].reshape(-1, 2, 64)).flatten(1)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).unsqueeze(-1)
    high = ((blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3).flatten(1)
    codes = (low | (high << 4)).to(torch.int8) - 32
    scales = blocks[:, 192:208].view(torch.int8).float() * _half(blocks, 208)
    return codes.view(-1, 16, 16).float().mul_(scales.unsqueeze(-1)).flatten(1)


_DECODERS: dict[GgmlType, Callable[[Tensor], Tensor]] = {
    GgmlType.Q4_0: _q4_0,
    GgmlType.Q4_1: _q4_1,
    GgmlType.Q5_0: _q5_0,
    GgmlType.Q8_0: _q8_0,
    GgmlType.Q4_K: _q4_k,
    GgmlType.Q6_K: _q6_k,
}


def _fallback(kind: GgmlType) -> Callable[[Tensor], Tensor]:
    import gguf  # noqa: PLC0415 (slow to import, and rarely needed)

    quantisation = gguf.GGMLQuantizationType(kind.number)

    def decode(blocks: Tensor) -> Tensor:
        try:
            return torch.from_numpy(gguf.quants.dequantize(blocks.numpy().reshape(-1), quantisation))
        except NotImplementedError as error:
            raise CheckpointError(TYPE_UNSUPPORTED, f"type {kind.name} cannot be decoded") from error

    def decode_blocks(blocks: Tensor) -> Tensor:
        return decode(blocks.contiguous()).view(-1, kind.block_elements)

    return decode_blocks
