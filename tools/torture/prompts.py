"""What is asked: greedy answers of fixed length, so that each is known beforehand for each checkpoint."""

from __future__ import annotations

from typing import Any

MODEL = "chat"
PROMPTS = (
    ("the", 24),
    ("it was the", 48),
    ("and they are", 16),
    ("alpha 1", 64),
    ("for that is", 32),
    ("with his", 96),
    ("beta 2 in", 40),
    ("of the and to", 160),
)
"""Text and the most tokens of its answer."""


def body(number: int) -> dict[str, Any]:
    """Of POST /v1/completions."""
    text, tokens = PROMPTS[number % len(PROMPTS)]
    return {"model": MODEL, "prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True}
