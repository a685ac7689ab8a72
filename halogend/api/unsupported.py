"""Fields that clients know and this server cannot honour: accepted while they ask for nothing.

One row a field: the values that ask for nothing (null always does), and what the refusal says.
When a field is built it moves to `schemas` and its row goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halogend.control.requests import RequestError

_NOT_YET = "is not available yet"


@dataclass(frozen=True, slots=True)
class Neutral:
    """`values`: what asks for nothing. `kind`: any value of this type asks for nothing."""

    values: tuple[Any, ...] = ()
    kind: type | None = None
    why: str = _NOT_YET

    def admits(self, value: Any) -> bool:
        if value is None or (self.kind is not None and type(value) is self.kind):
            return True
        return any(type(value) is type(each) and value == each for each in self.values)  # true is not 1


NEUTRAL_COMMON: dict[str, Neutral] = {
    "n": Neutral((1,), why="takes only 1; send one request for each answer"),
    "user": Neutral(kind=str, why="takes a string"),
    "safety_identifier": Neutral(kind=str, why="takes a string"),
    "logit_bias": Neutral(({},)),
    "metadata": Neutral(({},), why="is not stored here"),
    "store": Neutral((False,), why="takes only false: nothing is stored here"),
    "service_tier": Neutral(("auto", "default")),
}

NEUTRAL_CHAT: dict[str, Neutral] = {
    "logprobs": Neutral((False,)),
    "top_logprobs": Neutral((0,)),
    "tools": Neutral(([],)),
    "tool_choice": Neutral(("none", "auto")),
    "parallel_tool_calls": Neutral(kind=bool, why="takes a boolean"),
    "functions": Neutral(([],)),
    "function_call": Neutral(("none", "auto")),
    "response_format": Neutral(({"type": "text"},)),
    "modalities": Neutral((["text"],), why="takes only text"),
    "audio": Neutral(why="is not available: this server speaks text"),
    "prediction": Neutral(),
    "reasoning_effort": Neutral(),
    "verbosity": Neutral(("medium",)),
    "web_search_options": Neutral(why="is not available: this server has no web search"),
    "prompt_cache_key": Neutral(),
}

NEUTRAL_COMPLETION: dict[str, Neutral] = {
    "best_of": Neutral((1,), why="takes only 1"),
    "echo": Neutral((False,)),
    "suffix": Neutral(("",)),
    "logprobs": Neutral(),
}

NEUTRAL_MESSAGE: dict[str, Neutral] = {
    "tool_calls": Neutral(([],)),
    "tool_call_id": Neutral(),
    "function_call": Neutral(),
    "refusal": Neutral(),
    "annotations": Neutral(([],)),
    "audio": Neutral(why="is not available: this server speaks text"),
}

NEUTRAL_STREAM: dict[str, Neutral] = {
    "include_obfuscation": Neutral((False,)),
}


def take_out(raw: dict[str, Any], rows: dict[str, Neutral]) -> dict[str, Any]:
    """`raw` without the fields of `rows`, inside its messages and stream options too.

    Raises RequestError for the first that asks for something.
    """
    kept = _without(raw, {**NEUTRAL_COMMON, **rows}, "")
    if isinstance(kept.get("stream_options"), dict):
        kept["stream_options"] = _without(kept["stream_options"], NEUTRAL_STREAM, "stream_options.")
    if isinstance(kept.get("messages"), list):
        kept["messages"] = [
            _without(each, NEUTRAL_MESSAGE, f"messages[{i}].") if isinstance(each, dict) else each
            for i, each in enumerate(kept["messages"])
        ]
    return kept


def _without(raw: dict[str, Any], rows: dict[str, Neutral], prefix: str) -> dict[str, Any]:
    for name, row in rows.items():
        if name in raw and not row.admits(raw[name]):
            raise RequestError("unsupported_field", f"`{prefix}{name}` {row.why}", param=f"{prefix}{name}")
    return {name: value for name, value in raw.items() if name not in rows}
