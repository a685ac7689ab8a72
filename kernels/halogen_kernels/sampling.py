"""What sampling on a device is told, and its definition in plain torch.

From a row of logits to a token: temperature, the `top_k` likeliest, the smallest set of these that holds `top_p` of
their weight, those at least `min_p` times as likely as the likeliest, then the inverse of the cumulative
distribution at `number`. Tokens are ordered by falling logit, equal ones by rising id. What penalties do to logits
is done before, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

GREEDY_BELOW = 1e-5  # of temperatures: no number tells the difference
NO_TOKEN = -1  # of a row that holds a NaN or an infinity


@dataclass(frozen=True, slots=True)
class Rule:
    """How one row chooses. `top_k` 0, `top_p` 1 and `min_p` 0 leave all tokens; `number` is in [0, 1)."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    number: float


def rules(rows: Iterable[Rule]) -> Tensor:
    """float64 [rows, 5], on the host: one copy takes a whole step's to a device."""
    return torch.tensor(
        [(row.temperature, row.top_k, row.top_p, row.min_p, row.number) for row in rows], dtype=torch.float64
    ).view(-1, 5)


def sample(logits: Tensor, rules: Tensor) -> Tensor:
    """The tokens of float32 `logits` [rows, vocab], int64 [rows]: NO_TOKEN for a row that is not finite."""
    return torch.tensor([_choose(row, *rule.tolist()) for row, rule in zip(logits, rules, strict=True)])


def _choose(row: Tensor, temperature: float, top_k: float, top_p: float, min_p: float, number: float) -> int:
    if not row.isfinite().all():
        return NO_TOKEN
    values, ids = row.double().sort(descending=True, stable=True)
    if temperature < GREEDY_BELOW:
        return int(ids[0])
    weights = ((values - values[0]) / temperature).exp()
    if top_k:
        weights = weights[: int(top_k)]
    sums = weights.cumsum(0)
    kept = len(sums)
    if top_p < 1:
        kept = min(kept, int(torch.searchsorted(sums, top_p * sums[-1])) + 1)
    if min_p > 0:
        kept = min(kept, int((weights >= min_p).sum()))
    index = int(torch.searchsorted(sums[:kept].contiguous(), number * sums[kept - 1], right=True))
    return int(ids[min(index, kept - 1)])
