"""The model runner: a step's plan in, logits out."""

from __future__ import annotations

from collections.abc import Mapping

from halogen_kernels import Workspace
from torch import Tensor

from halogend.engine.batch import make_batch
from halogend.engine.kvcache import KvCache
from halogend.engine.models.decoder import Decoder, RunLayers
from halogend.engine.progress import Progress
from halogend.engine.threads import StepThreads
from halogend.sched.step import StepPlan


class ModelRunner:
    """Implements `interface.Runner` over one model and one pool. All calls come from one thread."""

    def __init__(self, model: Decoder, cache: KvCache, progress: Progress) -> None:
        self._model = model
        self._cache = cache
        self._progress = progress
        self._workspace = Workspace()
        self._threads = StepThreads(model.matrix_bytes)

    @property
    def vocab(self) -> int:
        return self._model.geometry.vocab

    @property
    def block_bytes(self) -> int:
        return self._cache.block_bytes

    def forward(self, plan: StepPlan, slot_tokens: Tensor) -> Tensor:
        """See `interface.Runner.forward`."""
        self._cache.copy(plan.copies)  # before anything can fail: who repeats the step leaves them out
        return self._run(plan, slot_tokens, self._model.run_layers)

    def rehearse(self, plan: StepPlan, slot_tokens: Tensor) -> None:
        """`forward` through what is of one kind once: takes the memory of the whole step in a fraction of its
        time. What it writes into the pool is of no use."""
        self._run(plan, slot_tokens, self._model.run_samples)

    def _run(self, plan: StepPlan, slot_tokens: Tensor, run: RunLayers) -> Tensor:
        batch = make_batch(plan, slot_tokens)
        if batch.fresh_blocks:
            self._cache.clear(batch.fresh_blocks)
        self._threads.use_for_layers(len(batch.tokens))
        plans = self._model.plan(batch, self._cache.dtype, self._workspace)
        residual = run(batch, plans, self._cache.layers, self._progress.bump)
        self._threads.use_all()
        return self._model.logits(residual)

    @property
    def touched_bytes(self) -> int:
        return self._cache.touched_bytes

    def resize_pool(self, blocks: int, moves: Mapping[int, int]) -> None:
        self._cache.resize(blocks, moves)

    def set_threads(self, threads: int) -> None:
        self._threads.set(threads)
