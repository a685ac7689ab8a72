"""How far the likelihood of a token moves by what is computed beside its request.

Each answer is computed alone, token by token, and then again among the others as the engine's own scheduler mixes them,
prompts beside tokens, on one thread and on more in turn. The tokens are the same; what is compared is how likely each
was, at every position. As a program it prints a line for each model given:

    OMP_WAIT_POLICY=passive PYTHONPATH=tools:tests python -m support.company MODEL.gguf ...    some minutes a model

`moved` is the most that the log-probability of one of the ten likeliest tokens moved, `gap` the most that its distance
to the likeliest did. `others`: the likeliest token was another in company, and by itself lay up to `by` behind.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from support.alone import Alone
from torture.document import Checkpoint, Wish
from torture.prompts import PROMPTS

from halogend.engine.limits import sched_limits
from halogend.sched.blocks import BlockPool
from halogend.sched.request import Request
from halogend.sched.scheduler import Scheduler
from halogend.sched.step import StepResult

TEXTS = Path(__file__).parents[1] / "cases/fidelity"
LIKELIEST = 10
PIECE_TOKENS, PROMPT_TOKENS = 160, 8
PIECES = 2  # of each text
ARRIVALS = (2.0, 0.5, 0.1, 0.5)  # requests a step, a round each


@dataclass(frozen=True)
class Forced:
    """A request whose answer is known."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True)
class Likely:
    """The likeliest tokens at one position of a request alone, and how likely each is, best first."""

    tokens: npt.NDArray[np.int64]
    log_probs: npt.NDArray[np.float64]


@dataclass
class Moved:
    """Nats."""

    compared: int = 0
    most: float = 0.0
    gap: float = 0.0
    others: int = 0
    by: float = 0.0

    def add(self, alone: Likely, row: torch.Tensor) -> None:
        beside = row.double().log_softmax(-1).numpy()[alone.tokens]
        gaps = alone.log_probs[0] - alone.log_probs, beside[0] - beside
        self.compared += 1
        self.most = max(self.most, float(np.abs(beside - alone.log_probs).max()))
        self.gap = max(self.gap, float(np.abs(gaps[0] - gaps[1]).max()))
        first = int(beside.argmax())
        self.others += first != 0
        self.by = max(self.by, float(gaps[0][first]))

    def row(self, name: str, positions: int) -> str:
        return (
            f"{name}: {positions} positions, compared {self.compared} times; "
            f"moved {self.most:.4f}, gap {self.gap:.4f}, others {self.others} by {self.by:.4f}"
        )


def moved(model: Path) -> tuple[int, Moved]:
    """The number of positions, and how far they moved."""
    alone = Alone(Wish(Checkpoint(model.absolute(), "", "auto", "24MiB"), 8000).text())
    requests = [*_answered(alone), *_written(alone)]
    likely = [_likely(alone, request) for request in requests]
    found = Moved()
    for number, arrivals in enumerate(ARRIVALS):
        alone.engine.runner.set_threads(1 + number % alone.spec.threads)  # fewer, as beside another engine
        for request, place, row in _mixed(alone, requests, arrivals, random.Random(number)):
            found.add(likely[request][place], row)
    return sum(map(len, likely)), found


def _answered(alone: Alone) -> Iterator[Forced]:
    """The prompts of the torture, with what is answered."""
    for text, most in PROMPTS:
        prompt, answer = alone.encode(text), []
        while len(answer) < most and (token := int(alone.log_probs(prompt, answer).argmax())) not in alone.end_ids:
            answer.append(token)
        yield Forced(tuple(prompt), tuple(answer))


def _written(alone: Alone) -> Iterator[Forced]:
    """Pieces of English and code, whatever the model would say."""
    for path in sorted(TEXTS.glob("*.txt")):
        tokens = alone.encode(path.read_text())[: PIECES * PIECE_TOKENS]
        for start in range(0, len(tokens), PIECE_TOKENS):
            piece = tokens[start : start + PIECE_TOKENS]
            if len(piece) > PROMPT_TOKENS:
                yield Forced(tuple(piece[:PROMPT_TOKENS]), tuple(piece[PROMPT_TOKENS:]))


def _likely(alone: Alone, request: Forced) -> list[Likely]:
    found = []
    for place in range(len(request.answer)):
        log_probs = alone.log_probs(request.prompt, request.answer[:place])
        tokens = np.argsort(-log_probs, kind="stable")[:LIKELIEST]
        found.append(Likely(tokens, log_probs[tokens]))
    return found


def _mixed(
    alone: Alone, requests: Sequence[Forced], arrivals: float, chance: random.Random
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """(request, position, logits) of all of them together, coming at random, so many a step on average."""
    engine, limits = alone.engine, sched_limits(alone.spec.limits)
    scheduler = Scheduler(limits, BlockPool(engine.reserve_blocks, engine.block_count), engine.layout)
    slots = torch.zeros(limits.max_batch, dtype=torch.int64)
    coming = chance.sample(range(len(requests)), len(requests))
    now = due = 0.0
    while coming or scheduler.has_requests:
        now += 1.0
        while coming and due <= now:
            due += chance.expovariate(arrivals)
            number = coming.pop()
            scheduler.add(Request(number, requests[number].prompt, len(requests[number].answer)), now)
        plan = scheduler.schedule(now)
        if plan is None:
            continue
        logits, sampled = engine.runner.forward(plan, slots), []
        for item, row in zip([each for each in plan.items if each.samples], logits, strict=True):
            place = item.start + item.count - len(requests[item.id].prompt)
            slots[item.slot] = token = requests[item.id].answer[place]
            sampled.append((item.id, token))
            yield item.id, place, row
        scheduler.apply(StepResult(plan.number, tuple(sampled)))


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        positions, found = moved(path)
        print(found.row(path.name, positions), flush=True)
