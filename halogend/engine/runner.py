"""The model runner: a step's plan in, logits out."""

from __future__ import annotations

import torch
from torch import Tensor

from halogend.engine.batch import make_batch
from halogend.engine.kvcache import KvCache
from halogend.engine.models.decoder import Decoder
from halogend.engine.progress import Progress
from halogend.engine.threads import StepThreads
from halogend.sched.step import StepPlan


class ModelRunner:
    """Implements `interface.Runner` over one model and one pool. All calls come from one thread."""

    def __init__(self, model: Decoder, cache: KvCache, progress: Progress) -> None:
        self._model = model
        self._cache = cache
        self._progress = progress
        self._threads = StepThreads(model.matrix_bytes)

    @property
    def vocab(self) -> int:
        return self._model.geometry.vocab

    @property
    def block_bytes(self) -> int:
        return self._cache.block_bytes

    def forward(self, plan: StepPlan, slot_tokens: Tensor) -> Tensor:
        """See `interface.Runner.forward`."""
        batch = make_batch(plan, slot_tokens)
        if batch.fresh_blocks:
            self._cache.clear(batch.fresh_blocks)
        self._threads.use_for_layers(len(batch.tokens))
        residual = self._model.run_layers(batch, self._cache, self._progress.bump)
        self._threads.use_all()
        logits = torch.empty(len(batch.sampled), self.vocab)
        if len(logits):
            self._model.write_logits(residual, logits)
        return logits

    def resize_pool(self, blocks: int) -> None:
        self._cache.resize(blocks)

    def set_threads(self, threads: int) -> None:
        self._threads.set(threads)
