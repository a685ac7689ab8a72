"""Tokens chosen where the logits are, and told to the host when it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from halogen_kernels.sampling import Rule, rules
from torch import Tensor

from halogend.engine.device.place import Place
from halogend.engine.device.staging import StepWorkspace
from halogend.engine.interface import Want
from halogend.engine.philox import uniform

Sample = Callable[[Tensor, Tensor], Tensor]


class _Here:
    """Tokens that lie on the host."""

    def __init__(self, tokens: Tensor) -> None:
        self._tokens = tokens

    def wait(self) -> Sequence[int]:
        tokens: list[int] = self._tokens.tolist()
        return tokens


class _OnTheWay:
    """Tokens that a device sends to the host."""

    def __init__(self, tokens: Tensor) -> None:
        self._tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        self._tokens.copy_(tokens, non_blocking=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._arrived.record()

    def wait(self) -> Sequence[int]:
        self._arrived.synchronize()
        tokens: list[int] = self._tokens.tolist()
        return tokens


class DeviceChooser:
    """Implements `interface.Chooser` with the operator `sample`: of float32 logits [n, vocab] and what
    `sampling.rules` says of each row. One thread."""

    def __init__(self, place: Place, sample: Sample) -> None:
        self._place = place
        self._sample = sample
        self._workspace = StepWorkspace(place)

    @property
    def device(self) -> torch.device:
        return self._place.device

    @torch.inference_mode()
    def choose(self, logits: Tensor, wants: Sequence[Want], slot_tokens: Tensor) -> _Here | _OnTheWay:
        """See `interface.Chooser.choose`."""
        places = self._workspace.send(torch.tensor([[want.row for want in wants], [want.slot for want in wants]]))
        told = self._workspace.send(rules(_rule(want) for want in wants))
        rows = logits if len(wants) == len(logits) else logits.index_select(0, places[0])
        tokens = self._sample(rows, told)
        # Where there is no token the request ends, and what the step after this one makes of it is dropped.
        slot_tokens.index_copy_(0, places[1], tokens.clamp(min=0))
        return _Here(tokens) if self._place.is_host else _OnTheWay(tokens)


def _rule(want: Want) -> Rule:
    sampling = want.sampling
    number = uniform(sampling.seed, want.position)
    return Rule(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, number)
