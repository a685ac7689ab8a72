"""A document that is handed in: what it must meet, and whose it is. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from halogend.control.history import Origin
from halogend.control.planning import Given
from halogend.control.source import Content

LEAST_DIGITS = 12  # as revisions are shown


@dataclass(frozen=True, slots=True)
class Push:
    """`content` has the name that problems call it by. `expects`: revisions, or `*` for any, of which the
    document whose targets are set must have one; empty: whatever it is."""

    content: Content
    expects: tuple[str, ...] = field(default=())
    origin: Origin | None = None

    @property
    def file(self) -> str:
        return self.content.file

    @property
    def given(self) -> Given:
        return Given(self.content, self.file)

    def mismatch(self, revision: str | None) -> str | None:
        """What is wrong with this revision as the one to be replaced; None: nothing."""
        if not self.expects:
            return None
        named = ", ".join(each[:LEAST_DIGITS] for each in self.expects)
        if revision is None:
            return f"If-Match names {named}, but there is no document yet"
        if any(each == "*" or (len(each) >= LEAST_DIGITS and revision.startswith(each)) for each in self.expects):
            return None
        return f"If-Match names {named}, but the document that is asked for now is {revision[:LEAST_DIGITS]}"
