"""Chooses tokens as a device would, but on the host: at once, with the sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from halogend.engine.interface import Want
from halogend.engine.sampler import NumericError, Sampler, SamplingState


@dataclass
class _Told:
    tokens: list[int]

    def wait(self) -> Sequence[int]:
        return self.tokens


class ChooserHere:
    """Implements `interface.Chooser`. `wanted` counts rows."""

    def __init__(self, vocab: int) -> None:
        self.device = torch.device("cpu")
        self.wanted = 0
        self._sampler = Sampler(vocab)

    def choose(self, logits: torch.Tensor, wants: Sequence[Want], slot_tokens: torch.Tensor) -> _Told:
        tokens = [self._token(logits[want.row], want) for want in wants]
        for want, token in zip(wants, tokens, strict=True):
            slot_tokens[want.slot] = max(token, 0)
        self.wanted += len(wants)
        return _Told(tokens)

    def _token(self, row: torch.Tensor, want: Want) -> int:
        try:
            return self._sampler.choose(row.numpy(), SamplingState(want.sampling, [0] * want.position))
        except NumericError:
            return -1
