"""What people ask of the daemon beside an edit: a plan, a way back, a hold, and how it starts.

Sits above the reconciler, which does what is decided here. Owns where a kept document goes and what a
hold lets through.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import structlog

from halogend.control.aside import aside
from halogend.control.history import Hold, Kept
from halogend.control.ledger_view import ledger_view
from halogend.control.plan_report import rooms_of
from halogend.control.planning import Given
from halogend.control.push import Push
from halogend.control.receipts import Milestone, Receipt
from halogend.control.reconciler import Reconciler
from halogend.control.requests import RequestError
from halogend.control.selftest_record import read_record
from halogend.control.source import Content, NothingYetError, SourceError

_log = structlog.get_logger()


class Steering:
    """Single writer of the hold; everything else goes through the reconciler. `state` is where a self-test leaves
    what it found."""

    def __init__(self, reconciler: Reconciler, state: Path | None = None) -> None:
        self._reconciler = reconciler
        self._history = reconciler.history
        self._state = state

    async def start(self, *, resume: bool) -> tuple[Receipt, ...]:
        """The first document: the source's. While changes are held it is the one that was active last,
        and with `resume` that one where the source's is bad. Returns what was tried, when the last of it
        was accepted or refused."""
        tried = []
        if self._history.hold is not None and self._history.active:
            _log.warning("starting_held", hold=self.hold_view())
            tried.append(await self._start_kept())
            if self._reconciler.accepted is not None:
                await self._note_what_is_held_back()
                return tuple(tried)
        if await self._waits_for_one():
            _log.info("no_document_yet", source=self._reconciler.source.file)
        else:
            tried.append(self._reconciler.reload("start", "start", force=True))
            await tried[-1].wait(Milestone.ACCEPTED)
        if self._reconciler.accepted is None and resume and self._history.active:
            _log.error("starting_from_last_active", refused=tried[-1].id if tried else None)
            tried.append(await self._start_kept())
        return tuple(tried)

    # --- plans ----------------------------------------------------------------------------------

    async def plan(self, given: Given | None = None) -> dict[str, Any]:
        """JSON-ready; None: what the source holds."""
        plan = await self._reconciler.plan(given)
        devices = [each["device"] for each in plan["devices"]]
        record = await aside(lambda: read_record(self._state))
        warnings = [] if record is None else record.warnings(devices)
        return {**plan, "hold": self.hold_view(), "warnings": warnings}

    async def plan_rollback(self, receipt_id: str | None) -> dict[str, Any]:
        """What `rollback` would do. Raises RequestError as it does."""
        return await self.plan(self._given(self._kept(receipt_id)))

    async def plan_put(self, push: Push, *, force: bool = False) -> dict[str, Any]:
        """What `put` would do. Raises RequestError as it does."""
        self._check(push, force=force)
        return await self.plan(push.given)

    # --- what is handed in --------------------------------------------------------------------------

    def put(self, push: Push, actor: str, *, force: bool = False) -> Receipt:
        """Applies a document that is handed in; a file that is the source is left alone. Raises RequestError
        revision_mismatch, and stale_origin where a later generation of the same object was seen: with `force` this one
        is the newest from now on."""
        self._check(push, force=force)
        if push.origin is not None:
            self._history.came_from(push.origin)
        return self._reconciler.put(push, actor, force=force)

    def _check(self, push: Push, *, force: bool) -> None:
        accepted = self._reconciler.accepted
        differs = push.mismatch(None if accepted is None else accepted.revision)
        if differs is not None:
            raise RequestError("revision_mismatch", f"{differs}. Read it, and hand yours in again.", param="If-Match")
        origin = push.origin
        newest = None if origin is None else self._history.newest_of(origin.uid)
        if not force and origin is not None and newest is not None and origin.generation < newest.generation:
            text = f"This is {origin}, and generation {newest.generation} was handed in before; ?force=true takes it."
            raise RequestError("stale_origin", text, param="Halogen-Origin")

    # --- the way back -----------------------------------------------------------------------------

    def rollback(self, receipt_id: str | None, actor: str) -> Receipt:
        """Applies a kept document, also while changes are held: the one of this receipt, else the newest
        that was active and is another than the one whose targets are set. The source is left alone.
        Raises RequestError."""
        return self._reconciler.apply(self._given(self._kept(receipt_id)), "rollback", actor)

    def _kept(self, receipt_id: str | None) -> Kept:
        accepted = self._reconciler.accepted
        if receipt_id is None:
            kept = self._history.before(None if accepted is None else accepted.revision)
            if kept is None:
                raise RequestError("nothing_to_roll_back", "No other document was active before this one.")
            return kept
        if (named := self._history.named(receipt_id)) is not None:
            return named
        receipt = self._reconciler.receipts.get(receipt_id)
        if receipt is None:
            raise RequestError("receipt_not_found", f"There is no receipt `{receipt_id}`; old ones are dropped.")
        kept = self._history.of_receipt(receipt)
        if kept is None:
            there = ", ".join(each.receipt for each in self._history.active) or "none"
            message = f"No document of `{receipt_id}` is kept: it was never active, or is too old. Kept are: {there}."
            raise RequestError("document_not_kept", message)
        return kept

    def _given(self, kept: Kept) -> Given:
        data = self._history.text(kept).encode()
        return Given(Content(data, hashlib.sha256(data).hexdigest()), f"kept:{kept.receipt}")

    async def _waits_for_one(self) -> bool:
        """There is no document yet, and that is no fault."""
        try:
            await self._reconciler.source.content()
        except NothingYetError:
            return True
        except SourceError:
            return False
        return False

    async def _start_kept(self) -> Receipt:
        receipt = self._reconciler.apply(self._given(self._history.active[-1]), "start", "start")
        await receipt.wait(Milestone.ACCEPTED)
        return receipt

    # --- the hold ---------------------------------------------------------------------------------

    def hold(self, actor: str) -> dict[str, Any]:
        """From now on no trigger changes anything. A hold that is there stays, whoever put it there."""
        if self._history.hold is None:
            self._history.set_hold(Hold(since=self._reconciler.house.clock(), by=actor))
            _log.warning("changes_held", by=actor)
        return {"hold": self.hold_view()}

    def resume(self, actor: str) -> Receipt | None:
        """Frees the triggers. What was put off happens now, once; None where nothing was."""
        hold = self._history.hold
        if hold is None:
            return None
        self._history.set_hold(None)
        _log.info("changes_free", by=actor, held_by=hold.by)
        return self._reconciler.reload("resume", actor) if hold.put_off else None

    def hold_view(self) -> dict[str, Any] | None:
        hold = self._history.hold
        return None if hold is None else msgspec.structs.asdict(hold)

    async def _note_what_is_held_back(self) -> None:
        """An edit that was made while no daemon ran is put off like any other."""
        await self._reconciler.look_at_source()
        hold, accepted = self._history.hold, self._reconciler.accepted
        differs = accepted is not None and self._reconciler.source_revision != accepted.revision
        if hold is not None and differs:
            self._history.set_hold(msgspec.structs.replace(hold, put_off=True))

    # --- views ------------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """For the status: the hold, whether the active document is not the source's, where state is kept."""
        return {"hold": self.hold_view(), "drift": self._drift(), "state": self._history.view()}

    def ledger(self) -> dict[str, Any]:
        """By device: what it has; by generation: what it is counted with, and what was measured."""
        accepted, devices = self._reconciler.accepted, self._reconciler.machine.devices
        standing_by = self._reconciler.house.ledger.standing_by()
        rooms = {} if accepted is None else rooms_of(accepted.document, devices, standing_by)
        return ledger_view(self._reconciler.house, rooms, [each.id for each in devices])

    def _drift(self) -> dict[str, Any] | None:
        reconciler = self._reconciler
        accepted = reconciler.accepted
        if accepted is None or accepted.is_sources or accepted.revision == reconciler.source_revision:
            return None
        seen = reconciler.source_revision
        return {"receipt": accepted.receipt, "source_revision": None if seen is None else seen[:12]}
