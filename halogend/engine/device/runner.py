"""The runner of a model on a device: a step's plan in, logits on their way out. Waits for nothing.

    host      rows, tables -> one copy each | launch ... launch |   next step
    device                                     | copies | layers | logits |

Decode steps are replayed from graphs where the place can record them; all others are launched kernel by kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from halogend.engine.batch import Rows, make_rows
from halogend.engine.device.graphs import DecodeGraphs
from halogend.engine.device.place import Place
from halogend.engine.device.pool import DeviceKvCache
from halogend.engine.device.rows import send_rows
from halogend.engine.device.staging import StepWorkspace
from halogend.engine.models.decoder import Decoder, RunLayers
from halogend.engine.progress import Progress
from halogend.sched.step import StepPlan


class DeviceRunner:
    """Implements `interface.Runner` over one model and one pool. All calls come from one thread."""

    def __init__(
        self, model: Decoder, cache: DeviceKvCache, progress: Progress, place: Place, graphs: DecodeGraphs | None = None
    ) -> None:
        self._model = model
        self._cache = cache
        self._progress = progress
        self._place = place
        self._graphs = graphs
        self._workspace = StepWorkspace(place)

    def without_graphs(self) -> DeviceRunner:
        """The same model and pool, with every step launched kernel by kernel."""
        return DeviceRunner(self._model, self._cache, self._progress, self._place)

    @property
    def vocab(self) -> int:
        return self._model.geometry.vocab

    @property
    def block_bytes(self) -> int:
        return self._cache.block_bytes

    @torch.inference_mode()
    def forward(self, plan: StepPlan, slot_tokens: Tensor) -> Tensor:
        """See `interface.Runner.forward`."""
        self._cache.copy(plan.copies)  # before anything can fail: who repeats the step leaves them out
        rows = self._rows(plan)
        if self._graphs is not None and self._graphs.takes(plan):
            logits = self._graphs.forward(rows, slot_tokens, self._workspace)
            self._progress.bump()
            return logits
        return self._run(rows, slot_tokens, self._model.run_layers)

    @torch.inference_mode()
    def rehearse(self, plan: StepPlan, slot_tokens: Tensor) -> None:
        """`forward` through what is of one kind once: builds and takes what the whole step does in a fraction of its
        time. What it writes into the pool is of no use."""
        self._run(self._rows(plan), slot_tokens, self._model.run_samples)

    def _rows(self, plan: StepPlan) -> Rows:
        """Of a step whose blocks have memory from now on."""
        rows = make_rows(plan)
        self._cache.clear(rows.fresh_blocks)
        return rows

    def _run(self, rows: Rows, slot_tokens: Tensor, run: RunLayers) -> Tensor:
        batch = send_rows(rows, slot_tokens, self._workspace)
        plans = self._model.plan(batch, self._cache.dtype, self._workspace)
        residual = run(batch, plans, self._cache.layers, self._progress.bump)
        return self._model.logits(residual)

    @property
    def touched_bytes(self) -> int:
        return self._cache.touched_bytes

    def resize_pool(self, blocks: int, moves: Mapping[int, int]) -> None:
        self._cache.resize(blocks, moves)

    def set_threads(self, threads: int) -> None:
        """The host has little to compute beside a device: one thread. Interpreted kernels use no other either."""
        del threads
        torch.set_num_threads(1)
        self._place.enter()
