"""How long something takes on a device: what it takes to launch it left out, and caches cold.

On a GPU the calls are recorded into a graph, which is played back between two events: a launch from Python takes
longer than many a kernel. Where something cannot be recorded, calls are timed as they are, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

Run = Callable[[], object]

ROUNDS = 7
LEAST_CALLS = 8  # in one graph, so that its own start does not count
MOST_SETS = 64
CACHES = 4  # sets of inputs together are this many times what the device's cache holds


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds a call, the median of some rounds. `recorded`: without what launching takes."""

    seconds: float
    recorded: bool


def timed(runs: Sequence[Run], device: torch.device, rounds: int = ROUNDS) -> Timed:
    """Of calls that take inputs of their own each, in turn."""
    if device.type != "cuda":
        runs[0]()
        return Timed(median(_host_round(runs) for _ in range(rounds)), recorded=False)
    calls = list(runs) * -(-LEAST_CALLS // len(runs))
    for run in runs:
        run()
    torch.cuda.synchronize()
    graph = _record(calls)
    play = graph.replay if graph is not None else lambda: [run() for run in calls]
    play()
    return Timed(median(_device_round(play) for _ in range(rounds)) / len(calls), graph is not None)


def set_count(nbytes: int, device: torch.device) -> int:
    """How many sets of inputs of `nbytes` no cache holds; one where there is no GPU."""
    if device.type != "cuda":
        return 1
    cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    return min(MOST_SETS, max(1, -(-CACHES * cache_bytes // max(1, nbytes))))


def _record(calls: Sequence[Run]) -> torch.cuda.CUDAGraph | None:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for run in calls:
                run()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph


def _device_round(play: Run) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    play()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _host_round(runs: Sequence[Run]) -> float:
    started = time.perf_counter()
    for run in runs:
        run()
    return (time.perf_counter() - started) / len(runs)
