"""An engine of the `tokenizers` package from the content of a tokenizer.json.

The package reads such a file itself, but then holds it several times over: 580 MB and 1.4 s of CPU for
262k tokens. Here it is given the vocabulary and merges as objects, which takes 360 MB and 0.9 s, and
reads the small rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers
from tokenizers import models

from halogend.text.vocabulary import as_in

_SETTINGS = (
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def assembled(content: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Neither truncates nor pads, and has no dropout, whatever the file says: those are for training.

    `content` has a model of the kind BPE, and added tokens with content. The package raises bare
    Exception for what it cannot use; KeyError, TypeError and ValueError are raised for the rest.
    """
    model = content["model"]
    small = {"type": "BPE", "vocab": {}, "merges": []}
    rest = {**content, "model": small, "added_tokens": [], "truncation": None, "padding": None}
    engine = tokenizers.Tokenizer.from_str(json.dumps(rest))
    engine.model = models.BPE(
        vocab=model["vocab"],
        merges=_merges(model["merges"], model["vocab"]),
        **{name: model[name] for name in _SETTINGS if model.get(name) is not None},
    )
    engine.add_tokens([_added(token) for token in content.get("added_tokens") or []])
    return engine


def _merges(listed: object, vocab: Iterable[str]) -> list[tuple[str, str]]:
    if not isinstance(listed, list):
        raise TypeError("model.merges is no list")
    own = as_in(vocab)
    return [(own(left), own(right)) for left, right in map(_halves, listed)]


def _halves(merge: object) -> tuple[str, str]:
    halves = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(halves, list):
        raise TypeError("a merge is no list")
    left, right = halves
    return left, right


def _added(token: Mapping[str, Any]) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(token["content"], **{name: token[name] for name in _FLAGS if name in token})
