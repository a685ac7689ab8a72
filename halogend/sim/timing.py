"""How long a step takes: a linear model whose constants are measured on a real engine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from halogend.sched.step import StepPlan


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step computes. `decode_rows` requests move by one position and see `decode_context`
    positions in all; `prompt_tokens` positions of prompts see `prompt_context` in all."""

    decode_rows: int = 0
    decode_context: int = 0
    prompt_tokens: int = 0
    prompt_context: int = 0


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a step: `base_s`, and so much for each unit of its work. The form is that of a
    transformer's step: weights read once, products by rows, attention by positions seen. Raises
    ValueError for a negative constant or a step that takes no time."""

    base_s: float
    decode_row_s: float
    decode_context_s: float
    prompt_token_s: float
    prompt_context_s: float

    def __post_init__(self) -> None:
        if self.base_s <= 0 or min(asdict(self).values()) < 0:
            raise ValueError(f"a step cannot take such times: {self}")

    def seconds(self, work: StepWork) -> float:
        return (
            self.base_s
            + self.decode_row_s * work.decode_rows
            + self.decode_context_s * work.decode_context
            + self.prompt_token_s * work.prompt_tokens
            + self.prompt_context_s * work.prompt_context
        )


# SmolLM2-135M-Instruct in bf16, two threads on two cores: `halogend bench engine` and `bench steps`.
SMOLLM2 = StepTimes(
    base_s=0.0305,
    decode_row_s=0.0010,
    decode_context_s=7e-6,
    prompt_token_s=0.00095,
    prompt_context_s=7e-7,
)


def read_times(path: Path) -> StepTimes:
    """From the JSON that `halogend bench steps --json` prints. Raises ValueError for anything else, OSError."""
    held = json.loads(path.read_text())
    times = held.get("times") if isinstance(held, dict) else None
    names = {field.name for field in fields(StepTimes)}
    if not isinstance(times, dict) or set(times) != names or not all(_is_number(value) for value in times.values()):
        raise ValueError(f'{path}: expected {{"times": {{...}}}} with the numbers {", ".join(sorted(names))}')
    return StepTimes(**times)


def work_of(plan: StepPlan) -> StepWork:
    """What the plan's rows see: a position sees itself and all before it."""
    rows = context = tokens = seen = 0
    for item in plan.items:
        count = item.count
        if count == 1:
            rows += 1
            context += item.start + 1
        else:
            tokens += count
            seen += count * item.start + count * (count + 1) // 2
    return StepWork(rows, context, tokens, seen)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
