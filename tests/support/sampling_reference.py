"""Sampling as a textbook writes it: Python floats, a full sort, one step after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halogend.engine.philox import uniform
from halogend.wire.requests import Sampling


def make_sampling(**changes: float) -> Sampling:
    values: dict[str, float] = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": 0,
    }
    return Sampling(**(values | changes))  # type: ignore[arg-type]  # numbers of either kind


def penalise(row: Sequence[float], sampling: Sampling, prompt: Sequence[int], output: Sequence[int]) -> list[float]:
    logits = list(row)
    for token in {*prompt, *output}:
        if logits[token] > 0:
            logits[token] /= sampling.repetition_penalty
        else:
            logits[token] *= sampling.repetition_penalty
    for token in set(output):
        logits[token] -= sampling.frequency_penalty * output.count(token)
        logits[token] -= sampling.presence_penalty
    return logits


def distribution(logits: Sequence[float], sampling: Sampling) -> list[tuple[int, float]]:
    """(token, probability) of what may be chosen, best first."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if sampling.temperature == 0:
        return [(order[0], 1.0)]
    weights = [math.exp((logits[token] - logits[order[0]]) / sampling.temperature) for token in order]
    if sampling.top_k:
        order, weights = order[: sampling.top_k], weights[: sampling.top_k]
    total = math.fsum(weights)
    if sampling.top_p < 1:
        count, reached = 1, weights[0]
        while count < len(order) and reached < sampling.top_p * total:
            reached += weights[count]
            count += 1
        order, weights = order[:count], weights[:count]
    weights = [weight for weight in weights if weight >= sampling.min_p * weights[0]]
    total = math.fsum(weights)
    return [(token, weight / total) for token, weight in zip(order, weights, strict=False)]


def choose(row: Sequence[float], sampling: Sampling, prompt: Sequence[int], output: Sequence[int]) -> int:
    number = uniform(sampling.seed, len(prompt) + len(output))
    choices = distribution(penalise(row, sampling, prompt, output), sampling)
    reached = 0.0
    for token, probability in choices:
        reached += probability
        if number < reached:
            return token
    return choices[-1][0]
