"""What outlives a run: receipts, the documents that were active, and whether changes are held.

Everything is held in memory as well, so that a daemon without a state folder, or with a full disk,
does the same until it ends. Owns the format of the kept files; a file that is not of it is set aside.

    state.json            which documents were active, newest last; the hold; the newest of each origin
    documents/REVISION    their canonical text; its sha256 is its name
    receipts/rN           one receipt each
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from halogend.config.canonical import short_revision
from halogend.control.receipt_views import from_view
from halogend.control.receipts import Receipt, number_of
from halogend.control.state_dir import StateDir
from halogend.control.state_writer import StateWriter

_FORMAT = 1
_KEPT_DOCUMENTS = 20
_KEPT_ORIGINS = 64
_STATE, _DOCUMENTS, _RECEIPTS = "state.json", "documents", "receipts"
T = TypeVar("T")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was active: since when (epoch seconds), and by which receipt."""

    revision: str
    receipt: str
    at: float

    def __str__(self) -> str:
        return f"the document of {self.receipt} (revision {short_revision(self.revision)})"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Changes are held. `put_off`: something was asked for meanwhile."""

    since: float
    by: str
    put_off: bool = False


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The object a document comes from, and which of its generations this is: a later one has a higher
    number."""

    uid: str
    generation: int

    def __str__(self) -> str:
        return f"generation {self.generation} of {self.uid}"


class _State(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    active: tuple[Kept, ...] = ()
    hold: Hold | None = None
    origins: tuple[Origin, ...] = ()


class History:
    """Single writer: the reconciler. `earlier` are the receipts of earlier runs, oldest first; a
    document of `active` may have been active several times, and stands there for its last."""

    def __init__(self, folder: StateDir | None = None) -> None:
        self._writer = None if folder is None else StateWriter(folder)
        self._documents: dict[str, str] = {}
        self.active: tuple[Kept, ...] = ()
        self.hold: Hold | None = None
        self.origins: tuple[Origin, ...] = ()
        self.earlier: tuple[Receipt, ...] = ()
        if folder is not None:
            self._read(folder)

    def view(self) -> dict[str, Any] | None:
        """Where it is kept, and why it could not be; None where it is in memory only."""
        if self._writer is None:
            return None
        return {"directory": str(self._writer.folder.path), "trouble": self._writer.trouble}

    @property
    def last_receipt(self) -> int:
        """The highest number that a receipt of an earlier run is known to have had."""
        return max(
            [number_of(each.receipt) for each in self.active] + [number_of(each.id) for each in self.earlier] + [0]
        )

    def text(self, kept: Kept) -> str:
        return self._documents[kept.revision]

    def before(self, revision: str | None) -> Kept | None:
        """The newest document that was active and is another than this one."""
        return next((each for each in reversed(self.active) if each.revision != revision), None)

    def named(self, receipt_id: str) -> Kept | None:
        """The document that is shown under this receipt, which itself may have been dropped."""
        return next((each for each in self.active if each.receipt == receipt_id), None)

    def of_receipt(self, receipt: Receipt) -> Kept | None:
        """The document that the receipt was about, if it was ever active and is still kept."""
        return next((each for each in reversed(self.active) if each.revision == receipt.revision), None)

    def became_active(self, kept: Kept, text: str) -> None:
        known = kept.revision in self._documents
        others = tuple(each for each in self.active if each.revision != kept.revision)
        dropped, others = others[: 1 - _KEPT_DOCUMENTS], others[1 - _KEPT_DOCUMENTS :]
        self.active = (*others, kept)
        self._documents[kept.revision] = text
        if not known:
            self._put(f"{_DOCUMENTS}/{kept.revision}", text.encode())
        self._put_state()
        for each in dropped:
            del self._documents[each.revision]
            self._drop(f"{_DOCUMENTS}/{each.revision}")

    def set_hold(self, hold: Hold | None) -> None:
        self.hold = hold
        self._put_state()

    def newest_of(self, uid: str) -> Origin | None:
        """The highest generation that came from this object."""
        return next((each for each in self.origins if each.uid == uid), None)

    def came_from(self, origin: Origin) -> None:
        """The objects that were silent longest are forgotten first."""
        if self.origins[-1:] == (origin,):
            return
        others = tuple(each for each in self.origins if each.uid != origin.uid)
        self.origins = (*others[1 - _KEPT_ORIGINS :], origin)
        self._put_state()

    def keep(self, receipt: Receipt) -> None:
        """As it stands now; to be called whenever it moved on."""
        self._put(f"{_RECEIPTS}/{receipt.id}", msgspec.json.encode({"format": _FORMAT, "receipt": receipt.view()}))

    def forget(self, receipt_id: str) -> None:
        self._drop(f"{_RECEIPTS}/{receipt_id}")

    async def stop(self) -> None:
        if self._writer is not None:
            await self._writer.stop()

    # --- files ------------------------------------------------------------------------------------

    def _put_state(self) -> None:
        state = _State(format=_FORMAT, active=self.active, hold=self.hold, origins=self.origins)
        self._put(_STATE, msgspec.json.encode(state))

    def _put(self, name: str, data: bytes) -> None:
        if self._writer is not None:
            self._writer.write(name, data)

    def _drop(self, name: str) -> None:
        if self._writer is not None:
            self._writer.remove(name)

    def _read(self, folder: StateDir) -> None:
        state = _read_one(folder, _STATE, _state)
        if state is not None:
            self.hold, self.origins = state.hold, state.origins
            texts = {each: _read_one(folder, f"{_DOCUMENTS}/{each.revision}", _text_of(each)) for each in state.active}
            self.active = tuple(each for each, text in texts.items() if text is not None)
            self._documents = {each.revision: text for each, text in texts.items() if text is not None}
            for name in folder.names(_DOCUMENTS):
                if name.partition("/")[2] not in self._documents:
                    self._drop(name)
        receipts = [_read_one(folder, name, _receipt_named(name)) for name in folder.names(_RECEIPTS)]
        self.earlier = tuple(sorted((each for each in receipts if each is not None), key=lambda r: number_of(r.id)))


def _read_one(folder: StateDir, name: str, understand: Callable[[bytes], T]) -> T | None:
    """None where there is no such file, or it is not what it should be; then it is set aside."""
    data = folder.read(name)
    if data is None:
        return None
    try:
        return understand(data)
    except ValueError as error:
        folder.set_aside(name, str(error))
        return None


def _state(data: bytes) -> _State:
    state = msgspec.json.decode(data, type=_State)
    if state.format != _FORMAT:
        raise ValueError(f"its format is {state.format}, not {_FORMAT}")
    return state


def _text_of(kept: Kept) -> Callable[[bytes], str]:
    def understand(data: bytes) -> str:
        if hashlib.sha256(data).hexdigest() != kept.revision:
            raise ValueError("it is not the document that was kept under this name")
        return data.decode()

    return understand


def _receipt_named(name: str) -> Callable[[bytes], Receipt]:
    def understand(data: bytes) -> Receipt:
        kept = msgspec.json.decode(data)
        if not isinstance(kept, dict) or kept.get("format") != _FORMAT:
            raise ValueError("it is no receipt of this format")
        receipt = from_view(kept.get("receipt"))
        if receipt.id != name.partition("/")[2]:
            raise ValueError(f"it is the receipt {receipt.id}")
        return receipt

    return understand
