"""Documents in, receipts out: accepts one document at a time and lets every model converge.

Accepting (read, parse, facts, rules, plan) takes milliseconds and touches nothing that runs; then
each model's own task does the work. Owns the units and the receipts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from halogend.config.canonical import canonical
from halogend.config.codes import Code
from halogend.config.problems import Problem
from halogend.control.acceptance import Accepted, Sockets, Source
from halogend.control.asks import Ask, Asks
from halogend.control.barrier import Barrier
from halogend.control.change import Change
from halogend.control.doors import open_doors
from halogend.control.entrance import Entrance
from halogend.control.forecast import Forecast
from halogend.control.history import History
from halogend.control.house import House
from halogend.control.in_force import InForce
from halogend.control.input_files import Signature
from halogend.control.machine import Machine
from halogend.control.outlook import Outlook
from halogend.control.plan import ModelPlan, Plan, has_changes
from halogend.control.plan_report import Subject, rejected, report, rooms_of
from halogend.control.planning import Draft, Given, draft
from halogend.control.presence import drains
from halogend.control.push import Push
from halogend.control.receipts import ModelAction, ModelRecord, Outcome, Receipt, Receipts, number_of
from halogend.control.records import Records
from halogend.control.rereading import Rereading
from halogend.control.settlement import Settlement
from halogend.control.source import Content, SourceError
from halogend.control.tending import tend
from halogend.control.together import Together
from halogend.control.unit import Unit


class Reconciler:
    """Single writer of units, receipts and history. `source_revision` is that of what the source held
    when it was last read; None for a document that was not valid."""

    def __init__(
        self, house: House, machine: Machine, sockets: Sockets, source: Source, history: History | None = None
    ) -> None:
        self.house = house
        self.records = Records(house, history or History())
        self.source_revision: str | None = None
        self.accepted: Accepted | None = None
        self.machine = machine
        self.source = source
        self._judging = asyncio.Lock()
        self._in_force = InForce(house, machine)
        self._entrance = Entrance(sockets, house.router)
        self._outlook = Outlook(house, self._in_force)
        self._together = Together(house, self._entrance, self._in_force, self._judging, self._spawn)
        self._settlement = Settlement(self.records)
        self._rereading = Rereading(self._in_force, sockets, self.records, self._judging, self._revision)
        self._accepts = self._newest = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._asks = Asks(self.records, self._accept, self._reread, self._spawn)
        self._workers = self._asks.begin()

    @property
    def receipts(self) -> Receipts:
        return self.records.receipts

    @property
    def active(self) -> Accepted | None:
        """The newest document all of which serves."""
        return self._settlement.active

    @property
    def history(self) -> History:
        return self.records.history

    def reload(self, trigger: str, actor: str, seen: Content | None = None, *, force: bool = False) -> Receipt:
        """Opens the receipt now; the source is read when its turn comes. `seen` is what a watch saw,
        used where the source holds nothing by then. While changes are held only `force` gets through."""
        receipt = self.records.open(trigger, actor, self.source.file)
        hold = self.history.hold
        if hold is not None and not force:
            self.records.put_off(receipt, hold)
        else:
            self._asks.put(Ask(receipt, seen))
        return receipt

    def apply(self, given: Given, trigger: str, actor: str) -> Receipt:
        """The same for a document that is not the source's; the source stays as it is."""
        receipt = self.records.open(trigger, actor, given.file)
        self._asks.put(Ask(receipt, given=given, is_sources=False))
        return receipt

    def put(self, push: Push, actor: str, *, force: bool = False) -> Receipt:
        """The same for a document that is handed in, which becomes the source's own where that takes it. While
        changes are held only `force` gets through."""
        receipt = self.records.open("put", actor, push.file, push.origin)
        hold = self.history.hold
        if hold is not None and not force:
            self.records.put_off(receipt, hold, is_kept=self.source.pushed(push.content))
        else:
            self._asks.put(Ask(receipt, given=push.given, push=push))
        return receipt

    async def plan(self, given: Given | None = None) -> dict[str, Any]:
        """What accepting this document would do now; None: what the source holds. Changes nothing."""
        try:
            given = given or self.source.given(await self.source.content())
        except SourceError as error:
            return rejected(Subject(self.source.file, None, self._revision()), (self.source.unreadable(error),))
        drafted = await draft(given, self.source.environ, self.machine, self._in_force.access)
        async with self._judging:
            subject = Subject(given.file, drafted.revision, self._revision())
            if drafted.document is None:
                return rejected(subject, drafted.problems)
            plan, bytes_ = self._plan(drafted)
            try:
                problems = plan.problems or await self._entrance.prepare(drafted)
            finally:
                await self._entrance.discard()
            return report(
                subject,
                plan,
                bytes_,
                rooms_of(drafted.document, self.machine.devices, self.house.ledger.standing_by()),
                drains(plan, self.house),
                [drafted.placed(problem) for problem in problems],
            )

    async def look_at_source(self) -> None:
        """Learns the revision of what the source holds, and counts it as seen."""
        try:
            given = self.source.given(await self.source.content())
        except SourceError:
            self.source_revision = None
            return
        self.source.seen(given.content)
        self.source_revision = (await draft(given, self.source.environ, self.machine, self._in_force.access)).revision

    def reread(self, path: Path, silent: frozenset[Path] = frozenset()) -> Receipt:
        """Takes the accepted document's key and certificate files as they are now: the one at `path` is another.
        Neither the source nor a model's file is looked at: what is wrong there must not keep an old key in force.
        Files that are `silent` do not answer, and stay as they are."""
        receipt = self.records.open("file", f"input {path}", str(path))
        self._asks.put_reread(Ask(receipt, silent=silent))
        return receipt

    def signatures(self) -> Mapping[Path, Signature]:
        """The accepted document's key and certificate files, as they were read."""
        return self._in_force.access.signatures

    async def listen(self) -> Problem | None:
        """Opens listeners although no document was accepted. The problem says why there are none."""
        return await open_doors(self.source, self._entrance.sockets, self.machine, self._judging)

    def document(self, *, is_desired: bool = False) -> tuple[str, str | None]:
        """The canonical text of the active document, or of the one whose targets are set, and its revision;
        empty before the first."""
        found = self.accepted if is_desired else self.active
        return ("", None) if found is None else (canonical(found.document), found.revision)

    async def stop(self) -> None:
        """Ends the tasks and every generation. Requests must have been drained or ended before."""
        units = list(self.house.units.values())
        tasks = [*self._workers, *self._tasks, *(task for unit in units for task in unit.reclaims)]
        for task in tasks:
            task.cancel()
        left = [each for unit in units for each in unit.generations]
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(generation.stop() for generation in left))
        await self.house.lingering.stop()
        await self.history.stop()

    # --- accepting ------------------------------------------------------------------------------

    def _is_overtaken(self, receipt: Receipt) -> bool:
        """Was a change accepted that was asked for after this one, while its files did not answer?"""
        return number_of(receipt.id) < self._newest

    async def _reread(self, ask: Ask) -> None:
        """As accepting, for keys and certificates alone."""
        await self._rereading.reread(ask.receipt, self.source.file, ask.silent)

    async def _accept(self, ask: Ask) -> None:
        """Read, parse, look, check, plan, bind: nothing that runs is touched before all are right."""
        async with self.house.step(None, "validate"):
            if ask.push is not None:
                if (differs := ask.push.mismatch(self._revision())) is not None:  # an edit came while it waited
                    problem = Problem(Code.REVISION_MISMATCH, differs, Code.REVISION_MISMATCH.remedy, ask.push.file)
                    return self.records.end(ask.receipt, Outcome.SUPERSEDED, (problem,))
                ask = replace(ask, is_sources=self.source.pushed(ask.push.content))
            try:
                given = ask.given or self.source.given(await self._read(ask))
                ask.receipt.source = given.file
            except SourceError as error:
                return self._reject(ask.receipt, (self.source.unreadable(error),))
            while True:
                in_force = self._in_force.access
                drafted = await draft(given, self.source.environ, self.machine, in_force, self._in_force.foresee)
                async with self._judging:
                    # Else keys came meanwhile, and the draft may hold older ones.
                    if self._in_force.access is in_force or self._is_overtaken(ask.receipt):
                        return await self._judge(ask, drafted)

    async def _read(self, ask: Ask) -> Content:
        return await self.source.newest(ask.seen, lambda: not self._is_overtaken(ask.receipt))

    async def _judge(self, ask: Ask, drafted: Draft) -> None:
        receipt = ask.receipt
        self._in_force.warn(drafted.files)
        if ask.is_sources:
            self.source_revision = drafted.revision
        if self._is_overtaken(receipt):
            return self.records.end(receipt, Outcome.SUPERSEDED, ())
        if drafted.document is None or drafted.revision is None:
            return self._reject(receipt, drafted.problems)
        receipt.revision, receipt.previous_revision = drafted.revision, self._revision()
        plan, _ = self._plan(drafted)
        try:
            is_atomic = drafted.document.reload.atomic and has_changes(plan)
            problems = plan.problems or await self._entrance.prepare(drafted)
            if not problems and not is_atomic:
                problems = await self._entrance.commit(drafted.wanted)
        finally:
            await self._entrance.discard()
        if problems:
            return self._reject(receipt, tuple(drafted.placed(problem) for problem in problems))
        # Planned again: while listeners were changed, a model may have come, failed or died.
        plan, _ = self._plan(drafted)
        self._accepts += 1
        self._newest = number_of(receipt.id)
        barrier = self._together.barrier(receipt, drafted, plan) if is_atomic else None
        if barrier is None:
            self._in_force.put(drafted)
        accepted = Accepted(drafted.document, drafted.revision, self._accepts, receipt.id, ask.is_sources)
        return self._apply(receipt, accepted, plan, barrier)

    def _plan(self, drafted: Draft) -> tuple[Plan, Forecast]:
        """With the bytes on the way."""
        return self._outlook.plan(drafted, self._together.waiting, is_newer=drafted.revision != self._revision())

    def _apply(self, receipt: Receipt, accepted: Accepted, plan: Plan, barrier: Barrier | None) -> None:
        is_newer = accepted.revision != self._revision()
        given_up = self._together.waiting if is_newer or has_changes(plan) else None
        self.accepted = accepted
        self._settlement.open(receipt, accepted, barrier)
        receipt.server_changes = plan.server_changes
        receipt.models = {each.model: _record(each, receipt) for each in plan.models}
        self.records.accepted(receipt)
        for each in plan.models:
            if each.action is ModelAction.KEEP:
                self._keep(receipt, each.model, given_up)
                if is_newer:
                    self.house.units[each.model].end_probation()
            else:
                self._want(receipt, each, barrier)
        if given_up is not None:
            given_up.abandon()
        self._together.newest = barrier or self._together.newest
        self._settlement.settle(receipt)

    def _revision(self) -> str | None:
        return None if self.accepted is None else self.accepted.revision

    def _keep(self, receipt: Receipt, name: str, given_up: Barrier | None) -> None:
        """Nothing to do; but where an earlier receipt is still on its way there, this one goes along."""
        record, change = receipt.models[name], self.house.units[name].open_change
        if change is not None and (given_up is None or change.barrier is not given_up):
            change.follow(record, lambda: self._settlement.settle(receipt))
        else:
            record.outcome, record.is_closed = Outcome.UNCHANGED, True

    def _want(self, receipt: Receipt, plan: ModelPlan, barrier: Barrier | None) -> None:
        unit = self.house.units.get(plan.model)
        if unit is None:
            unit = self.house.units[plan.model] = Unit(plan.model)
            self._spawn(tend(unit, self.house))
        unit.want(Change(plan.target, receipt.models[plan.model], lambda: self._settlement.settle(receipt), barrier))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _reject(self, receipt: Receipt, problems: tuple[Problem, ...]) -> None:
        self.records.end(receipt, Outcome.REJECTED, problems)


def _record(plan: ModelPlan, receipt: Receipt) -> ModelRecord:
    return ModelRecord(plan.model, plan.action, plan.changes, plan.load_view, receipt=receipt.id)
