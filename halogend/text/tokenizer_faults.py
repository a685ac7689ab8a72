"""Which key of a tokenizer.json is at fault, where the `tokenizers` package refuses it and only names a
column of the text that it was given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from halogend.checkpoint.errors import TOKENIZER_INVALID, CheckpointError, shown
from halogend.checkpoint.tokenizer_files import invalid

_SWITCHES = ("fuse_unk", "byte_fallback", "ignore_merges")
_TEXTS = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_FLAGS = ("special", "normalized", "single_word", "lstrip", "rstrip")
_PIPELINE = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def explained(path: Path, content: Mapping[str, Any], error: Exception) -> CheckpointError:
    """The refusal of the file at `path`, whose `content` has a vocabulary, for the package's `error`."""
    return (
        _of_pipeline(path, content)
        or _of_settings(path, content)
        or _of_merges(path, content)
        or CheckpointError(TOKENIZER_INVALID, f"{path}: its tokenizer is broken: {error!s:.200}")
    )


def steps(part: object) -> Iterator[Mapping[str, Any]]:
    """A step of the file's pipeline, or the steps of a sequence."""
    if isinstance(part, dict):
        inner = next((part[key] for key in ("normalizers", "pretokenizers", "decoders") if key in part), None)
        if isinstance(inner, list):
            for step in inner:
                yield from steps(step)
        else:
            yield part


def _of_pipeline(path: Path, content: Mapping[str, Any]) -> CheckpointError | None:
    for key in _PIPELINE:
        part = content.get(key)
        if part is None or _is_usable(key, part):
            continue
        step = next((step for step in steps(part) if not _is_usable(key, step)), part)
        return invalid(path, key, f"has a step that cannot be used: {shown(step)}")
    return None


def _is_usable(key: str, part: object) -> bool:
    """Whether the package takes it in a file that has nothing else."""
    alone = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, key: part}
    try:
        tokenizers.Tokenizer.from_str(json.dumps(alone))
    except Exception:  # noqa: BLE001 - the package raises bare Exception
        return False
    return True


def _of_settings(path: Path, content: Mapping[str, Any]) -> CheckpointError | None:
    model = content["model"]
    values: dict[str, tuple[Any, type, str]] = {}
    values |= {f"model.{key}": (model[key], bool, "true or false") for key in _SWITCHES if model.get(key) is not None}
    values |= {f"model.{key}": (model[key], str, "a string") for key in _TEXTS if model.get(key) is not None}
    for position, token in enumerate(content.get("added_tokens") or []):
        given = {key: token[key] for key in _FLAGS if key in token}
        values |= {f"added_tokens[{position}].{key}": (flag, bool, "true or false") for key, flag in given.items()}
    wrong = next((key for key, (value, kind, _) in values.items() if not isinstance(value, kind)), None)
    if wrong is None:
        return None
    value, _, wanted = values[wrong]
    return invalid(path, wrong, f"is {shown(value)}; {wanted} is wanted")


def _of_merges(path: Path, content: Mapping[str, Any]) -> CheckpointError | None:
    vocab, merges = content["model"]["vocab"], content["model"].get("merges")
    if not isinstance(merges, list):
        return invalid(path, "model.merges", "is missing or no list")
    for index, merge in enumerate(merges):
        halves = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(halves, list) or len(halves) != 2 or not all(isinstance(half, str) for half in halves):
            return invalid(path, f"model.merges[{index}]", f"is {shown(merge)}; two pieces are wanted")
        unknown = next((text for text in (*halves, "".join(halves)) if text not in vocab), None)
        if unknown is not None:
            return invalid(path, f"model.merges[{index}]", f"names {shown(unknown)}, which is not in model.vocab")
    return None
