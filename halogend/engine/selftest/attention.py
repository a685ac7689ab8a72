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
class _Cache:
    """One layer's: as the backend takes it, and the memory it lies in, [blocks, T * 2 * G * d]."""

    layer: Any
    memory: tuple[Tensor, ...]

    def values(self) -> Tensor:
        return torch.cat([each.cpu() for each in self.memory])


def write_kv(subject: Subject) -> Iterator[Result]:
    """Rows go where they are sent, and nothing else is touched."""
    shape = _shape(subject)
    before = torch.full((_CHUNK_BLOCKS, _BLOCK_TOKENS * shape.kv_width), 7.0).to(subject.dtype)
    cache = _cache(subject, shape, before)
    slots = torch.randperm(_CHUNK_BLOCKS * _BLOCK_TOKENS, generator=subject.generator)[:37]
    rows = subject.there(subject.random(37, shape.kv_width))
    subject.kernels.write_kv(cache.layer, slots.to(subject.device), rows)
    exact = before.double()
    EXACT.write_kv(exact, slots, rows.cpu().double())
    yield subject.judge("write_kv", f"37 rows of {shape.kv_width}", cache.values(), exact, steps=0)


def attend(subject: Subject) -> Iterator[Result]:
    """Prompt chunks behind a prefix, and single positions with long contexts, with windows and a soft cap."""
    longest = 3000 if subject.sizes == "large" else 70
    cases = {
        "attention_decode": ((longest, 1), (13, 1), (16, 1), (longest // 2, 1)),
        "attention_prefill": ((0, 30), (17, 20), (longest // 2, 5), (40, 1)),
    }
    for operator, wanted in cases.items():
        for window in (None, 24):
            for softcap in (0.0, 20.0):
                yield _attended(subject, operator, wanted, window, softcap)


def _attended(
    subject: Subject, operator: str, wanted: Sequence[tuple[int, int]], window: int | None, softcap: float
) -> Result:
    shape = _shape(subject, softcap)
    spans, memory = _sequences(subject, shape, wanted)
    queries = subject.there(subject.random(spans[-1].row + spans[-1].count, shape.heads, shape.head_dim))
    exact_plan = EXACT.plan_attention(shape, spans, window, torch.float64, Workspace())
    exact = EXACT.attend(queries.cpu().double(), memory.double(), exact_plan)
    cache = _cache(subject, shape, memory)
    plan = subject.kernels.plan_attention(shape, spans, window, subject.dtype, Workspace(subject.device))
    got = subject.kernels.attend(queries, cache.layer, plan)
    case = f"{shape.heads}/{shape.kv_heads} heads of {shape.head_dim}, window {window}, soft cap {softcap:g}"
    return subject.judge(operator, case, got, exact, steps=_STEPS, size=float(exact.abs().max()) * 64)


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
    return spans, memory.to(subject.dtype)


def _cache(subject: Subject, shape: AttentionShape, memory: Tensor) -> _Cache:
    """A backend of devices has it in chunks, each an allocation of its own."""
    if subject.backend != "triton":
        there = memory.clone().to(subject.device)
        return _Cache(there, (there,))
    from halogen_kernels.triton.chunked import over_chunks  # noqa: PLC0415 (nothing of Triton for other backends)

    chunks = tuple(chunk.clone().to(subject.device) for chunk in torch.split(memory, _CHUNK_BLOCKS))
    return _Cache(over_chunks(chunks, _BLOCK_TOKENS, shape.head_dim), chunks)
