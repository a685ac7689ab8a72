"""Our side of `halogend bench load`: the loader's thread as an engine starts it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

from halogend.checkpoint.sizes import VALUE_BYTES
from halogend.engine.bench.memory import Peaks, resident
from halogend.engine.interface import Loaded
from halogend.engine.loading import load_threads
from halogend.engine.progress import Progress
from halogend.engine.worker import load_into
from halogend.obs.processor import numbers
from halogend.wire.specs import EngineLimits, EngineSpec

_POOL_BYTES = 1 << 30  # reserved, touched only where the warm-up writes
_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class OurFigures:
    """Seconds; bytes. `peak_bytes` is how far the resident set (anonymous, files' pages and shared) rose above
    what it was after the imports, by the kernel's own high-water mark; the two parts of it are each part's
    own highest sample, not necessarily at one moment."""

    load_s: float
    load_cpu_s: float
    warmup_s: float
    read_bytes: int
    held_bytes: int
    peak_bytes: int
    peak_anonymous_bytes: int
    peak_file_bytes: int
    threads: int


def ours(path: str, precision: str, threads: int) -> OurFigures:
    """Loads the model. Raises CheckpointError."""
    spec = load_spec(path, precision, threads)
    before = resident()
    future: Future[Loaded] = Future()
    progress = _Clocked()
    with Peaks() as peaks:
        loader = threading.Thread(target=load_into, args=(spec, progress, future), name="load")
        loader.start()
        loader.join()
    loaded = future.result()
    return OurFigures(
        load_s=loaded.load_s,
        load_cpu_s=progress.cpu_s("warming") - progress.cpu_s("loading"),
        warmup_s=loaded.warmup_s,
        read_bytes=progress.bytes_of("loading"),
        held_bytes=loaded.weights_bytes,
        peak_bytes=resident().high_water - before.total,
        peak_anonymous_bytes=peaks.anonymous - before.anonymous,
        peak_file_bytes=peaks.file - before.file,
        threads=load_threads(spec),
    )


def load_spec(path: str, precision: str, threads: int) -> EngineSpec:
    """What both sides load. Products are in `precision` where that is a number format, else in the processor's own
    numbers."""
    products = precision if precision in VALUE_BYTES else numbers()
    limits = EngineLimits(
        max_model_len=_CONTEXT,
        max_batch=1,
        max_queue=0,
        queue_timeout_s=0,
        request_timeout_s=0,
        prefill_chunk_tokens=0,
        pool_bytes=_POOL_BYTES,
    )
    return EngineSpec(
        path=path,
        load_format="auto",
        precision=precision,
        compute_dtype=products,
        stretched=False,
        kv_cache_dtype=products,
        flash_attention=True,
        backend="cpu",
        max_model_len=_CONTEXT,
        pool_reserve_bytes=_POOL_BYTES,
        threads=1,
        load_threads=threads,
        limits=limits,
    )


class _Clocked(Progress):
    """Remembers the process's processor time at the beginning of each stage, and the bytes that lay ahead then."""

    def __init__(self) -> None:
        super().__init__()
        self._at: dict[str, float] = {}
        self._bytes: dict[str, int] = {}

    def begin(self, stage: str, total: int = 0) -> None:
        self._at[stage], self._bytes[stage] = time.process_time(), total
        super().begin(stage, total)

    def bytes_of(self, stage: str) -> int:
        return self._bytes[stage]

    def cpu_s(self, stage: str) -> float:
        return self._at[stage]
