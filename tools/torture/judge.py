"""May a model have given this answer? It may, if each token was as likely as the likeliest, or nearly so.

    python -m torture.judge      a Case on standard input, a list of what was Judged on standard output

A text does not say of which tokens it was made, so all are followed that lead to it and are likely enough: nearly
always there is one.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from torture.messages import NEAR_TIE_NATS, Case, Judged
from torture.prompts import PROMPTS


class Model(Protocol):
    """One that answers greedily. Tokens are ids below its vocabulary."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Those that end an answer, and show nothing."""
        ...

    def encode(self, prompt: str) -> list[int]: ...

    def piece(self, token: int) -> bytes:
        """What it shows."""
        ...

    def log_probs(self, prompt: Sequence[int], answer: Sequence[int]) -> npt.NDArray[np.float64]:
        """[vocabulary], natural: of the token that comes next."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, the most tokens of its answer, and the text that came."""

    prompt: str
    most_tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class _Way:
    """Tokens that lead to the text, or to a beginning of it. `gap_nats` and `at_chars` are of the least likely one."""

    tokens: tuple[int, ...] = ()
    shown: bytes = b""
    gap_nats: float = 0.0
    at_chars: int = 0

    def shows(self, text: str) -> bool:
        """All of it, with what was held back as an incomplete character."""
        return self.shown.decode("utf-8", "replace") == text

    def by(self, token: int, piece: bytes, below: float) -> _Way:
        is_less = below > self.gap_nats
        at_chars = len(_complete(self.shown)) if is_less else self.at_chars
        return _Way((*self.tokens, token), self.shown + piece, max(self.gap_nats, below), at_chars)


def judge(model: Model, asked: Asked, near_tie_nats: float = NEAR_TIE_NATS) -> Judged:
    """By the likeliest way there is; where there is none, how far the farthest one comes."""
    prompt, left, farthest = model.encode(asked.prompt), [_Way()], Judged(gap_nats=None, at_chars=-1)
    while left:
        way = left.pop()
        if len(way.tokens) == asked.most_tokens:
            if way.shows(asked.text):
                return Judged(gap_nats=way.gap_nats, at_chars=way.at_chars)
            continue
        log_probs = model.log_probs(prompt, way.tokens)
        below = log_probs.max() - log_probs
        near = list(_that_lead_on(model, asked, way, below, near_tie_nats))
        if near and near[0] in model.end_ids:
            ended = way.by(near[0], b"", float(below[near[0]]))
            return Judged(gap_nats=ended.gap_nats, at_chars=ended.at_chars)
        left += [way.by(token, model.piece(token), float(below[token])) for token in reversed(near)]
        if not near and len(_complete(way.shown)) > farthest.at_chars:
            farthest = _refused(model, asked, way, below)
    return farthest


def _that_lead_on(model: Model, asked: Asked, way: _Way, below: npt.NDArray[np.float64], most: float) -> Iterator[int]:
    """Tokens not farther below the likeliest that show what comes next in the text, or end it; the likeliest first."""
    near = np.flatnonzero(below <= most)
    ordered = near[np.argsort(below[near], kind="stable")].tolist()
    return (token for token in ordered if _leads_on(model, asked, way, token))


def _leads_on(model: Model, asked: Asked, way: _Way, token: int) -> bool:
    if token in model.end_ids:
        return way.shows(asked.text)
    return asked.text.startswith(_complete(way.shown + model.piece(token)))


def _refused(model: Model, asked: Asked, way: _Way, below: npt.NDArray[np.float64]) -> Judged:
    """No token that leads on is near the likeliest: how far the nearest one lies."""
    nearest = next(_that_lead_on(model, asked, way, below, float("inf")), None)
    gap = None if nearest is None else max(way.gap_nats, float(below[nearest]))
    return Judged(gap_nats=gap, at_chars=len(_complete(way.shown)))


def _complete(shown: bytes) -> str:
    """As a client has it: without the beginning of a character."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(shown)


def main() -> None:
    from support.alone import Alone  # noqa: PLC0415  the tests' own; other modules need no torch

    case = msgspec.json.decode(sys.stdin.buffer.read(), type=Case)
    model = Alone(case.document)
    found = [judge(model, Asked(*PROMPTS[prompt], text)) for prompt, text in case.answers]
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
