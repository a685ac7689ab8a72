"""How the next token is chosen where a request does not say."""

from __future__ import annotations

from typing import Any

from halogend.config.fields import LIVE, setting
from halogend.config.kinds import MAX_TOKENS
from halogend.config.section import Section


def _sampling(description: str, **limits: Any) -> Any:
    return setting(description, LIVE, default=None, unset="the model's", **limits)


class SamplingConfig(Section):
    """Defaults for requests that do not say; a field of the request always wins."""

    temperature: float | None = setting(
        "Randomness; 0 takes the likeliest token.", LIVE, default=None, unset="the model's, else 0.6", ge=0, le=2
    )
    top_p: float | None = setting(
        "Share of probability that is kept.", LIVE, default=None, unset="the model's, else 0.85", gt=0, le=1
    )
    top_k: int | None = _sampling("Number of likeliest tokens kept; 0 is off.", ge=0, le=MAX_TOKENS)
    min_p: float | None = _sampling("Least share of the likeliest token's probability; 0 is off.", ge=0, le=1)
    repetition_penalty: float | None = _sampling("Divides the scores of tokens seen; 1 is off.", gt=0, le=10)
    presence_penalty: float | None = _sampling("Taken off the scores of tokens in the answer.", ge=-2, le=2)
    frequency_penalty: float | None = _sampling("The same, for each time they stand there.", ge=-2, le=2)
