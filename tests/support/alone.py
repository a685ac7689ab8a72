"""A model with one request and nothing beside it: how likely each token is that may come next.

It is loaded as the daemon would load it for a document, with the same kernels, and has no processes around it. It
computes in one thread: several would wait for each other wherever somebody else has a core.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from support.engine_driver import spread

from halogend.checkpoint.gguf import read_header
from halogend.config.parse import parse
from halogend.control.desired import make_targets
from halogend.control.facts import gather
from halogend.control.machine import probe
from halogend.engine.loading import load
from halogend.engine.progress import Progress
from halogend.sched.blocks import blocks_for
from halogend.sched.step import StepItem, StepPlan
from halogend.text.tokenizer import Tokenizer


class Alone:
    """Of the only model of a document, a GGUF file. What of a request was computed for the last question is used again
    as far as the next one begins like it."""

    def __init__(self, document: str) -> None:
        parsed = parse(document.encode(), "document", {})
        if parsed.document is None:
            raise ValueError(f"{parsed.problems}")
        (target,) = make_targets(parsed.document, gather(parsed.document, probe())).values()
        self.spec = target.spec.engine
        self.engine = load(self.spec, Progress())
        self.engine.runner.set_threads(1)
        self.tokenizer = Tokenizer.from_header(read_header(Path(self.spec.path)))
        self._blocks = spread(self.engine, range(1, 1 + blocks_for(self.spec.limits.max_model_len)))
        self._there: list[int] = []
        self._steps = 0

    @property
    def end_ids(self) -> frozenset[int]:
        return self.tokenizer.end_ids

    def piece(self, token: int) -> bytes:
        return self.tokenizer.piece(token)

    def encode(self, prompt: str) -> list[int]:
        return self.tokenizer.encode_prompt(self.tokenizer.control.split(prompt), prompt)

    def log_probs(self, prompt: Sequence[int], answer: Sequence[int]) -> npt.NDArray[np.float64]:
        """[vocabulary]. The prompt is computed in one step, each token of the answer in one of its own."""
        tokens = [*prompt, *answer]
        known = next((at for at, pair in enumerate(zip(tokens, self._there, strict=False)) if pair[0] != pair[1]), None)
        known = min(len(tokens), len(self._there)) if known is None else known
        done = min(known, len(tokens) - 1)
        ends = range(max(done + 1, len(prompt)), len(tokens) + 1)
        start = done if done >= len(prompt) else 0
        logits = torch.empty(0)
        for end in ends:
            logits = self._computed(tokens, start, end)
            start = end
        self._there = tokens
        found: npt.NDArray[np.float64] = logits[0].double().log_softmax(-1).numpy()
        return found

    def _computed(self, tokens: list[int], start: int, end: int) -> torch.Tensor:
        """float32 [1, vocabulary]"""
        self._steps += 1
        part = tuple(tokens[start:end])
        item = StepItem(1, 0, start, part, from_slot=False, blocks=self._blocks, samples=True)
        return self.engine.runner.forward(StepPlan(self._steps, (item,)), torch.zeros(1, dtype=torch.int64))
