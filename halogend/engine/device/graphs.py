"""Decode steps that were recorded once and are replayed: one launch instead of hundreds.

    a step of 5 rows   padded to the bucket of 8: rows that attend to nothing, write nothing and are not given out
    its numbers        put where the recording of that bucket reads them
    replay             logits of 8 rows, of which the first 5 are given out

Must never know what is recorded: a step's layers are launched as they are without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog
import torch
from halogen_kernels.seam import FixedPlan
from torch import Tensor

from halogend.engine.batch import Batch, Rows, TableRows
from halogend.engine.device.pool import DeviceKvCache
from halogend.engine.device.rows import send_rows
from halogend.engine.device.staging import StepWorkspace
from halogend.engine.models.decoder import Decoder
from halogend.sched.blocks import blocks_for
from halogend.sched.errors import InvariantError
from halogend.sched.step import StepPlan

_NO_SLOT = -1  # of a row that writes nothing

log = structlog.get_logger(__name__)


class Recorder(Protocol):
    """Records what is launched."""

    def record(self, run: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        """How to do again what `run` does, with what the tensors that it reads hold then, and the tensor that it
        gives. Raises RuntimeError for what cannot be recorded."""
        ...


class CudaRecorder:
    """CUDA's graphs, and HIP's, which torch calls the same. All of them share what memory they use."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        before = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        side.wait_stream(before)
        with torch.cuda.stream(side):
            run()  # what is built at its first use is built outside the recording
        before.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            out = run()
        return graph.replay, out


@dataclass(frozen=True, slots=True)
class _Recording:
    """What it reads, in `batch` and `plans`; how it is done again; what it gives."""

    batch: Batch
    plans: Sequence[FixedPlan]
    replay: Callable[[], object]
    logits: Tensor

    def put(self, batch: Batch) -> None:
        """The numbers of a step of as many rows."""
        pairs = [(self.batch.tokens, batch.tokens), (self.batch.positions, batch.positions)]
        pairs += [(held.slots, table.slots) for held, table in zip(self.batch.tables, batch.tables, strict=True)]
        for held_, fresh in pairs:
            held_.copy_(fresh)
        for plan, table in zip(self.plans, batch.tables, strict=True):
            plan.fill(table.spans)


class DecodeGraphs:
    """Implements `interface.Recordings`: those of one model over one pool, by bucket, for contexts of up to `longest`
    positions. Single writer: the runner's thread. `reason` says why nothing is recorded any more, where that is so."""

    def __init__(self, model: Decoder, cache: DeviceKvCache, recorder: Recorder, longest: int) -> None:
        self.reason = ""
        self._model = model
        self._cache = cache
        self._recorder = recorder
        self._longest = longest
        self._most = 0
        self._recordings: dict[int, _Recording] = {}

    def expect(self, rows: int) -> None:
        """See `interface.Recordings.expect`. What is recorded stays: all of it lies in one memory, which goes back as a
        whole or not at all."""
        self._most = bucket_of(rows)

    @torch.inference_mode()
    def record(self) -> bool:
        """See `interface.Recordings.record`. The largest bucket comes first: the others find in its memory what they
        need."""
        if bucket := self._missing():
            try:
                self._recordings[bucket] = self._record(bucket)
            except InvariantError:
                raise
            except Exception as error:  # whatever it is: steps are launched as they were, and no request ends with it
                self.reason = f"decode steps could not be recorded: {error}"
                log.exception("graph_not_recorded", rows=bucket)
        return self._missing() > 0

    def prepare(self, most: int, bump: Callable[[], None]) -> None:
        """Records all buckets that steps of up to `most` rows need; `bump` is called after each."""
        self.expect(most)
        while self._missing():
            self.record()
            bump()

    def takes(self, plan: StepPlan) -> bool:
        """Whether a step is of one token for each request, who all want the next one, and as many are recorded."""
        return bucket_of(len(plan.items)) in self._recordings and all(
            item.count == 1 and item.samples and item.start < self._longest for item in plan.items
        )

    def forward(self, rows: Rows, slot_tokens: Tensor, workspace: StepWorkspace) -> Tensor:
        """Of a step that it takes: float32 [n, vocab], valid until the next step is launched."""
        count = len(rows.tokens)
        bucket = bucket_of(count)
        recording = self._recordings[bucket]
        recording.put(send_rows(padded_rows(rows, bucket), slot_tokens, workspace))
        recording.replay()
        return recording.logits[:count]

    def _missing(self) -> int:
        """The largest bucket that is to be recorded; 0 where there is none."""
        bucket = 0 if self.reason else self._most
        while bucket in self._recordings:
            bucket //= 2
        return bucket

    def _record(self, bucket: int) -> _Recording:
        batch = self._nothing(bucket)
        size = bucket, blocks_for(self._longest)
        plans = self._model.fixed_plans(self._cache.dtype, size, self._cache.device)

        def run() -> Tensor:
            own = [plan.plan for plan in plans]
            residual = self._model.run_layers(batch, own, self._cache.layers, _untold)
            return self._model.logits(residual)

        replay, logits = self._recorder.record(run)
        return _Recording(batch, plans, replay, logits)

    def _nothing(self, bucket: int) -> Batch:
        """Rows that write nothing."""
        device = self._cache.device
        zeros = torch.zeros(bucket, dtype=torch.int64, device=device)
        tables = tuple(TableRows(torch.full_like(zeros, _NO_SLOT), ()) for _ in self._model.groups.tables)
        return Batch(zeros, zeros.clone(), tables, torch.arange(bucket, device=device), [])


def bucket_of(rows: int) -> int:
    """The least power of two that holds them."""
    return 1 << (rows - 1).bit_length()


def padded_rows(rows: Rows, count: int) -> Rows:
    """Of a decode step, with rows up to `count` that write nothing."""
    missing = count - len(rows.tokens)
    return replace(
        rows,
        tokens=[*rows.tokens, *[0] * missing],
        positions=[*rows.positions, *[0] * missing],
        slots=[[*table, *[_NO_SLOT] * missing] for table in rows.slots],
    )


def _untold() -> None:
    """A replay has no layers to tell of."""
