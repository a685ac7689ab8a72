"""How receipts end: when all their models have moved on, and which document is active by that.

Owns what is open and what is active. What a model's part came to is told by its own task.
"""

from __future__ import annotations

from halogend.control.acceptance import Accepted, Opened, outcome_of
from halogend.control.barrier import Barrier
from halogend.control.receipts import Outcome, Receipt
from halogend.control.records import Records


class Settlement:
    """`active` is the newest document all of which serves; an accepted one is not that yet. Single writer: the
    reconciler."""

    def __init__(self, records: Records) -> None:
        self.active: Accepted | None = None
        self._records = records
        self._open: dict[str, Opened] = {}

    def open(self, receipt: Receipt, accepted: Accepted, barrier: Barrier | None) -> None:
        """Its targets are about to be set; at the `barrier` an atomic one waits."""
        self._open[receipt.id] = Opened(accepted, self.active, barrier)

    def settle(self, receipt: Receipt) -> None:
        """Called whenever a model's record moved on."""
        records = list(receipt.models.values())
        if any(record.outcome is None for record in records):
            return
        opened = self._open[receipt.id]
        outcome = outcome_of(receipt, records, has_server=opened.has_server)
        is_first = receipt.outcome is None
        if is_first or (receipt.outcome != outcome and any(each.outcome is Outcome.ROLLED_BACK for each in records)):
            receipt.outcome = outcome
            self._records.serves(receipt)
            self._activate(opened, is_good=outcome in (Outcome.APPLIED, Outcome.UNCHANGED))
        if all(record.is_closed for record in records):
            del self._open[receipt.id]
            self._records.closed(receipt)

    def _activate(self, opened: Opened, *, is_good: bool) -> None:
        """An older receipt may end later; one that is rolled back gives way to what was active before it."""
        accepted, active = opened.accepted, self.active
        if not is_good and accepted is active:
            active = opened.before
        elif is_good and (active is None or accepted.number > active.number):
            active = accepted
        if active is not None and active is not self.active:
            self.active = active
            self._records.became_active(active.document, active.revision, active.receipt)
