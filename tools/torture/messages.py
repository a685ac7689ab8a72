"""What the session and its load say to each other: lines of JSON."""

from __future__ import annotations

import enum

import msgspec


class End(enum.StrEnum):
    """How a request ended, for its client."""

    ANSWERED = "answered"
    FAILED = "failed"  # before its first token
    CUT = "cut"  # after it


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """One request. Times in seconds of the epoch; `tokens_at` are the events that carried text. `code` is the
    error's, or what broke; `moved` counts addresses that were left and refused; `digest` is of the text, `opening`
    its first characters."""

    prompt: int
    sent_at: float
    tokens_at: tuple[float, ...]
    ended_at: float
    end: End
    code: str
    moved: int
    digest: str
    opening: str


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


Order = Open | Closed | Rest | Ports
Said = Asked | Resting
