"""Every request that was taken, from its arrival to its one end."""

from __future__ import annotations

from collections.abc import Iterator

from halogend.sched.admission import Admission
from halogend.sched.places import Places
from halogend.sched.request import End, Request, Sequence


class Taken:
    """By id, in the order of arrival. Whoever ends gives everything back here, and its key's share is put right.
    Single writer: the scheduler."""

    def __init__(self, places: Places, admission: Admission) -> None:
        self._places = places
        self._admission = admission
        self._sequences: dict[int, Sequence] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences.values())

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._sequences

    @property
    def ids(self) -> list[int]:
        return list(self._sequences)

    def take(self, request: Request, now: float, priority: int) -> None:
        """Into the queue. Nobody else has its id."""
        sequence = Sequence(request=request, order=self._arrivals, arrived_s=now, tokens=list(request.prompt))
        sequence.most_blocks = self._admission.blocks_at_most(request.positions_at_most)
        sequence.charged_tokens = self._admission.share.tokens(sequence)
        sequence.priority = priority
        sequence.tag = self._places.shares.tag(priority, request.caller, sequence.charged_tokens)
        self._arrivals += 1
        self._sequences[request.id] = sequence
        self._places.wait(sequence)

    def older(self, moment: float) -> list[Sequence]:
        """Who came at `moment` or before it."""
        older: list[Sequence] = []
        for sequence in self:
            if sequence.arrived_s > moment:
                break
            older.append(sequence)
        return older

    def complete(self, sequence: Sequence) -> None:
        """As far as it wanted: what it generated tells how much of max_tokens others will need."""
        request = sequence.request
        self._admission.share.learn(len(sequence.tokens) - len(request.prompt), request.max_tokens)
        self._finish(sequence)

    def fail(self, sequences: list[Sequence], code: str) -> list[End]:
        for sequence in sequences:
            self._finish(sequence)
        return [End(s.request.id, "error", code) for s in sequences]

    def abort(self, request_id: int) -> None:
        """Unknown ids are ignored: it may just have ended."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._finish(sequence)

    def _finish(self, sequence: Sequence) -> None:
        self._places.leave(sequence)
        request = sequence.request
        served = len(sequence.tokens) if sequence.admitted else 0
        self._places.shares.correct(sequence.priority, request.caller, served - sequence.charged_tokens)
        del self._sequences[request.id]
