"""Documents in, receipts out: accepts one document at a time and lets every model converge.

Accepting (read, parse, facts, rules, plan) takes milliseconds and touches nothing that runs; then
each model's own task does the work. Owns the units and the receipts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from halogend.config.canonical import canonical
from halogend.config.codes import Code
from halogend.config.facts import FileFact
from halogend.config.fit import file_problems
from halogend.config.parts import is_unfinished
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import Document, ServerConfig
from halogend.control.acceptance import Accepted, Opened, Sockets, Source, outcome_of
from halogend.control.access import Access, changes, look
from halogend.control.aside import aside
from halogend.control.barrier import Barrier
from halogend.control.change import Change
from halogend.control.doors import open_doors
from halogend.control.forecast import Forecast
from halogend.control.history import History
from halogend.control.house import House
from halogend.control.input_files import Signature
from halogend.control.machine import Machine
from halogend.control.plan import ModelPlan, Plan, has_changes
from halogend.control.plan_report import Subject, rejected, report, rooms_of
from halogend.control.planning import LOOK_LIMIT_S, Draft, Given, draft
from halogend.control.presence import drains, presence
from halogend.control.push import Push
from halogend.control.receipts import ModelAction, ModelRecord, Outcome, Receipt, Receipts
from halogend.control.records import Records
from halogend.control.source import Content, SourceError
from halogend.control.strategy import Now, decide
from halogend.control.target import Target
from halogend.control.tending import tend
from halogend.control.unit import Unit

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Ask:
    receipt: Receipt
    seen: Content | None = None
    given: Given | None = None
    push: Push | None = None
    is_sources: bool = True


class Reconciler:
    """Single writer of units, receipts and history. `source_revision` is that of what the source held
    when it was last read; None for a document that was not valid."""

    def __init__(
        self,
        house: House,
        machine: Machine,
        sockets: Sockets,
        source: Source,
        history: History | None = None,
    ) -> None:
        self.house = house
        self.records = Records(house, history or History())
        self.source_revision: str | None = None
        self.accepted: Accepted | None = None
        self.machine = machine
        self.source = source
        self.active: Accepted | None = None
        self._sockets = sockets
        self._asks: asyncio.Queue[_Ask] = asyncio.Queue()
        self._rereads: asyncio.Queue[_Ask] = asyncio.Queue()
        self._in_force: Document | None = None
        self._together: Barrier | None = None
        self._access = Access()
        self._places = Places()
        self._warned: frozenset[str] = frozenset()
        self._open: dict[str, Opened] = {}
        self._judging = asyncio.Lock()
        self._accepts = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers = (
            asyncio.create_task(self._take(self._asks, self._accept)),
            asyncio.create_task(self._take(self._rereads, self._reread)),
        )

    @property
    def receipts(self) -> Receipts:
        return self.records.receipts

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
            self._asks.put_nowait(_Ask(receipt, seen))
        return receipt

    def apply(self, given: Given, trigger: str, actor: str) -> Receipt:
        """The same for a document that is not the source's; the source stays as it is."""
        receipt = self.records.open(trigger, actor, given.file)
        self._asks.put_nowait(_Ask(receipt, given=given, is_sources=False))
        return receipt

    def put(self, push: Push, actor: str, *, force: bool = False) -> Receipt:
        """The same for a document that is handed in, which becomes the source's own where that takes it. While
        changes are held only `force` gets through."""
        receipt = self.records.open("put", actor, push.file, push.origin)
        hold = self.history.hold
        if hold is not None and not force:
            self.records.put_off(receipt, hold, is_kept=self.source.pushed(push.content))
        else:
            self._asks.put_nowait(_Ask(receipt, given=push.given, push=push))
        return receipt

    async def plan(self, given: Given | None = None) -> dict[str, Any]:
        """What accepting this document would do now; None: what the source holds. Changes nothing."""
        try:
            given = given or self.source.given(await self.source.content())
        except SourceError as error:
            return rejected(Subject(self.source.file, None, self._revision()), (self._unreadable(error),))
        drafted = await draft(given, self.source.environ, self.machine, self._access)
        async with self._judging:
            subject = Subject(given.file, drafted.revision, self._revision())
            if drafted.document is None:
                return rejected(subject, drafted.problems)
            plan, bytes_ = self._plan(drafted)
            try:
                problems = plan.problems or await self._prepare(drafted)
            finally:
                await self._sockets.discard()
            return report(
                subject,
                plan,
                bytes_,
                rooms_of(drafted.document, self.machine.devices),
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
        self.source_revision = (await draft(given, self.source.environ, self.machine, self._access)).revision

    def reread(self, path: Path) -> Receipt:
        """Takes the accepted document's key and certificate files as they are now: the one at `path` is another.
        Neither the source nor a model's file is looked at: what is wrong there must not keep an old key in force."""
        receipt = self.records.open("file", f"input {path}", str(path))
        self._rereads.put_nowait(_Ask(receipt))
        return receipt

    def signatures(self) -> Mapping[Path, Signature]:
        """The accepted document's key and certificate files, as they were read."""
        return self._access.signatures

    async def listen(self) -> Problem | None:
        """Opens listeners although no document was accepted. The problem says why there are none."""
        return await open_doors(self.source, self._sockets, self.machine, self._judging)

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

    async def _take(self, asks: asyncio.Queue[_Ask], work: Callable[[_Ask], Awaitable[None]]) -> None:
        """One at a time. Files are looked at outside `_judging`: one that never answers holds up no other queue."""
        while True:
            ask = await asks.get()
            try:
                await work(ask)
            except Exception as error:  # noqa: BLE001  the daemon serves on whatever a document does to us
                _log.exception("accept_failed", receipt=ask.receipt.id)
                problem = Problem(Code.INTERNAL, f"halogend could not work out this document: {error!r}", "report this")
                self.records.end(ask.receipt, Outcome.FAILED, (problem,))

    async def _reread(self, ask: _Ask) -> None:
        """As accepting, for keys and certificates alone; looks again where a document came meanwhile."""
        while (document := self._in_force) is not None:
            ask.receipt.revision = ask.receipt.previous_revision = self._revision()
            server, in_force = document.server, self._access
            try:
                access, facts = await aside(partial(look, server, in_force=in_force), LOOK_LIMIT_S)
            except TimeoutError:
                text = f"the files of keys and certificates did not answer within {LOOK_LIMIT_S:g} s"
                problem = Problem(Code.KEY_FILE, text, "look for a mount whose server is gone", self.source.file)
                return self._reject(ask.receipt, (problem,))
            async with self._judging:
                if self._in_force is document and self._access is in_force:
                    return await self._take_access(ask.receipt, access, facts)
        return self._reject(ask.receipt, ())

    async def _take_access(self, receipt: Receipt, access: Access, facts: tuple[FileFact, ...]) -> None:
        server = self._server()
        if server is None:
            raise ValueError("keys belong to a document")
        self._warn(facts)
        problems = file_problems(facts, self._places)
        differs = changes((server, self._access), (server, access))
        if not problems and differs:
            try:
                problem = await self._sockets.prepare(server, access) or await self._sockets.commit()
            finally:
                await self._sockets.discard()
            problems = () if problem is None else (problem,)
        if problems:
            return self._reject(receipt, problems)
        self._access, receipt.server_changes = access, differs
        return self.records.end(receipt, Outcome.APPLIED if differs else Outcome.UNCHANGED, ())

    async def _accept(self, ask: _Ask) -> None:
        """Read, parse, look, check, plan, bind: nothing that runs is touched before all are right."""
        async with self.house.step(None, "validate"):
            if ask.push is not None:
                if (differs := ask.push.mismatch(self._revision())) is not None:  # an edit came while it waited
                    problem = Problem(Code.REVISION_MISMATCH, differs, Code.REVISION_MISMATCH.remedy, ask.push.file)
                    return self.records.end(ask.receipt, Outcome.SUPERSEDED, (problem,))
                ask = replace(ask, is_sources=self.source.pushed(ask.push.content))
            try:
                given = ask.given or self.source.given(await self._content(ask.seen))
                ask.receipt.source = given.file
            except SourceError as error:
                return self._reject(ask.receipt, (self._unreadable(error),))
            while True:
                in_force = self._access
                drafted = await draft(given, self.source.environ, self.machine, in_force)
                async with self._judging:
                    if self._access is in_force:  # else keys came meanwhile, and the draft may hold older ones
                        return await self._judge(ask, drafted)

    async def _judge(self, ask: _Ask, drafted: Draft) -> None:
        receipt = ask.receipt
        self._warn(drafted.files)
        if ask.is_sources:
            self.source_revision = drafted.revision
        if drafted.document is None or drafted.revision is None:
            return self._reject(receipt, drafted.problems)
        receipt.revision, receipt.previous_revision = drafted.revision, self._revision()
        plan, _ = self._plan(drafted)
        try:
            is_atomic = drafted.document.reload.atomic and has_changes(plan)
            problems = plan.problems or await self._prepare(drafted)
            if not problems and not is_atomic:
                problems = await self._commit(drafted.wanted)
        finally:
            await self._sockets.discard()
        if problems:
            return self._reject(receipt, tuple(drafted.placed(problem) for problem in problems))
        # Planned again: while listeners were changed, a model may have come, failed or died.
        plan, _ = self._plan(drafted)
        self._accepts += 1
        barrier = self._barrier(receipt, drafted, plan) if is_atomic else None
        if barrier is None:
            self._put_in_force(drafted)
        accepted = Accepted(drafted.document, drafted.revision, self._accepts, receipt.id, ask.is_sources)
        return self._apply(receipt, accepted, plan, barrier)

    def _warn(self, files: tuple[FileFact, ...]) -> None:
        """Once, not at every reload."""
        found = frozenset(each.fault.message for each in files if each.warning)
        for message in sorted(found - self._warned):
            _log.warning("input_warning", message=message)
        self._warned = found

    def _plan(self, drafted: Draft) -> tuple[Plan, Forecast]:
        """With the bytes on the way."""
        new, old = drafted.document, self._in_force
        if new is None:
            raise ValueError("a document with problems has no plan")
        now = Now(self._goals(), self.house.ledger.held(), presence(self.house))
        plan, bytes_ = decide(now, drafted.wanted, (old, new))
        if self._waiting is not None and (has_changes(plan) or drafted.revision != self._revision()):
            now = replace(now, goals=self._without(self._waiting))  # that change will be given up for this one
            plan, bytes_ = decide(now, drafted.wanted, (old, new))
        differs = () if old is None else changes((old.server, self._access), (new.server, drafted.access))
        fields = [each for each in plan.server_changes if each["field"] != "server.auth"]  # told key by key
        return replace(plan, server_changes=(*fields, *differs)), bytes_

    def _unreadable(self, error: SourceError) -> Problem:
        return Problem(Code.SOURCE_UNREADABLE, str(error), "make it readable", self.source.file)

    async def _content(self, seen: Content | None) -> Content:
        """What the source holds now: a later edit wins over what a watch saw before. Raises SourceError."""
        try:
            now = await self.source.content()
        except SourceError:
            if seen is None:
                raise
            return seen
        if seen is not None and is_unfinished(now.data):
            return seen
        self.source.seen(now)
        return now

    async def _prepare(self, drafted: Draft) -> tuple[Problem, ...]:
        if drafted.document is None:
            return drafted.problems
        problem = await self._sockets.prepare(drafted.document.server, drafted.access)
        return () if problem is None else (problem,)

    async def _commit(self, wanted: Mapping[str, Target]) -> tuple[Problem, ...]:
        """Names first: a request may come as soon as a listener is there, and waits for its model."""
        router = self.house.router
        new = [name for name in wanted if router.route(name) is None]
        for name in new:
            router.open(name, wanted[name].settings)
        problem = await self._sockets.commit()
        if problem is None:
            return ()
        for name in new:
            router.close(name)
        return (problem,)

    def _put_in_force(self, drafted: Draft) -> None:
        """What is the document's own and no model's."""
        if (document := drafted.document) is None:
            return
        self._in_force, self._access, self._places = document, drafted.access, drafted.parsed.places
        self.house.router.all_must_serve = document.server.ready == "all"
        self.house.loads.resize(document.reload.max_parallel_loads)
        rooms = rooms_of(document, self.machine.devices)
        self.house.metrics.rooms({name: (room.reserve_bytes, room.foreign_bytes) for name, room in rooms.items()})

    def _barrier(self, receipt: Receipt, drafted: Draft, plan: Plan) -> Barrier:
        """Where the models that change wait for each other."""
        names = [each.model for each in plan.models if each.action is not ModelAction.KEEP]

        def come(barrier: Barrier) -> None:
            task = asyncio.create_task(self._open_together(barrier, receipt, drafted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        def broken() -> None:
            for name in names:
                if (unit := self.house.units.get(name)) is not None:
                    unit.wake()

        barrier = Barrier(names, come, broken)
        if not names:
            come(barrier)
        return barrier

    async def _open_together(self, barrier: Barrier, receipt: Receipt, drafted: Draft) -> None:
        """All models are ready: listeners first, which may refuse, and then every model at once."""
        try:
            async with self._judging:
                if not barrier.begin():
                    return
                try:
                    problems = await self._prepare(drafted) or await self._commit(drafted.wanted)
                finally:
                    await self._sockets.discard()
                if problems:
                    receipt.problems = tuple(drafted.placed(problem) for problem in problems)
                    barrier.fail(str(problems[0]), while_opening=True)
                else:
                    self._put_in_force(drafted)
                    barrier.commit()
        finally:
            barrier.fail("it could not be made in one go", while_opening=True)

    def _apply(self, receipt: Receipt, accepted: Accepted, plan: Plan, barrier: Barrier | None) -> None:
        is_newer = accepted.revision != self._revision()
        given_up = self._waiting if is_newer or has_changes(plan) else None
        self.accepted = accepted
        self._open[receipt.id] = Opened(accepted, self.active)
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
        self._together = barrier or self._together
        self._settle(receipt)

    def _goals(self) -> dict[str, Target | None]:
        """What each wanted model is, or will be when all is done; None for one in trouble."""
        wanted = {name: unit for name, unit in self.house.units.items() if unit.is_wanted}
        return {name: None if unit.trouble else unit.goal for name, unit in wanted.items()}

    @property
    def _waiting(self) -> Barrier | None:
        """The atomic change that is on its way."""
        return None if self._together is None or self._together.is_settled else self._together

    def _without(self, barrier: Barrier) -> dict[str, Target | None]:
        """`_goals`, had the models at the barrier never been asked to change."""
        goals = {name: goal for name, goal in self._goals().items() if name not in barrier.names}
        there = {name: unit for name, unit in self.house.units.items() if name in barrier.names}
        back = {name: unit for name, unit in there.items() if unit.active is not None or unit.trouble}
        return goals | {name: None if unit.trouble else unit.active for name, unit in back.items()}

    def _revision(self) -> str | None:
        return None if self.accepted is None else self.accepted.revision

    def _server(self) -> ServerConfig | None:
        return None if self._in_force is None else self._in_force.server

    def _keep(self, receipt: Receipt, name: str, given_up: Barrier | None) -> None:
        """Nothing to do; but where an earlier receipt is still on its way there, this one goes along."""
        record, change = receipt.models[name], self.house.units[name].open_change
        if change is not None and (given_up is None or change.barrier is not given_up):
            change.follow(record, lambda: self._settle(receipt))
        else:
            record.outcome, record.is_closed = Outcome.UNCHANGED, True

    def _want(self, receipt: Receipt, plan: ModelPlan, barrier: Barrier | None) -> None:
        unit = self.house.units.get(plan.model)
        if unit is None:
            unit = self.house.units[plan.model] = Unit(plan.model)
            task = asyncio.create_task(tend(unit, self.house))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        unit.want(Change(plan.target, receipt.models[plan.model], lambda: self._settle(receipt), barrier))

    # --- receipts -------------------------------------------------------------------------------

    def _reject(self, receipt: Receipt, problems: tuple[Problem, ...]) -> None:
        self.records.end(receipt, Outcome.REJECTED, problems)

    def _settle(self, receipt: Receipt) -> None:
        """Called whenever a model's record moved on."""
        records = list(receipt.models.values())
        if any(record.outcome is None for record in records):
            return
        outcome, opened = outcome_of(receipt, records), self._open[receipt.id]
        is_first = receipt.outcome is None
        if is_first or (receipt.outcome != outcome and any(each.outcome is Outcome.ROLLED_BACK for each in records)):
            receipt.outcome = outcome
            self.records.serves(receipt)
            self._activate(opened, is_good=outcome in (Outcome.APPLIED, Outcome.UNCHANGED))
        if all(record.is_closed for record in records):
            del self._open[receipt.id]
            self.records.closed(receipt)

    def _activate(self, opened: Opened, *, is_good: bool) -> None:
        """An older receipt may end later; one that is rolled back gives way to what was active before it."""
        accepted, active = opened.accepted, self.active
        if not is_good and accepted is active:
            active = opened.before
        elif is_good and (active is None or accepted.number > active.number):
            active = accepted
        if active is not None and active is not self.active:
            self.active = active
            self.records.became_active(active.document, active.revision, active.receipt)


def _record(plan: ModelPlan, receipt: Receipt) -> ModelRecord:
    load = None if plan.load is None else plan.load.view()
    return ModelRecord(plan.model, plan.action, plan.changes, load, receipt=receipt.id)
