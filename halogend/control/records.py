"""What is told of changes, and kept: receipts, their end in log and metrics, the documents that were active."""

from __future__ import annotations

import time

import msgspec
import structlog

from halogend.config.canonical import canonical
from halogend.config.codes import Code
from halogend.config.problems import Problem
from halogend.config.schema import Document
from halogend.control.history import History, Hold, Kept, Origin
from halogend.control.house import House
from halogend.control.receipts import Milestone, Outcome, Receipt, Receipts

_log = structlog.get_logger()


class Records:
    """Single writer: the reconciler. What is told here is kept by the history as well."""

    def __init__(self, house: House, history: History) -> None:
        self.history = history
        self.receipts = Receipts(
            clock=house.clock, earlier=history.earlier, last=history.last_receipt, dropped=history.forget
        )
        self._clock = house.clock
        self._metrics = house.metrics
        self._events = house.events

    def open(self, trigger: str, actor: str, source: str, origin: Origin | None = None) -> Receipt:
        receipt = self.receipts.open(trigger, actor, source)
        receipt.origin = None if origin is None else msgspec.structs.asdict(origin)
        self.history.keep(receipt)
        self._publish(receipt, "opened")
        return receipt

    def accepted(self, receipt: Receipt) -> None:
        """Its targets are set."""
        receipt.reach(Milestone.ACCEPTED, self._clock())
        self._publish(receipt, "accepted")

    def put_off(self, receipt: Receipt, hold: Hold, *, is_kept: bool = True) -> None:
        """Nothing is read: what the source holds by the time changes are free again counts. What no source
        keeps is refused."""
        since = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(hold.since))
        message = f"changes are held since {since} by {hold.by}"
        hint = Code.HELD.remedy if is_kept else "hand it in again after `halogend resume`, or with ?force=true"
        receipt.problems = (Problem(Code.HELD, message, hint),)
        receipt.outcome = Outcome.REJECTED
        self.closed(receipt)
        if is_kept:
            self.history.set_hold(msgspec.structs.replace(hold, put_off=True))
        _log.info("change_put_off", receipt=receipt.id, trigger=receipt.trigger, held_by=hold.by)

    def end(self, receipt: Receipt, outcome: Outcome, problems: tuple[Problem, ...]) -> None:
        """It came to no model."""
        receipt.outcome, receipt.problems = outcome, problems
        self.closed(receipt)
        self._tell(receipt)

    def serves(self, receipt: Receipt) -> None:
        """Its outcome is set: every model serves as it asks, or was given up."""
        receipt.reach(Milestone.SERVING, self._clock())
        self.history.keep(receipt)
        self._publish(receipt, "serving")
        self._tell(receipt)

    def closed(self, receipt: Receipt) -> None:
        """Nothing of it is left to do."""
        receipt.reach(Milestone.CLOSED, self._clock())
        self.history.keep(receipt)
        self._publish(receipt, "closed")

    def became_active(self, document: Document, revision: str, receipt: str) -> None:
        self._metrics.active_revision(revision[:12])
        newest = self.history.active[-1:]
        if not newest or newest[0].revision != revision:
            self.history.became_active(Kept(revision=revision, receipt=receipt, at=self._clock()), canonical(document))

    def _publish(self, receipt: Receipt, phase: str) -> None:
        self._events.publish("receipt", phase=phase, **receipt.brief())

    def _tell(self, receipt: Receipt) -> None:
        successful = receipt.outcome in (Outcome.APPLIED, Outcome.UNCHANGED)
        self._metrics.reload_ended(str(receipt.outcome), receipt.trigger, successful=successful, now=self._clock())
        log = _log.info if successful or receipt.outcome is Outcome.SUPERSEDED else _log.error
        log(
            "reload_ended",
            receipt=receipt.id,
            outcome=receipt.outcome,
            trigger=receipt.trigger,
            revision=(receipt.revision or "")[:12],
            problems=[str(problem) for problem in receipt.problems],
            errors={record.model: record.error for record in receipt.models.values() if record.error},
        )
