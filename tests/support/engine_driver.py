"""Real scheduler and real runner, greedy, without a process around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.engine.interface import Loaded
from halogend.engine.loading import load
from halogend.engine.progress import Progress
from halogend.sched.blocks import BlockPool
from halogend.sched.limits import SchedLimits
from halogend.sched.request import Request
from halogend.sched.scheduler import Scheduler
from halogend.sched.step import StepResult
from halogend.wire.specs import EngineLimits, EngineSpec


def engine_spec(path: Path, *, precision: str = "fp32", pool_bytes: int = 8 << 20, **changes: object) -> EngineSpec:
    limits = EngineLimits(
        max_model_len=512,
        max_batch=32,
        max_queue=64,
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=0,
        pool_bytes=pool_bytes,
    )
    values: dict[str, object] = {
        "path": str(path),
        "load_format": "auto",
        "precision": precision,
        "compute_dtype": precision,
        "stretched": False,
        "kv_cache_dtype": precision,
        "flash_attention": True,
        "backend": "cpu",
        "max_model_len": 512,
        "pool_reserve_bytes": 2 * pool_bytes,
        "threads": 1,
        "load_threads": 1,
        "limits": limits,
    }
    return EngineSpec(**(values | changes))  # type: ignore[arg-type]  # checked by the struct's users


def load_engine(path: Path, **changes: object) -> Loaded:
    """As the daemon would start it."""
    spec = engine_spec(path, **changes)  # type: ignore[arg-type]  # as above
    stretched = open_checkpoint(path, spec.load_format).geometry.is_stretched(spec.limits.max_model_len)
    return load(msgspec.structs.replace(spec, stretched=stretched), Progress())


def spread(engine: Loaded, blocks: Sequence[int]) -> list[list[int]]:
    """For a step made by hand: `blocks` for the first table and others, no block twice, for each further one."""
    return [[block + table * max(blocks) for block in blocks] for table in range(engine.layout.tables)]


@dataclass
class Generated:
    """`blocks_held` is the pool's use after each step."""

    tokens: list[list[int]]
    preemptions: int
    steps: int
    blocks_held: list[int]


def generate_greedy(
    engine: Loaded,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    max_batch: int = 32,
    chunk: int = 0,
    blocks: int | None = None,
    slots: int = 32,
    after_step: Callable[[int, Scheduler], None] = lambda number, scheduler: None,
) -> Generated:
    """Each prompt's continuation. `blocks` is the pool's limit, `chunk` the most positions of one
    request a step computes (0: all at once)."""
    limits = SchedLimits(
        max_batch=max_batch,
        max_queue=len(prompts),
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=chunk,
        step_tokens=1 << 20,
    )
    scheduler = Scheduler(limits, BlockPool(engine.reserve_blocks, blocks or engine.block_count), engine.layout)
    for number, prompt in enumerate(prompts):
        assert scheduler.add(Request(number, tuple(prompt), max_tokens), 0.0) is None
    slot_tokens = torch.zeros(slots, dtype=torch.int64)
    tokens: list[list[int]] = [[] for _ in prompts]
    steps = 0
    held: list[int] = []
    while (plan := scheduler.schedule(0.0)) is not None:
        logits = engine.runner.forward(plan, slot_tokens)
        rows = [item for item in plan.items if item.samples]
        chosen = logits.argmax(-1)
        for item, token in zip(rows, chosen.tolist(), strict=True):
            slot_tokens[item.slot] = token
        sampled = tuple((item.id, token) for item, token in zip(rows, chosen.tolist(), strict=True))
        for request_id, token in scheduler.apply(StepResult(plan.number, sampled)).sampled:
            tokens[request_id].append(token)
        scheduler.audit()
        held.append(scheduler.stats.blocks_used)
        steps += 1
        after_step(steps, scheduler)
    return Generated(tokens, scheduler.stats.preemptions, steps, held)
