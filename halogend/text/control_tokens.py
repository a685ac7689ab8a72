"""Where control tokens are written in a text, and how to keep a user's text from writing any.

A chat template writes control tokens around the words of users, and both arrive as one string. To
tell them apart the words are marked before the template sees them: inside every control token
that a user spelt out, the first character is exchanged for a private-use character that occurs
nowhere in the conversation. The rendered text is then cut at the control tokens that are still
whole (those are the template's), and in what lies between the first characters are put back, so
that it is encoded as one run just as it would have been, but as plain text.

The exchange keeps the text's length and is no white space, so `trim`, slicing and tests for
emptiness in templates act as before; contents without control tokens, which is nearly all, are not
touched. What begins or ends with a part of a control token is marked as well, so that text which a
template writes right before or after it cannot complete the token. Replacing the contents by
placeholders would be simpler but wrong: templates trim contents, split them and test them.
A template that transforms letters of a content (`replace`, `lower`) may still spell a token out of
them; no published template does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_PRIVATE_RANGES = ((0xE000, 0xF900), (0xF0000, 0xFFFFE), (0x100000, 0x10FFFE))
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")


class ControlTokens:
    """The control tokens of one vocabulary, text to id. Immutable after construction."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        self._lengths = sorted({len(text) for text in ids}, reverse=True)
        self._longest = max(self._lengths, default=0)
        firsts = "".join(re.escape(char) for char in sorted({text[0] for text in ids}))
        self._starts = re.compile(f"[{firsts}]" if firsts else "(?!)")
        self._prefixes = {text[:cut] for text in ids for cut in range(1, len(text))}
        self._suffixes = {text[cut:] for text in ids for cut in range(1, len(text))}

    def split(self, text: str) -> list[str | int]:
        """`text` cut at its control tokens (the leftmost, and there the longest, first): their ids,
        and the texts between them, none empty."""
        parts: list[str | int] = []
        done = 0
        for start, end in self._spans(text):
            if start > done:
                parts.append(text[done:start])
            parts.append(self._ids[text[start:end]])
            done = end
        if done < len(text):
            parts.append(text[done:])
        return parts

    def spelt_in(self, text: str) -> set[int]:
        """Where characters must be exchanged so that `text` can be part of no control token."""
        if not self._longest:
            return set()
        marks = {start for start, _ in self._overlapping(text)}
        bare = text.strip()
        offset = len(text) - len(text.lstrip())
        for length in range(1, min(self._longest, len(bare) + 1)):
            if bare[-length:] in self._prefixes:
                marks.add(offset + len(bare) - length)
            if bare[:length] in self._suffixes:
                marks.add(offset + length - 1)
        if 0 < len(bare) < self._longest and any(bare in token for token in self._ids):
            marks.add(offset)
        return marks

    def _spans(self, text: str) -> Iterable[tuple[int, int]]:
        done = 0
        for start, end in self._overlapping(text):
            if start >= done:
                yield start, end
                done = end

    def _overlapping(self, text: str) -> Iterable[tuple[int, int]]:
        """Every place where a control token begins, with the end of the longest one there."""
        if not self._longest:
            return
        for match in self._starts.finditer(text):
            start = match.start()
            for length in self._lengths:
                if text[start : start + length] in self._ids:
                    yield start, start + length
                    break


class Marking:
    """The exchange for one conversation: private-use characters that none of `texts` holds."""

    def __init__(self, control: ControlTokens, texts: Iterable[str]) -> None:
        self._control = control
        used = {char for text in texts for char in _PRIVATE.findall(text)}
        self._free = (chr(code) for low, high in _PRIVATE_RANGES for code in range(low, high) if chr(code) not in used)
        self._twins: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """Raises ValueError when a conversation leaves no private-use character free."""
        marks = self._control.spelt_in(text)
        if not marks:
            return text
        pieces, done = [], 0
        for index in sorted(marks):
            pieces += [text[done:index], self._twin(text[index])]
            done = index + 1
        return "".join([*pieces, text[done:]])

    def restore(self, text: str) -> str:
        for char, twin in self._twins.items():
            text = text.replace(twin, char)
        return text

    def _twin(self, char: str) -> str:
        twin = self._twins.get(char)
        if twin is None:
            twin = next(self._free, None)
            if twin is None:
                raise ValueError("the conversation holds every private-use character")
            self._twins[char] = twin
        return twin
