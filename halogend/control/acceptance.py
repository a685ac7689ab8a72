"""What accepting a document needs and leaves: where documents come from, the listeners, what was accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from halogend.config.codes import Code
from halogend.config.parse import parse
from halogend.config.parts import is_unfinished
from halogend.config.problems import Problem
from halogend.config.schema import Document, ServerConfig
from halogend.control.access import Access
from halogend.control.aside import aside
from halogend.control.barrier import Barrier
from halogend.control.planning import Given
from halogend.control.receipts import ModelRecord, Outcome, Receipt
from halogend.control.source import READ_LIMIT_S, AnySource, Content, Parse, SourceError

_OF_SERVER = ("server.", "input ")  # fields, and their files whose content is another


class Sockets(Protocol):
    """The listeners, as a change sees them. `prepare` binds what is new, `commit` listens there and
    leaves the old; either may refuse, and then everything is as it was."""

    async def prepare(self, server: ServerConfig, access: Access) -> Problem | None: ...

    async def commit(self) -> Problem | None: ...

    async def discard(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where documents come from. `read` may block and raises SourceError; `seen` is told what was taken, so
    that a watch does not offer it again; `environ` is what `${NAME}` means; `parse` knows the places in
    what was read. `pushed` is told the content of a PUT: is it the source's own from now on? `stays`: the
    daemon stays up whatever it holds."""

    file: str
    environ: Mapping[str, str]
    read: Callable[[], Content]
    parse: Parse = parse
    seen: Callable[[Content], None] = lambda _: None
    pushed: Callable[[Content], bool] = lambda _: False
    stays: bool = False

    @classmethod
    def of(cls, origin: AnySource, environ: Mapping[str, str]) -> Source:
        return cls(origin.name, environ, origin.read, origin.parse, origin.seen, origin.pushed, origin.stays)

    def given(self, content: Content) -> Given:
        """As a document that can be judged."""
        return Given(content, content.file or self.file, self.parse)

    async def content(self) -> Content:
        """What it holds now. Raises SourceError, also where it does not answer."""
        try:
            return await aside(self.read, READ_LIMIT_S)
        except TimeoutError as error:
            raise SourceError(f"{self.file} did not answer within {READ_LIMIT_S:g} s") from error

    async def newest(self, seen: Content | None, is_current: Callable[[], bool]) -> Content:
        """What it holds now: a later edit wins over what a watch saw before. Where that is not `is_current` any more
        when it was read, a watch may offer it again. Raises SourceError."""
        try:
            now = await self.content()
        except SourceError:
            if seen is None:
                raise
            return seen
        if seen is not None and is_unfinished(now.data):
            return seen
        if is_current():
            self.seen(now)
        return now

    def unreadable(self, error: SourceError) -> Problem:
        return Problem(Code.SOURCE_UNREADABLE, str(error), "make it readable", self.file)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The document whose targets are set, by which receipt. `number` counts them: an older one may end
    later. `is_sources`: it is what the source held, not one that was kept or handed in."""

    document: Document
    revision: str
    number: int
    receipt: str = ""
    is_sources: bool = True


@dataclass(frozen=True, slots=True)
class Opened:
    """What a receipt that is not closed is about; `before` was active when it was accepted. At the `barrier` all of an
    atomic change waits, its server section too."""

    accepted: Accepted
    before: Accepted | None
    barrier: Barrier | None = None

    @property
    def has_server(self) -> bool:
        """Is its server section in force?"""
        return self.barrier is None or self.barrier.is_open


def outcome_of(receipt: Receipt, records: list[ModelRecord], *, has_server: bool = True) -> Outcome:
    """Of the whole change, when each model has one. Listeners, keys and certificates that changed and are in force are
    a part of it as a model is."""
    outcomes = {record.outcome for record in records} - {Outcome.UNCHANGED}
    if not outcomes:
        return Outcome.APPLIED if receipt.server_changes else Outcome.UNCHANGED
    if has_server and any(each["field"].startswith(_OF_SERVER) for each in receipt.server_changes):
        outcomes.add(Outcome.APPLIED)
    if len(outcomes) == 1:
        (only,) = outcomes
        return only or Outcome.FAILED
    if not outcomes & {Outcome.FAILED, Outcome.ROLLED_BACK}:
        return Outcome.SUPERSEDED
    return Outcome.PARTIALLY_APPLIED if Outcome.APPLIED in outcomes else Outcome.FAILED
