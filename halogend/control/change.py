"""One model's part of a receipt: the state it is to have, and what became of that.

Owns the records that are told. What has to be done for it, and when, is the model's own task's business.
"""

from __future__ import annotations

from collections.abc import Callable

from halogend.control.barrier import Barrier
from halogend.control.receipts import ModelRecord, Outcome
from halogend.control.retired import Retired
from halogend.control.target import Target


class Change:
    """One model's part of a receipt. `target` None removes the model. `told` is called whenever
    the record moved on, so that the receipt can be settled.

    At its `barrier` it waits for the other models of an atomic change. `then` is what must be reclaimed as well
    before it is closed.

    A later receipt that asks for the same state follows: what happens to this change happens to
    its record too.
    """

    def __init__(
        self, target: Target | None, record: ModelRecord, told: Callable[[], None], barrier: Barrier | None = None
    ) -> None:
        self.target = target
        self.barrier = barrier
        self.record = record
        self.then: Retired | None = None
        self._told = [told]
        self._records = [record]

    def follow(self, record: ModelRecord, told: Callable[[], None]) -> None:
        record.outcome, record.error = self.record.outcome and Outcome.UNCHANGED, self.record.error
        self._records.append(record)
        self._told.append(told)

    def served(self) -> None:
        """The new state serves."""
        self._set(Outcome.APPLIED)

    def failed(self, error: str) -> None:
        """The new state was given up."""
        self._set(Outcome.FAILED, error)

    def rolled_back(self, error: str) -> None:
        """The new state served, and was given up."""
        self._set(Outcome.ROLLED_BACK, error)

    def closed(self) -> None:
        """Nothing of this change is left to do; without an outcome it was superseded."""
        for record in self._records:
            record.outcome = record.outcome or Outcome.SUPERSEDED
            record.is_closed = True
        self._tell()

    def _set(self, outcome: Outcome, error: str | None = None) -> None:
        for record in self._records:
            record.outcome, record.error = outcome, error or record.error
        self._tell()

    def _tell(self) -> None:
        for told in self._told:
            told()
