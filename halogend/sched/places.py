"""Who has a place in the batch and who waits for one; nobody is in both, and nobody is lost between."""

from __future__ import annotations

from collections.abc import Iterable

from halogend.sched.errors import InvariantError
from halogend.sched.fairness import FairShares
from halogend.sched.lanes import Lanes
from halogend.sched.limits import EvictionPolicy
from halogend.sched.queue import WaitingQueue
from halogend.sched.request import Sequence
from halogend.sched.running import RunningSet
from halogend.sched.tables import BlockTables


class Places:
    """Moves sequences between the queue and the batch, and their blocks with them. Single writer: the
    scheduler. `now` is the latest time that was told."""

    def __init__(self, tables: BlockTables, lanes: Lanes) -> None:
        self.tables = tables
        self._lanes = lanes
        self.shares = FairShares()
        self.queue = WaitingQueue()
        self.running = RunningSet()
        self.preemptions = 0
        self.now = 0.0
        self._waits: list[float] = []
        self._reused: list[tuple[Sequence, int]] = []

    def wait(self, sequence: Sequence) -> None:
        """Into the queue."""
        sequence.to_compute = len(sequence.tokens)
        sequence.long = self._lanes.is_long(sequence)
        self.queue.put(sequence)

    def enter(self, sequence: Sequence) -> None:
        """From the queue into the batch; what is there already of its prompt need not be computed."""
        self.queue.remove(sequence)
        self._count_passed(sequence)
        self.running.enter(sequence)
        self.shares.serve(sequence.priority, self._earliest_tag(sequence))
        sequence.computed = self.tables.open(sequence)
        sequence.to_compute = len(sequence.tokens) - sequence.computed
        sequence.long = self._lanes.is_long(sequence)
        if not sequence.admitted:
            sequence.admitted = True
            sequence.prompt_counted = sequence.computed  # as far as it was computed before
            self._waits.append(self.now - sequence.arrived_s)
            self._reused.append((sequence, sequence.computed))

    def give_way(self, sequence: Sequence) -> None:
        """Back to the queue, before those of its class that never ran. Nothing it computed is left to it."""
        self._release(sequence)
        self.wait(sequence)
        self.preemptions += 1

    def leave(self, sequence: Sequence) -> None:
        """For good, wherever it is."""
        sequence.ended = True
        if sequence.slot >= 0:
            self._release(sequence)
        else:
            self.queue.remove(sequence)

    def rearrange(self, eviction: EvictionPolicy) -> None:
        """The lanes or the priorities of the classes have other rules from now on."""
        waiting = self.queue.take_all()
        for sequence in sorted((*self.running, *waiting), key=_order):
            sequence.long = self._lanes.is_long(sequence)
            priority = eviction.priority_of(sequence.request.caller.klass)
            if priority != sequence.priority:
                self.shares.correct(sequence.priority, sequence.request.caller, -sequence.charged_tokens)
                sequence.priority = priority
                sequence.tag = self.shares.tag(priority, sequence.request.caller, sequence.charged_tokens)
        self.running.sort()
        for sequence in waiting:
            self.queue.put(sequence)

    def take_waits(self) -> tuple[float, ...]:
        waits, self._waits = tuple(self._waits), []
        return waits

    def take_reused(self) -> tuple[tuple[int, int], ...]:
        """Of those admitted for the first time since the last call, in positions."""
        reused = tuple((sequence.request.id, count) for sequence, count in self._reused if not sequence.ended)
        self._reused.clear()
        return reused

    def audit(self, sequences: Iterable[int]) -> None:
        """Raises InvariantError unless every one of these requests and every block is in exactly one place."""
        if sorted(s.request.id for s in (*self.running, *self.queue)) != sorted(sequences):
            raise InvariantError("a request is lost or in two places")
        self.running.audit()
        self.queue.audit()
        self.tables.audit(self.running)

    def _count_passed(self, sequence: Sequence) -> None:
        """By whoever heads a line of the same priority and is overtaken."""
        for long in (False, True):
            line = self.queue.line(sequence.priority, long=long)
            if line and line[0].order < sequence.order:
                line[0].passed += 1

    def _earliest_tag(self, entering: Sequence) -> float:
        """Its own, or that of who heads the line that it leaves and is passed."""
        line = self.queue.line(entering.priority, long=entering.long)
        return min(entering.tag, line[0].tag) if line else entering.tag

    def _release(self, sequence: Sequence) -> None:
        self.running.leave(sequence)
        self.tables.release(sequence, self.now)
        sequence.computed = 0


def _order(sequence: Sequence) -> int:
    return sequence.order
