"""llama.cpp's side: its server, in process, from the `xllamacpp` wheel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from halogend.engine.bench.measure import BATCHES, CONTEXT_TOKENS, Generate, Timing


def llama_cpp(model: str, threads: int) -> Generate:
    """Loads `model`; raises ImportError without the wheel, and whatever the wheel raises."""
    import xllamacpp  # noqa: PLC0415 (an optional package)

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel = max(BATCHES)
    params.n_ctx = max(BATCHES) * CONTEXT_TOKENS
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    pool = ThreadPoolExecutor(max(BATCHES))

    def generate(prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Timing]:
        return list(pool.map(lambda prompt: _complete(server, prompt, max_tokens), prompts))

    return generate


def _complete(server: Any, prompt: Sequence[int], max_tokens: int) -> Timing:
    arrivals: list[float] = []

    def on_chunk(_: Any) -> None:
        arrivals.append(time.perf_counter())

    handed = time.perf_counter()
    body = {
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
    }
    server.handle_completions(body, on_chunk)
    if len(arrivals) < 2:
        raise RuntimeError("llama.cpp answered without tokens")
    return Timing(handed, arrivals[0], arrivals[-1])
