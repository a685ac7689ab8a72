"""From a row of logits to the next token.

The steps, in this order: repetition penalty (over prompt and output; divides positive logits,
multiplies negative ones), frequency and presence penalty (output only), temperature, top-k, top-p
(over what top-k left), min-p (relative to the likeliest), then the inverse of the cumulative
distribution at the request's uniform number for this position. Candidates are ordered by falling
logit, equal ones by rising id. Temperature 0 (and whatever is so near it that no number tells the
difference) takes the first candidate after the penalties.

A row's result depends on its logits, its request and the position: never on other rows, never on
how often the request was preempted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halogend.engine.buckets import Buckets
from halogend.engine.philox import uniform
from halogend.wire.requests import Sampling

Row = npt.NDArray[np.float32]

# Candidates are looked for among logits this many temperatures below the largest, then deeper.
# Sorting these few, which nearly always suffice, is what makes a vocabulary of 262k cheap.
_DEPTHS = (6.0, 12.0)
_FEW = 2048
_GREEDY_BELOW = 1e-5
_LEAST = float(np.finfo(np.float32).min)


class NumericError(Exception):
    """A row holds a NaN or an infinity: this request cannot go on, others are unaffected."""


class SamplingState:
    """How one request chooses, and what it has chosen. Single writer: the sampler."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self.sampling = sampling
        self.position = len(prompt)  # of the token that is chosen next
        self.penalised = (
            sampling.repetition_penalty != 1 or sampling.presence_penalty != 0 or sampling.frequency_penalty != 0
        )
        # How often each token was generated; 0 for one that only the prompt holds.
        self._counts: dict[int, int] = dict.fromkeys(prompt, 0) if self.penalised else {}

    def record(self, token: int) -> None:
        self.position += 1
        if self.penalised:
            self._counts[token] = self._counts.get(token, 0) + 1

    def penalise(self, row: Row) -> Row:
        """A penalised copy of the row."""
        ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        values = row[ids]
        repetition = np.float32(self.sampling.repetition_penalty)
        with np.errstate(over="ignore"):  # an infinity is found afterwards
            values = np.where(values > 0, values / repetition, values * repetition)
            values -= np.float32(self.sampling.frequency_penalty) * counts
            values -= np.float32(self.sampling.presence_penalty) * (counts > 0)
        penalised = row.copy()
        penalised[ids] = values
        return penalised


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The likeliest tokens, best first: `ids`, their `weights` exp((logit - max) / temperature) and
    the running sum of these, both float64. `complete`: no candidate is missing."""

    ids: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    sums: npt.NDArray[np.float64]
    complete: bool


class Sampler:
    """Chooses for any number of requests over one vocabulary. Holds scratch memory: one thread."""

    def __init__(self, vocab: int) -> None:
        self._weights = np.empty(vocab, np.float64)  # of the row at hand

    def choose(self, row: Row, state: SamplingState) -> int:
        """The next token for float32 logits [vocab], which stay as they are. Records it in `state`.
        Raises NumericError."""
        if state.penalised:
            row = state.penalise(row)
        if not np.isfinite(row).all():
            raise NumericError("the logits hold a NaN or an infinity")
        if state.sampling.temperature < _GREEDY_BELOW:
            token = int(row.argmax())
        else:
            token = self._draw(row, state.sampling, uniform(state.sampling.seed, state.position))
        state.record(token)
        return token

    def _draw(self, row: Row, sampling: Sampling, number: float) -> int:
        largest = float(row.max())
        needs_total = not sampling.top_k and (sampling.top_p < 1 or sampling.min_p == 0)
        total = self._weigh(row, largest, sampling.temperature) if needs_total else None
        # The k best are cheap to find whatever lies between them.
        for depth in (*_DEPTHS, math.inf) if sampling.top_k else _DEPTHS:
            candidates = _find(row, largest, sampling, depth)
            if candidates is None:
                break
            index = _index(candidates, sampling, number, total)
            if index is not None:
                return int(candidates.ids[index])
        if total is None:
            total = self._weigh(row, largest, sampling.temperature)
        return self._draw_deep(row, sampling, number, total)

    def _draw_deep(self, row: Row, sampling: Sampling, number: float, total: float) -> int:
        """For a distribution so flat that the candidates are not few. After `_weigh`; not for top-k."""
        buckets = Buckets(row, self._weights)
        if sampling.top_p < 1:
            _, total = buckets.reach(sampling.top_p * total, beyond=False)
        if sampling.min_p > 0:
            total = min(total, float(self._weights[self._weights >= sampling.min_p].sum()))
        token, _ = buckets.reach(number * total, beyond=True)
        return token

    def _weigh(self, row: Row, largest: float, temperature: float) -> float:
        """Fills `_weights` for the whole vocabulary and returns their sum."""
        weights = self._weights
        np.subtract(row, largest, out=weights, dtype=np.float64)
        weights *= 1 / temperature
        np.exp(weights, out=weights)
        return float(weights.sum())


def _find(row: Row, largest: float, sampling: Sampling, depth: float) -> _Candidates | None:
    """The tokens down to `depth` temperatures below the largest logit; None if too many to sort."""
    threshold = max(largest - depth * sampling.temperature, _LEAST)
    ids = np.flatnonzero(row >= threshold)
    complete = len(ids) == len(row)
    if sampling.top_k and len(ids) >= sampling.top_k:
        complete = True
        if len(ids) > 4 * sampling.top_k:  # finding the k-th is cheaper than sorting them all
            last = np.partition(row[ids], -sampling.top_k)[-sampling.top_k]
            ids = ids[row[ids] >= last]
    elif len(ids) > _FEW and not sampling.top_k:
        return None
    ids = ids[np.argsort(-row[ids], kind="stable")]  # ids rise before, so equal logits keep rising ids
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    weights = np.exp((row[ids].astype(np.float64) - largest) / sampling.temperature)
    return _Candidates(ids, weights, weights.cumsum(), complete)


def _index(candidates: _Candidates, sampling: Sampling, number: float, total: float | None) -> int | None:
    """Which candidate `number` falls on; None if that lies deeper than the candidates reach."""
    if sampling.top_k and not candidates.complete:
        return None
    sums = candidates.sums
    kept = _kept(candidates, sampling, total)
    if kept is not None:
        index = int(np.searchsorted(sums[:kept], number * float(sums[kept - 1]), side="right"))
        return min(index, kept - 1)
    if total is None or sampling.top_p < 1 or sampling.min_p > 0:
        return None
    index = int(np.searchsorted(sums, number * total, side="right"))
    return index if index < len(sums) else None


def _kept(candidates: _Candidates, sampling: Sampling, total: float | None) -> int | None:
    """How many of the candidates top-p and min-p leave; None if more than there are."""
    sums, count = candidates.sums, len(candidates.ids)
    kept = count if candidates.complete else None
    if sampling.top_p < 1:
        # The smallest set that holds top_p of the weight: at least one token.
        whole = float(sums[-1]) if total is None else total
        reached = int(np.searchsorted(sums, sampling.top_p * whole)) + 1
        if reached <= count:
            kept = reached
    if sampling.min_p > 0:
        likely = int(np.searchsorted(-candidates.weights, -sampling.min_p, side="right"))
        if likely < count:
            kept = likely if kept is None else min(kept, likely)
    return kept
