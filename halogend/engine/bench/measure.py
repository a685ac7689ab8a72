"""What is measured, the same way on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

PREFILL_TOKENS = 512
PROMPT_TOKENS = 16
DECODE_TOKENS = 96
BATCHES = (1, 4, 8, 16)
CONTEXT_TOKENS = 1024  # of one sequence: what either side makes room for
_FIRST_ID = 300  # past the control tokens and bytes of usual vocabularies


@dataclass(frozen=True)
class Timing:
    """Of one request, in seconds on one clock: when it was handed over, its first and last token."""

    handed_s: float
    first_s: float
    last_s: float


Generate = Callable[[Sequence[Sequence[int]], int], list[Timing]]


def measure(generate: Generate) -> dict[str, float]:
    """Tokens a second by name. `generate(prompts, max_tokens)` runs the prompts at once."""
    generate([prompt(0, PROMPT_TOKENS)], 8)
    figures = {"prefill": _prefill(generate)}
    for batch in BATCHES:
        figures[f"decode {batch}"] = _decode(generate, batch)
    return figures


def prompt(number: int, tokens: int) -> list[int]:
    """Ids that differ between prompts from the first one on, so that nothing can be reused."""
    return [_FIRST_ID + (number * 7919 + place * 31) % 2000 for place in range(tokens)]


def _prefill(generate: Generate) -> float:
    [timing] = generate([prompt(1, PREFILL_TOKENS)], 1)
    return PREFILL_TOKENS / (timing.first_s - timing.handed_s)


def _decode(generate: Generate, batch: int) -> float:
    timings = generate([prompt(100 * batch + number, PROMPT_TOKENS) for number in range(batch)], DECODE_TOKENS)
    started = sum(timing.first_s for timing in timings) / batch
    return batch * (DECODE_TOKENS - 1) / (max(timing.last_s for timing in timings) - started)
