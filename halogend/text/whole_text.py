"""An encoder for texts with their control tokens in them, by an engine of the `tokenizers` package that
finds those itself: what it makes of a text may depend on where in the whole it stands (a space before
the first word only) and on flags of the tokens (white space beside them is theirs).

User text never parses control tokens: it goes to a second engine that knows them as plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from halogend.text.assembly import assembled
from halogend.text.lexicon import Part


class WholeEncoder:
    """Implements `lexicon.Encoder`. `control` maps the text of each control token to its id."""

    def __init__(self, engine: tokenizers.Tokenizer, plain: tokenizers.Tokenizer, control: Mapping[str, int]) -> None:
        self._engine = engine
        self._plain = plain
        self._inner = _inner(plain)
        self._control = frozenset(control.values())
        added = engine.get_added_tokens_decoder()
        self._strips_left = frozenset(index for index, token in added.items() if token.special and token.lstrip)
        self._strips_right = frozenset(index for index, token in added.items() if token.special and token.rstrip)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        return _ids(self._engine if parse_special else self._plain, text)

    def encode_parts(self, parts: Sequence[Part], whole: str | None) -> list[int]:
        """A `whole` in which the engine finds a control token that the parts do not have (one that a
        normalisation makes of other text) is encoded part by part."""
        if whole is not None:
            ids = _ids(self._engine, whole)
            meant = iter(part for part in parts if isinstance(part, int))
            if all(token in meant for token in ids if token in self._control):
                return ids
        ids = []
        for index, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(part)
                continue
            text = part
            if index and parts[index - 1] in self._strips_right:
                text = text.lstrip()
            if index + 1 < len(parts) and parts[index + 1] in self._strips_left:
                text = text.rstrip()
            ids.extend(_ids(self._inner if index else self._plain, text))
        return ids


def plain_engine(
    engine: tokenizers.Tokenizer, content: Mapping[str, Any], control: Mapping[str, int]
) -> tokenizers.Tokenizer:
    """An engine that takes control tokens for plain text. `content` is the tokenizer.json of `engine`.

    It shares the other one's model, unless that could make a control token of plain text.
    """
    added = sorted(engine.get_added_tokens_decoder().items())
    plain = _beside(engine, [token for _, token in added])
    if not _merges_any(content, control) and not any(
        control[text] in _ids(plain, form) for text in control for form in (text, " " + text)
    ):
        return plain
    hidden = [_renamed(token) if token.special else token for _, token in added]
    return _beside(assembled(_hidden(content, control)), hidden)


def _beside(engine: tokenizers.Tokenizer, added: list[tokenizers.AddedToken]) -> tokenizers.Tokenizer:
    plain = tokenizers.Tokenizer(engine.model)
    if engine.normalizer is not None:
        plain.normalizer = engine.normalizer
    if engine.pre_tokenizer is not None:
        plain.pre_tokenizer = engine.pre_tokenizer
    plain.add_tokens(added)
    plain.encode_special_tokens = True
    return plain


def _inner(plain: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """`plain` for texts that do not come first: without the space that only the first word gets."""
    cut = plain.pre_tokenizer
    if not isinstance(cut, pre_tokenizers.Metaspace) or cut.prepend_scheme != "first":
        return plain
    inner = _beside(plain, [token for _, token in sorted(plain.get_added_tokens_decoder().items())])
    inner.pre_tokenizer = pre_tokenizers.Metaspace(cut.replacement, prepend_scheme="never", split=cut.split)
    return inner


def _merges_any(content: Mapping[str, Any], control: Mapping[str, int]) -> bool:
    return any(
        (merge.replace(" ", "", 1) if isinstance(merge, str) else "".join(merge)) in control
        for merge in content["model"].get("merges", ())
    )


def _halves(merge: str | list[str]) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge


def _hidden(content: Mapping[str, Any], control: Mapping[str, int]) -> dict[str, Any]:
    """The file with its control tokens under names that hold a space: no text that reaches the model
    does."""
    model = content["model"]
    vocab = {_hide(text) if text in control else text: index for text, index in model["vocab"].items()}
    merges = [merge for merge in model["merges"] if not {"".join(_halves(merge)), *_halves(merge)} & control.keys()]
    unknown = model.get("unk_token")
    changed = {"vocab": vocab, "merges": merges, "unk_token": _hide(unknown) if unknown in control else unknown}
    return {**content, "model": {**model, **changed}, "added_tokens": [], "post_processor": None}


def _hide(text: str) -> str:
    return " " + text


def _renamed(token: tokenizers.AddedToken) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(_hide(token.content), special=True, normalized=False)


def _ids(engine: tokenizers.Tokenizer, text: str) -> list[int]:
    if not text:
        return []
    # The batch call, unlike the single one, lets other threads run meanwhile.
    ids: list[int] = engine.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return ids
