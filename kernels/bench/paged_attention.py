"""Prints how long decode attention takes in one layer, by where the blocks of its contexts lie.

    python kernels/bench/paged_attention.py [--model smollm2] [--contexts 256,1024] [--batches 1,8] [--cpu-time]

    large groups   blocks anywhere; as many sequences gathered at once as 8 Mi values hold
    anywhere       blocks anywhere; as gathered now: about what a core's cache holds
    runs of 8      aligned runs of eight blocks, anywhere
    row, gathered  each context in one row, and gathered all the same
    row            each context in one row

Caches are taken in turn from a set that no cache of the processor holds, as a model's layers are. The ways run
side by side, round after round, and the best round counts: ratios mean more than times on a shared machine.
With --cpu-time it is this thread's processor time, which others that run do not count into; for one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from halogen_kernels import AttentionShape, Span, Workspace
from halogen_kernels.cpu.attention import AttentionPlan, attend
from halogen_kernels.cpu.groups import GROUP_VALUES, group_by_length, plan_group

MODELS = {
    "smollm2": AttentionShape(9, 3, 64, 64**-0.5, 16),
    "gemma3": AttentionShape(4, 1, 256, 256**-0.5, 16),
}
WAYS = ("large groups", "anywhere", "runs of 8", "row, gathered", "row")
LARGE_VALUES = 8 << 20
RUN = 8
ROUNDS = 3


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse(argv)
    torch.set_num_threads(arguments.threads)
    shape, dtype = MODELS[arguments.model], getattr(torch, arguments.dtype)
    clock = time.thread_time if arguments.cpu_time else time.perf_counter
    print(f"{arguments.model}, {arguments.dtype}, {arguments.threads} threads, us a layer, and beside the first way")
    print("batch context  " + "  ".join(f"{way:>16}" for way in WAYS))
    for batch in arguments.batches:
        for context in arguments.contexts:
            taken = time_ways(shape, dtype, batch, context, arguments.cache_mib << 20, clock)
            first = taken[WAYS[0]]
            cells = "  ".join(f"{taken[way] * 1e6:>9.0f} ({taken[way] / first:4.2f})" for way in WAYS)
            print(f"{batch:>5} {context:>7}  {cells}", flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=tuple(MODELS), default="smollm2")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--contexts", type=numbers, default=(256, 1024, 2048, 8192, 30000))
    parser.add_argument("--batches", type=numbers, default=(1, 8, 16))
    parser.add_argument("--cache-mib", type=int, default=256, help="of all caches that are taken in turn")
    parser.add_argument("--cpu-time", action="store_true")
    return parser.parse_args(argv)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def time_ways(
    shape: AttentionShape,
    dtype: torch.dtype,
    batch: int,
    context: int,
    cache_bytes: int,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Seconds a layer, for each way."""
    each = -(-context // (shape.block_tokens * RUN)) * RUN
    blocks = RUN * (1 + batch * each // RUN)
    width = shape.block_tokens * shape.kv_width
    layers = max(1, cache_bytes // (blocks * width * dtype.itemsize))
    caches = torch.empty(layers, blocks, width, dtype=dtype).normal_().unbind()
    plans = {way: make_plan(way, shape, dtype, batch, context) for way in WAYS}
    queries = torch.randn(batch, shape.heads, shape.head_dim).to(dtype)
    best = dict.fromkeys(WAYS, float("inf"))
    for _ in range(ROUNDS):
        for way, plan in plans.items():
            started = clock()
            for cache in caches:
                attend(queries, cache, plan)
            best[way] = min(best[way], (clock() - started) / layers)
    return best


def make_plan(way: str, shape: AttentionShape, dtype: torch.dtype, batch: int, context: int) -> AttentionPlan:
    each = -(-context // (shape.block_tokens * RUN)) * RUN
    runs = torch.arange(RUN, RUN + batch * each).view(-1, RUN if way == "runs of 8" else 1)
    if not way.startswith("row"):
        runs = runs[torch.randperm(len(runs))]
    blocks = runs.flatten().tolist()
    spans = [Span(row, 1, context - 1, blocks[row * each : (row + 1) * each]) for row in range(batch)]
    values = LARGE_VALUES if way == "large groups" else GROUP_VALUES
    groups = [plan_group(shape, group, None, dtype, batch) for group in group_by_length(spans, shape, None, values)]
    if way != "row":
        groups = [replace(group, place=None) for group in groups]
    return AttentionPlan(shape, None, tuple(groups), (), Workspace())


if __name__ == "__main__":
    main()
