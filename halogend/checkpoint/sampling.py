"""The sampling defaults that a checkpoint states: generation_config.json, or `general.sampling.*` of GGUF.

They are defaults: what the document sets is never looked at here, so a value that makes no sense can
be overridden.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.checkpoint.errors import KEY_INVALID, CheckpointError, shown
from halogend.checkpoint.gguf import GgufHeader
from halogend.checkpoint.text_sources import TextSource, read_object, source_of

_GENERATION = "generation_config.json"


@dataclass(frozen=True, slots=True)
class _Range:
    """From `least` (which is itself allowed or not) to `most`. `gguf` is the key's last part there."""

    gguf: str
    least: float
    most: float
    with_least: bool = True
    is_whole: bool = False


_RANGES = {
    "temperature": _Range("temp", 0.0, 2.0),
    "top_p": _Range("top_p", 0.0, 1.0, with_least=False),
    "top_k": _Range("top_k", 0, 1 << 24, is_whole=True),
    "min_p": _Range("min_p", 0.0, 1.0),
    "repetition_penalty": _Range("penalty_repeat", 0.0, 10.0, with_least=False),
}


def directory_sampling(where: TextSource | Path | str, overridden: Collection[str] = ()) -> dict[str, float]:
    """`overridden` are defaults that nobody asks the checkpoint for. `do_sample: false` is temperature 0.
    Raises CheckpointError naming file, key and what to set instead."""
    source = source_of(where)
    if not source.has(_GENERATION):
        return {}
    path, config = source.place / _GENERATION, read_object(source, _GENERATION)
    found = _checked(path, {name: (name, config.get(name)) for name in _RANGES}, overridden)
    greedy = config.get("do_sample")
    if greedy is not None and not isinstance(greedy, bool):
        raise CheckpointError(KEY_INVALID, f"{path}: key 'do_sample' is {shown(greedy)}; true or false is wanted")
    if greedy is False and "temperature" not in overridden:
        found["temperature"] = 0.0
    return found


def gguf_sampling(header: GgufHeader, overridden: Collection[str] = ()) -> dict[str, float]:
    """As `directory_sampling`, of a GGUF file's metadata."""
    keys = {name: f"general.sampling.{each.gguf}" for name, each in _RANGES.items()}
    stated = {name: (key, header.metadata.get(key)) for name, key in keys.items()}
    return _checked(header.path, stated, overridden)


def _checked(path: Path, stated: Mapping[str, tuple[str, Any]], overridden: Collection[str]) -> dict[str, float]:
    return {
        name: _value(path, name, key, value)
        for name, (key, value) in stated.items()
        if value is not None and name not in overridden
    }


def _value(path: Path, name: str, key: str, value: Any) -> float:
    allowed = _RANGES[name]
    if name == "top_k" and value == -1 and not isinstance(value, bool):
        return 0.0  # another word for off
    sound = isinstance(value, int if allowed.is_whole else int | float) and not isinstance(value, bool)
    if not sound or not allowed.least <= value <= allowed.most or (value == allowed.least and not allowed.with_least):
        from_ = "from" if allowed.with_least else "above"
        what = "a whole number" if allowed.is_whole else "a number"
        message = (
            f"{path}: key {key!r} is {shown(value)}; {what} {from_} {allowed.least:g} to {allowed.most:g} is wanted"
        )
        raise CheckpointError(KEY_INVALID, f"{message}; set sampling.{name} in the document to override it")
    return float(value)
