"""Our side: scheduler, runner and sampler as they serve, without the processes around them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from halogend.engine.bench.measure import BATCHES, CONTEXT_TOKENS, Generate, Timing
from halogend.engine.execute import Executor
from halogend.engine.interface import Loaded
from halogend.engine.limits import sched_limits
from halogend.engine.loading import load
from halogend.engine.progress import Progress
from halogend.sched.blocks import BlockPool
from halogend.sched.request import Request
from halogend.sched.scheduler import Scheduler
from halogend.wire.requests import Sampling
from halogend.wire.specs import EngineLimits, EngineSpec

_POOL_BYTES = 1 << 30  # reserved, touched only where used
_GREEDY = Sampling(
    temperature=0,
    top_p=1,
    top_k=0,
    min_p=0,
    repetition_penalty=1,
    presence_penalty=0,
    frequency_penalty=0,
    seed=0,
)


def engine(model: str, threads: int, precision: str) -> Generate:
    """Loads `model`; raises CheckpointError."""
    limits = EngineLimits(
        max_model_len=CONTEXT_TOKENS,
        max_batch=max(BATCHES),
        max_queue=0,
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=0,
        pool_bytes=_POOL_BYTES,
    )
    spec = EngineSpec(
        path=model,
        load_format="auto",
        precision=precision,
        compute_dtype=precision,
        stretched=False,
        kv_cache_dtype=precision,
        flash_attention=True,
        backend="cpu",
        max_model_len=CONTEXT_TOKENS,
        pool_reserve_bytes=_POOL_BYTES,
        threads=threads,
        load_threads=0,
        limits=limits,
    )
    loaded = load(spec, Progress())
    loaded.runner.set_threads(threads)

    def generate(prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Timing]:
        return _generate(loaded, limits, prompts, max_tokens)

    return generate


def _generate(loaded: Loaded, limits: EngineLimits, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Timing]:
    pool = BlockPool(loaded.reserve_blocks, loaded.block_count)
    scheduler = Scheduler(sched_limits(limits), pool, loaded.layout)
    executor = Executor(loaded.runner, limits.max_batch)
    handed = time.perf_counter()
    for number, prompt in enumerate(prompts):
        scheduler.add(Request(number, tuple(prompt), max_tokens), handed)
        executor.begin(number, _GREEDY, prompt)
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    while (plan := scheduler.schedule(handed)) is not None:
        events = scheduler.apply(executor.run(plan))
        now = time.perf_counter()
        for number, _ in events.sampled:
            first.setdefault(number, now)
            last[number] = now
    return [Timing(handed, first[number], last[number]) for number in range(len(prompts))]
