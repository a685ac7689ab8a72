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

import os.path
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

_PRIVATE_RANGES = ((0xE000, 0xF900), (0xF0000, 0xFFFFE), (0x100000, 0x10FFFE))
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
_NOTHING = "(?!)"
_MAX_BRANCHINGS = 32  # of a pattern: each is a group in a group, and the compiler of patterns recurs

# A search lets no other thread run before its next find, and the event loop must: this takes about a millisecond.
_STRETCH_CHARS = 64 << 10


class ControlTokens:
    """The control tokens of one vocabulary, text to id. Immutable after construction.

    Texts come from strangers, so a search costs the same for each character, whatever it is: a trie
    of the tokens as a compiled pattern, about 20 ns.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        self._longest = max(map(len, ids), default=0)
        self._whole = re.compile(_longest_of(ids) if ids else _NOTHING)
        self._begun = re.compile(_beginning_of(ids) if ids else _NOTHING)
        self._prefixes = {text[:cut] for text in ids for cut in range(1, len(text))}
        self._suffixes = {text[cut:] for text in ids for cut in range(1, len(text))}
        self._all = "\n".join(ids)  # to look for a part of any; one across a border only marks what needs none

    def split(self, text: str) -> list[str | int]:
        """`text` cut at its control tokens (the leftmost, and there the longest, first): their ids,
        and the texts between them, none empty."""
        parts: list[str | int] = []
        done = 0
        for match in self._find(self._whole, text):
            if match.start() > done:
                parts.append(text[done : match.start()])
            parts.append(self._ids[match.group()])
            done = match.end()
        if done < len(text):
            parts.append(text[done:])
        return parts

    def spelt_in(self, text: str) -> set[int]:
        """Where characters must be exchanged so that `text` can be part of no control token."""
        if not self._longest:
            return set()
        marks = {match.start() for match in self._find(self._begun, text)}
        bare = text.strip()
        offset = len(text) - len(text.lstrip())
        for length in range(1, min(self._longest, len(bare) + 1)):
            if bare[-length:] in self._prefixes:
                marks.add(offset + len(bare) - length)
            if bare[:length] in self._suffixes:
                marks.add(offset + length - 1)
        if 0 < len(bare) < self._longest and bare in self._all:
            marks.add(offset)
        return marks

    def _find(self, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
        """What `pattern.finditer` finds, a stretch of the text at a time. A token may reach into the
        next stretch."""
        done = 0
        for low in range(0, len(text), _STRETCH_CHARS):
            high = low + _STRETCH_CHARS
            for match in pattern.finditer(text, max(low, done), high + self._longest):
                if match.start() >= high:
                    break
                done = match.end()
                yield match


def _longest_of(texts: Collection[str], branchings: int = 0) -> str:
    """A pattern for the longest of `texts` at a place: a trie, so that no text is tried twice."""
    if branchings == _MAX_BRANCHINGS:
        return f"(?:{'|'.join(map(re.escape, sorted(texts, key=len, reverse=True)))})"
    groups = _by_first(texts)
    arms = []
    for group in groups.values():
        stem = os.path.commonprefix(group)  # noqa: RUF071 - characters are what is wanted
        rests = {text[len(stem) :] for text in group}
        arms.append(re.escape(stem) + (_longest_of(rests, branchings + 1) if rests != {""} else ""))
    return f"(?:{'|'.join(arms)}){'?' if '' in texts else ''}"


def _beginning_of(texts: Collection[str]) -> str:
    """A pattern for the first character of each of `texts`, those that lie in another one too. It
    begins with plain characters, for which a search runs fastest."""
    groups = _by_first(texts)
    rests = {first: _longest_of({text[1:] for text in group}) for first, group in groups.items()}
    return "|".join(f"{re.escape(first)}(?={rest})" for first, rest in rests.items())


def _by_first(texts: Collection[str]) -> dict[str, list[str]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for text in sorted(texts):
        if text:
            groups[text[0]].append(text)
    return groups


class Marking:
    """The exchange for one conversation: private-use characters that none of `texts` holds."""

    def __init__(self, control: ControlTokens, texts: Iterable[str]) -> None:
        self._control = control
        used = {char for text in texts for char in _private_in(text)}
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

    @property
    def is_used(self) -> bool:
        """Whether anything was marked."""
        return bool(self._twins)

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


def _private_in(text: str) -> set[str]:
    if text.isascii():
        return set()
    stretches = range(0, len(text), _STRETCH_CHARS)
    return {char for low in stretches for char in _PRIVATE.findall(text, low, low + _STRETCH_CHARS)}
