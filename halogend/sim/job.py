"""A request as a trace has it: what is asked, and what the model will say."""

from __future__ import annotations

from dataclasses import dataclass

from halogend.sched.request import ANYBODY, Caller, Request

FILLER, STOP = 1, 2  # the second ends an answer before its max_tokens
FIRST_ID = 3  # of tokens that tell prompts apart


@dataclass(frozen=True, slots=True)
class Job:
    """`answer` is what will be sampled, token by token; with a larger `max_tokens` (0: as long as the
    answer) its last one is STOP. `kind` is the name under which it is measured."""

    kind: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    max_tokens: int = 0
    caller: Caller = ANYBODY

    def request(self, number: int) -> Request:
        return Request(number, self.prompt, self.max_tokens or len(self.answer), frozenset((STOP,)), self.caller)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of request by its lengths in tokens. `answer_tokens` are generated, of at most `max_tokens`
    (0: exactly as many). A `spread` of 0.5 draws both lengths from half to one and a half of theirs."""

    kind: str
    prompt_tokens: int
    answer_tokens: int
    max_tokens: int = 0
    spread: float = 0.0


def distinct_prompt(number: int, tokens: int) -> tuple[int, ...]:
    """Shares no block with another number's."""
    return (FIRST_ID + number, *filler(tokens - 1))


def answer(tokens: int, max_tokens: int = 0) -> tuple[int, ...]:
    """`tokens` of them, the last STOP where more might have come."""
    return (*filler(tokens - 1), STOP) if max_tokens > tokens else filler(tokens)


def filler(count: int) -> tuple[int, ...]:
    return (FILLER,) * count
