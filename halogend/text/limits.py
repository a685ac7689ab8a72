"""Does a request fit the model's limits? Pure; every refusal names the limit and by how much."""

from __future__ import annotations

from halogend.text.failures import MAX_TOKENS_TOO_LARGE, PROMPT_TOO_LONG, RequestFailedError
from halogend.wire.specs import Limits


def check_least(limits: Limits, least_tokens: int, param: str) -> None:
    """Refuses what is too long by the number of its bytes alone, before any work is spent on it."""
    limit = min(limits.max_prompt_len, limits.max_model_len - 1)
    if least_tokens > limit:
        name = "max_prompt_len" if limit == limits.max_prompt_len else "max_model_len"
        raise RequestFailedError(
            PROMPT_TOO_LONG,
            f"the prompt has at least {least_tokens} tokens, at least {least_tokens - limit} more than {name} allows"
            f" ({getattr(limits, name)})",
            param,
        )


def fit(limits: Limits, prompt_tokens: int, max_tokens: int | None, param: str) -> int:
    """How many tokens may be generated: `max_tokens`, or all that there is room for when it is None.

    Raises RequestFailedError.
    """
    if prompt_tokens > limits.max_prompt_len:
        raise RequestFailedError(
            PROMPT_TOO_LONG,
            f"the prompt has {prompt_tokens} tokens, {prompt_tokens - limits.max_prompt_len} more than max_prompt_len"
            f" allows ({limits.max_prompt_len})",
            param,
        )
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise RequestFailedError(
            PROMPT_TOO_LONG,
            f"the prompt has {prompt_tokens} tokens; with at least one token of answer it is {1 - room} over"
            f" max_model_len ({limits.max_model_len})",
            param,
        )
    if max_tokens is None:
        return min(limits.max_decode_len, room)
    if max_tokens > limits.max_decode_len:
        raise RequestFailedError(
            MAX_TOKENS_TOO_LARGE,
            f"max_tokens is {max_tokens}, {max_tokens - limits.max_decode_len} more than max_decode_len allows"
            f" ({limits.max_decode_len})",
            "max_tokens",
        )
    if max_tokens > room:
        raise RequestFailedError(
            MAX_TOKENS_TOO_LARGE,
            f"the prompt's {prompt_tokens} tokens and max_tokens {max_tokens} are together {max_tokens - room} over"
            f" max_model_len ({limits.max_model_len}); at most {room} can be generated",
            "max_tokens",
        )
    return max_tokens
