"""Where the document comes from, as the rest of the daemon sees it: a name, and bytes when they are asked for.

Owns what a source is, and the sources that nobody watches: a document that is stated once, and one that is
pushed. Must never know what the bytes mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from halogend.config.parse import parse
from halogend.config.places import ParseResult

MAX_DOCUMENT_BYTES = 4 << 20
READ_LIMIT_S = 30.0
"""For a source to give its bytes: a file takes microseconds, a mount whose server is gone for ever."""


@dataclass(frozen=True, slots=True)
class Content:
    """What the source held when it was read once. `file` is what problems call it, where that is not the
    source's own name."""

    data: bytes
    digest: str
    file: str = ""

    @classmethod
    def of(cls, data: bytes, file: str = "") -> Content:
        return cls(data, hashlib.sha256(data).hexdigest(), file)


Parse = Callable[[bytes, str, Mapping[str, str]], ParseResult]


class SourceError(Exception):
    """The source cannot be read; says which path and why."""


class NothingYetError(SourceError):
    """There is no document yet, and that is no fault."""


class AnySource(Protocol):
    """`read` may block, is safe in any thread and changes nothing; `seen` is told which content was taken
    for a change, so that a watch does not offer it again. `pushed` is the content of a PUT. `view` says
    how it is watched; `stays`: the daemon stays up whatever its document is."""

    @property
    def name(self) -> str: ...

    @property
    def parse(self) -> Parse: ...

    @property
    def stays(self) -> bool: ...

    def read(self) -> Content:
        """Raises SourceError."""

    def seen(self, content: Content) -> None: ...

    def pushed(self, content: Content) -> bool:
        """Is it the source's document from now on?"""

    def view(self) -> dict[str, Any]: ...

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class StatedSource:
    """A document that is stated once and stays until the process ends: there is nothing to watch.

    `name` stands for it in status and problems; `parse` reads it, and names where a fault of it is.
    """

    stays = False

    def __init__(self, name: str, data: bytes, parse: Parse) -> None:
        self.name = name
        self.parse = parse
        self._content = Content.of(data)

    def read(self) -> Content:
        return self._content

    def seen(self, content: Content) -> None:
        """It is always the same."""

    def pushed(self, content: Content) -> bool:
        return False

    def view(self) -> dict[str, Any]:
        return {"kind": "stated", "watch": "none", "reason": None}

    def start(self) -> None:
        """Nothing begins: it cannot change."""

    async def stop(self) -> None:
        """Nothing was begun."""


class PushedSource:
    """The document that was pushed last; before the first push what `first` reads, once when it is asked.

    `first` raises SourceError; that there is nothing is no fault. Single writer: the reconciler's loop.
    """

    stays = True
    parse: Parse = staticmethod(parse)

    def __init__(self, name: str, first: Callable[[], Content | None]) -> None:
        self.name = name
        self._first = first
        self._last: Content | None = None

    def read(self) -> Content:
        if self._last is not None:
            return self._last
        found = self._first()
        if found is None:
            raise NothingYetError(f"no document was pushed yet, and there is none at {self.name}")
        return found

    def seen(self, content: Content) -> None:
        """Nothing is watched."""

    def pushed(self, content: Content) -> bool:
        self._last = content
        return True

    def view(self) -> dict[str, Any]:
        return {
            "kind": "push",
            "watch": "none",
            "reason": None,
            "pushed": None if self._last is None else self._last.file,
        }

    def start(self) -> None:
        """Nothing begins: documents come by themselves."""

    async def stop(self) -> None:
        """Nothing was begun."""
