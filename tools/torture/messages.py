"""What the session says to its load and to its judge, and they to it: JSON."""

from __future__ import annotations

import enum

import msgspec

NEAR_TIE_NATS = 0.5
"""Tokens that lie so near to each other are as likely, for bf16: docs/torture.md says where it comes from."""


class End(enum.StrEnum):
    """How a request ended, for its client."""

    ANSWERED = "answered"
    FAILED = "failed"  # before its first token
    CUT = "cut"  # after it


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """One request. Times in seconds of the epoch; `tokens_at` are the events that carried text. `code` is the
    error's, or what broke; `moved` counts addresses that were left and refused."""

    prompt: int
    sent_at: float
    tokens_at: tuple[float, ...]
    ended_at: float
    end: End
    code: str
    moved: int
    text: str


class Resting(msgspec.Struct, frozen=True, kw_only=True, tag="resting"):
    """The answer to Rest: nothing is on its way any more."""


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """Requests come as they come, `rate` a second on average, whatever becomes of the ones before."""

    rate: float


class Closed(msgspec.Struct, frozen=True, kw_only=True, tag="closed"):
    """So many clients, each with its next request as soon as it has its answer."""

    clients: int


class Rest(msgspec.Struct, frozen=True, kw_only=True, tag="rest"):
    """Nothing new; those on their way end."""


class Ports(msgspec.Struct, frozen=True, kw_only=True, tag="ports"):
    """Where the daemon may be found, the likeliest first."""

    ports: tuple[int, ...]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Answers, each to a prompt by its number, and the document by which a model was served that may have given
    them."""

    document: str
    answers: tuple[tuple[int, str], ...]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says of an answer. Of the tokens that it chose the least likely, by the model alone, lies `gap_nats`
    below the likeliest there: its log-probability is so much less. It stands behind `at_chars` characters. None: no
    token would do."""

    gap_nats: float | None
    at_chars: int

    @property
    def is_right(self) -> bool:
        return self.gap_nats is not None and self.gap_nats <= NEAR_TIE_NATS


Order = Open | Closed | Rest | Ports
Said = Asked | Resting
