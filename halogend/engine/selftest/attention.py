"""Attention over a paged cache, and writing to it. What nobody may read is NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from halogen_kernels import AttentionShape, Span, Workspace
from torch import Tensor

from halogend.engine.selftest.subject import EXACT, Result, Subject

_BLOCK_TOKENS = 16
_CHUNK_BLOCKS = 16
_STEPS = 6  # scores and shares are each rounded on the way


@dataclass(frozen=True, slots=True)
class _Kv:
    """Keys and values in fewer bits: a head's largest magnitude has the code `largest`, and a value is at most
    `off` codes away from its own."""

    word: str
    dtype: torch.dtype
    largest: float
    off: float


_CODED = (_Kv("int8", torch.int8, 127, 0.5), _Kv("fp8", torch.float8_e4m3fn, 448, 16))
"""e4m3 has eight steps to each power of two: from 256 on they are of 32."""


@dataclass(frozen=True, slots=True)
class _Cache:
    """One layer's: as the backend takes it, and the memory it lies in, [blocks, T * 2 * G * d], with the scales of
    codes, [blocks, T * 2 * G]."""

    layer: Any
    memory: tuple[Tensor, ...]
    scales: tuple[Tensor, ...] = ()

    def values(self) -> Tensor:
        """What it says; float64 where that is codes."""
        held = torch.cat([each.cpu() for each in self.memory])
        return _decoded(held, torch.cat([each.cpu() for each in self.scales])) if self.scales else held


def write_kv(subject: Subject) -> Iterator[Result]:
    """Rows go where they are sent, and nothing else is touched."""
    shape = _shape(subject)
    slots = torch.randperm(_CHUNK_BLOCKS * _BLOCK_TOKENS, generator=subject.generator)[:37]
    rows = subject.there(subject.random(37, shape.kv_width))
    for kv in _formats(subject):
        before = torch.full((_CHUNK_BLOCKS, _BLOCK_TOKENS * shape.kv_width), 7.0)
        cache = _cache(subject, shape, before, kv)
        subject.kernels.write_kv(cache.layer, slots.to(subject.device), rows)
        exact = before.double()
        EXACT.write_kv(exact, slots, rows.cpu().double())
        within = 0.0 if kv is None else kv.off / kv.largest * float(rows.abs().max()) * 1.001
        case = f"37 rows of {shape.kv_width}{_in(kv)}"
        yield subject.judge("write_kv", case, cache.values(), exact, steps=0, within=within)


def attend(subject: Subject) -> Iterator[Result]:
    """Prompt chunks behind a prefix, and single positions with long contexts, with windows and a soft cap. Of keys and
    values in fewer bits what was written counts, not what was meant."""
    longest = 3000 if subject.sizes == "large" else 70
    cases = {
        "attention_decode": ((longest, 1), (13, 1), (16, 1), (longest // 2, 1)),
        "attention_prefill": ((0, 30), (17, 20), (longest // 2, 5), (40, 1)),
    }
    for operator, wanted in cases.items():
        for kv in _formats(subject):
            for window in (None, 24):
                for softcap in (0.0, 20.0):
                    yield _attended(subject, operator, wanted, (window, softcap), kv)


def _attended(
    subject: Subject,
    operator: str,
    wanted: Sequence[tuple[int, int]],
    bounds: tuple[int | None, float],
    kv: _Kv | None,
) -> Result:
    """`bounds` are the window and the soft cap."""
    window, softcap = bounds
    shape = _shape(subject, softcap)
    spans, memory = _sequences(subject, shape, wanted)
    queries = subject.there(subject.random(spans[-1].row + spans[-1].count, shape.heads, shape.head_dim))
    cache = _cache(subject, shape, memory, kv)
    exact_plan = EXACT.plan_attention(shape, spans, window, torch.float64, Workspace())
    exact = EXACT.attend(queries.cpu().double(), cache.values().double(), exact_plan)
    dtype = subject.dtype if kv is None else kv.dtype
    plan = subject.kernels.plan_attention(shape, spans, window, dtype, Workspace(subject.device))
    got = subject.kernels.attend(queries, cache.layer, plan)
    case = f"{shape.heads}/{shape.kv_heads} heads of {shape.head_dim}, window {window}, soft cap {softcap:g}{_in(kv)}"
    return subject.judge(operator, case, got, exact, steps=_STEPS, size=float(exact.abs().max()) * 64)


def _formats(subject: Subject) -> tuple[_Kv | None, ...]:
    """None: as they are computed."""
    return (None, *_CODED) if subject.backend == "triton" else (None,)


def _in(kv: _Kv | None) -> str:
    return "" if kv is None else f", in {kv.word}"


def _shape(subject: Subject, softcap: float = 0.0) -> AttentionShape:
    heads, kv_heads, head_dim = (16, 4, 128) if subject.sizes == "large" else (6, 2, 64)
    return AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, _BLOCK_TOKENS, softcap)


def _sequences(subject: Subject, shape: AttentionShape, wanted: Sequence[tuple[int, int]]) -> tuple[list[Span], Tensor]:
    """(positions before, rows now) of each, in scattered blocks; block 0 is zeros, and what is nobody's is NaN."""
    needed = [-(-(start + count) // _BLOCK_TOKENS) for start, count in wanted]
    total = -(-(sum(needed) + 2) // _CHUNK_BLOCKS) * _CHUNK_BLOCKS
    memory = torch.full((total, _BLOCK_TOKENS * shape.kv_width), float("nan"))
    memory[0] = 0
    free = (torch.randperm(total - 1, generator=subject.generator) + 1).tolist()
    spans, row = [], 0
    for (start, count), blocks_needed in zip(wanted, needed, strict=True):
        blocks = sorted(free.pop() for _ in range(blocks_needed))
        memory[blocks] = 0  # what lies past a sequence's end in its last block may be read, and counts for nothing
        positions = torch.arange(start + count)
        slots = torch.tensor(blocks)[positions // _BLOCK_TOKENS] * _BLOCK_TOKENS + positions % _BLOCK_TOKENS
        memory.view(-1, shape.kv_width)[slots] = subject.random(len(slots), shape.kv_width)
        spans.append(Span(row, count, start, blocks))
        row += count
    return spans, memory


def _cache(subject: Subject, shape: AttentionShape, values: Tensor, kv: _Kv | None) -> _Cache:
    """That says these values, NaN as NaN. A backend of devices has it in chunks, each an allocation of its own."""
    if subject.backend != "triton":
        there = values.to(subject.dtype).to(subject.device, copy=True)
        return _Cache(there, (there,))
    from halogen_kernels.triton.chunked import over_chunks  # noqa: PLC0415 (nothing of Triton for other backends)

    held, scale = (values.to(subject.dtype), None) if kv is None else _encoded(values, shape.head_dim, kv)
    chunks, scales = _chunks(subject, held), () if scale is None else _chunks(subject, scale)
    return _Cache(over_chunks(chunks, _BLOCK_TOKENS, shape.head_dim, scales), chunks, scales)


def _chunks(subject: Subject, values: Tensor) -> tuple[Tensor, ...]:
    return tuple(chunk.to(subject.device, copy=True) for chunk in torch.split(values, _CHUNK_BLOCKS))


def _encoded(values: Tensor, head_dim: int, kv: _Kv) -> tuple[Tensor, Tensor]:
    """Codes, and a scale for each head; of a head that is NaN, the scale is."""
    heads = values.view(len(values), -1, head_dim)
    scales = heads.abs().amax(-1) / kv.largest
    codes = (heads / scales.masked_fill(scales == 0, 1.0).unsqueeze(-1)).nan_to_num()
    codes = codes.round() if kv.dtype == torch.int8 else codes
    return codes.to(kv.dtype).view(values.shape), scales


def _decoded(codes: Tensor, scales: Tensor) -> Tensor:
    heads = codes.double().view(len(codes), scales.shape[1], -1)
    return (heads * scales.double().unsqueeze(-1)).view(codes.shape)
