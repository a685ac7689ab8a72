"""Token ids to text, one token at a time, for one request.

The work for a token depends on its own bytes alone, never on how much came before. Text is held
back while it is an incomplete character or might begin a stop string, and shown as soon as it
cannot be either.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence


class TextStream:
    """The concatenation of what `push` and `finish` return is the UTF-8 decoding of the tokens'
    bytes (invalid sequences as U+FFFD), up to the first stop string and without it. Of stop strings
    that are complete at the same character the longest counts.

    Single writer: the request it belongs to.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matchers = [_Matcher(stop) for stop in stops]
        self._held = ""  # begins a stop string, perhaps
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """A stop string was found: nothing more will be shown."""
        return self._stopped

    def push(self, token: int) -> str:
        """The text that may be shown now; empty once stopped."""
        return self._scan(self._decoder.decode(self._piece(token)))

    def finish(self) -> str:
        """What was held back, when no token follows. Incomplete bytes become U+FFFD."""
        text = self._scan(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text if self._stopped else text + held

    def _scan(self, text: str) -> str:
        if self._stopped:
            return ""
        if not self._matchers:
            return text
        known = self._held + text
        for index in range(len(self._held), len(known)):
            matched = 0
            for matcher in self._matchers:
                if matcher.feed(known[index]):
                    matched = max(matched, matcher.length)
            if matched:
                self._stopped, self._held = True, ""
                return known[: index + 1 - matched]
        shown = len(known) - max(matcher.state for matcher in self._matchers)
        self._held = known[shown:]
        return known[:shown]


class _Matcher:
    """Knuth, Morris and Pratt's automaton: `state` is the length of the longest prefix of the stop
    string that the text so far ends with."""

    def __init__(self, stop: str) -> None:
        self.length = len(stop)
        self.state = 0
        self._stop = stop
        self._fallback = [0] * len(stop)
        length = 0
        for index in range(1, len(stop)):
            while length and stop[index] != stop[length]:
                length = self._fallback[length - 1]
            length += stop[index] == stop[length]
            self._fallback[index] = length

    def feed(self, char: str) -> bool:
        """Whether the stop string is complete with this character."""
        while self.state and self._stop[self.state] != char:
            self.state = self._fallback[self.state - 1]
        self.state += self._stop[self.state] == char
        return self.state == self.length
