"""Documents in, receipts out: accepts one document at a time and lets every model converge.

Accepting (read, parse, facts, rules, plan) takes milliseconds and touches nothing that runs; then
each model's own task does the work. Owns the units and the receipts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from halogend.config.canonical import canonical, revision
from halogend.config.codes import Code
from halogend.config.fit import file_problems
from halogend.config.parse import parse
from halogend.config.places import ParseResult, Places
from halogend.config.problems import Problem
from halogend.config.rules import check
from halogend.config.schema import Document, ServerConfig
from halogend.control.access import Access, changes, look
from halogend.control.converge import converge, grow
from halogend.control.facts import gather
from halogend.control.house import House
from halogend.control.input_files import Signature
from halogend.control.machine import Machine
from halogend.control.plan import ModelPlan, Plan, make_plan
from halogend.control.receipts import Milestone, ModelAction, ModelRecord, Outcome, Receipt, Receipts
from halogend.control.recover import recover
from halogend.control.source import Content, Parse, SourceError
from halogend.control.target import Target, make_targets
from halogend.control.unit import Change, Unit

_log = structlog.get_logger()


class Sockets(Protocol):
    """The listeners, as a change sees them. `prepare` binds what is new, `commit` listens there and
    leaves the old; either may refuse, and then everything is as it was."""

    async def prepare(self, server: ServerConfig, access: Access) -> Problem | None: ...

    async def commit(self) -> Problem | None: ...

    async def discard(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where documents come from. `read` raises SourceError; `environ` is what `${NAME}` means; `parse`
    knows the places in what was read."""

    file: str
    environ: Mapping[str, str]
    read: Callable[[], Content]
    parse: Parse = parse


@dataclass(frozen=True, slots=True)
class Accepted:
    """The document whose targets are set. `number` counts them: an older one may end later."""

    document: Document
    revision: str
    number: int


@dataclass(frozen=True, slots=True)
class _Ask:
    receipt: Receipt
    seen: Content | None
    reread: bool = False


class Reconciler:
    """Single writer of units and receipts."""

    def __init__(
        self,
        house: House,
        machine: Machine,
        sockets: Sockets,
        source: Source,
    ) -> None:
        self.house = house
        self.receipts = Receipts(clock=house.clock)
        self.accepted: Accepted | None = None
        self._machine = machine
        self.source = source
        self.active: Accepted | None = None
        self._sockets = sockets
        self._asks: asyncio.Queue[_Ask] = asyncio.Queue()
        self._access = Access()
        self._places = Places()
        self._open: dict[str, Accepted] = {}
        self._accepts = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._worker = asyncio.create_task(self._take_asks())

    def reload(self, trigger: str, actor: str, seen: Content | None = None) -> Receipt:
        """Opens the receipt now; the source is read when its turn comes. `seen` is what a watch saw,
        used where the source holds nothing by then."""
        receipt = self.receipts.open(trigger, actor)
        self._asks.put_nowait(_Ask(receipt, seen))
        return receipt

    def reread(self, path: Path) -> Receipt:
        """Takes the accepted document's key and certificate files as they are now: the one at `path` is another.
        Neither the source nor a model's file is looked at: what is wrong there must not keep an old key in force."""
        receipt = self.receipts.open("file", f"input {path}")
        self._asks.put_nowait(_Ask(receipt, None, reread=True))
        return receipt

    def signatures(self) -> Mapping[Path, Signature]:
        """The accepted document's key and certificate files, as they were read."""
        return self._access.signatures

    def document(self) -> str:
        """The active document's canonical text; empty before the first."""
        return "" if self.active is None else canonical(self.active.document)

    async def stop(self) -> None:
        """Ends the tasks and every generation. Requests must have been drained or ended before."""
        units = list(self.house.units.values())
        tasks = [self._worker, *self._tasks, *(task for unit in units for task in unit.reclaims)]
        for task in tasks:
            task.cancel()
        left = [each for unit in units for each in (unit.serving, *unit.draining) if each is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(generation.stop() for generation in left))

    # --- accepting ------------------------------------------------------------------------------

    async def _take_asks(self) -> None:
        while True:
            ask = await self._asks.get()
            try:
                await (self._reread(ask.receipt) if ask.reread else self._accept(ask))
            except Exception as error:  # noqa: BLE001  the daemon serves on whatever a document does to us
                _log.exception("accept_failed", receipt=ask.receipt.id)
                await self._sockets.discard()
                problem = Problem(Code.INTERNAL, f"halogend could not work out this document: {error!r}", "report this")
                self._close(ask.receipt, Outcome.FAILED, (problem,))

    async def _reread(self, receipt: Receipt) -> None:
        """As accepting, for keys and certificates alone."""
        accepted = self.accepted
        if accepted is None:
            return self._reject(receipt, ())
        receipt.revision = receipt.previous_revision = accepted.revision
        server = accepted.document.server
        access, facts = await asyncio.to_thread(look, server)
        problems = file_problems(facts, self._places)
        differs = changes((server, self._access), (server, access))
        if not problems and differs:
            problem = await self._sockets.prepare(server, access) or await self._sockets.commit()
            problems = () if problem is None else (problem,)
        if problems:
            await self._sockets.discard()
            return self._reject(receipt, problems)
        self._access, receipt.server_changes = access, differs
        return self._close(receipt, Outcome.APPLIED if differs else Outcome.UNCHANGED, ())

    async def _accept(self, ask: _Ask) -> None:
        """Read, parse, look, check, plan, bind: nothing that runs is touched before all are right."""
        receipt = ask.receipt
        async with self.house.step(None, "validate"):
            try:
                content = self._content(ask.seen)
            except SourceError as error:
                return self._reject(
                    receipt, (Problem(Code.SOURCE_UNREADABLE, str(error), "make it readable", self.source.file),)
                )
            parsed = await asyncio.to_thread(self.source.parse, content.data, self.source.file, self.source.environ)
            gathered = None
            if parsed.partial is not None:
                gathered = await asyncio.to_thread(gather, parsed.partial, self._machine)
            problems = check(parsed, None if gathered is None else gathered.facts)
            document = parsed.document
            if problems or document is None or gathered is None:
                return self._reject(receipt, problems)
            receipt.revision = revision(document)
            receipt.previous_revision = None if self.accepted is None else self.accepted.revision
            wanted = make_targets(document, gathered)
            plan = self._plan(document, wanted, gathered.access)
            problems = plan.problems or await self._prepare(document, gathered.access)
            problems = tuple(_placed(problem, parsed) for problem in problems)
            if problems:
                await self._sockets.discard()
                return self._reject(receipt, problems)
            problems = tuple(_placed(problem, parsed) for problem in await self._commit())
            if problems:
                return self._reject(receipt, problems)
            # Planned again: while listeners were changed, a model may have come, failed or died.
            plan = self._plan(document, wanted, gathered.access)
        self._accepts += 1
        self._access, self._places = gathered.access, parsed.places
        self._apply(receipt, Accepted(document, receipt.revision, self._accepts), plan)
        return None

    def _plan(self, document: Document, wanted: Mapping[str, Target], access: Access) -> Plan:
        old = self._server()
        plan = make_plan(self._goals(), wanted, (old, document.server))
        differs = () if old is None else changes((old, self._access), (document.server, access))
        return replace(plan, server_changes=(*plan.server_changes, *differs))

    def _content(self, seen: Content | None) -> Content:
        """What the source holds now: a later edit wins over what a watch saw before. Raises SourceError."""
        try:
            now = self.source.read()
        except SourceError:
            if seen is None:
                raise
            return seen
        return seen if seen is not None and not now.data.strip() else now

    async def _prepare(self, document: Document, access: Access) -> tuple[Problem, ...]:
        problem = await self._sockets.prepare(document.server, access)
        return () if problem is None else (problem,)

    async def _commit(self) -> tuple[Problem, ...]:
        problem = await self._sockets.commit()
        return () if problem is None else (problem,)

    def _apply(self, receipt: Receipt, accepted: Accepted, plan: Plan) -> None:
        self.accepted = self._open[receipt.id] = accepted
        self.house.router.all_must_serve = accepted.document.server.ready == "all"
        receipt.reach(Milestone.ACCEPTED, self.house.clock())
        receipt.server_changes = plan.server_changes
        receipt.models = {each.model: _record(each) for each in plan.models}
        for each in plan.models:
            if each.action is ModelAction.KEEP:
                self._keep(receipt, each.model)
            else:
                self._want(receipt, each)
        self._settle(receipt)

    def _goals(self) -> dict[str, Target | None]:
        """What each wanted model is, or will be when all is done; None for one in trouble."""
        wanted = {name: unit for name, unit in self.house.units.items() if unit.is_wanted}
        return {name: None if unit.trouble else unit.goal for name, unit in wanted.items()}

    def _server(self) -> ServerConfig | None:
        return None if self.accepted is None else self.accepted.document.server

    def _keep(self, receipt: Receipt, name: str) -> None:
        """Nothing to do; but where an earlier receipt is still on its way there, this one goes along."""
        record, change = receipt.models[name], self.house.units[name].open_change
        if change is not None:
            change.follow(record, lambda: self._settle(receipt))
        else:
            record.outcome, record.is_closed = Outcome.UNCHANGED, True

    def _want(self, receipt: Receipt, plan: ModelPlan) -> None:
        unit = self.house.units.get(plan.model)
        if unit is None:
            unit = self.house.units[plan.model] = Unit(plan.model)
            task = asyncio.create_task(self._tend(unit))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        unit.want(Change(plan.target, receipt.models[plan.model], lambda: self._settle(receipt)))

    # --- one model's life -----------------------------------------------------------------------

    async def _tend(self, unit: Unit) -> None:
        """Changes and deaths, one after the other, until the model is removed and reclaimed."""
        while not unit.is_finished:
            await unit.until_needed()
            change = unit.begin()
            try:
                if change is not None:
                    await converge(unit, change, self.house)
                elif unit.serving is not None and unit.alive() is None:
                    await recover(unit, self.house)
                else:
                    await grow(unit, self.house)
            except Exception as error:  # noqa: BLE001  the task must live: the next change may mend it
                _log.exception("converge_failed", model=unit.name)
                self._give_up(unit, change, f"{Code.INTERNAL}: {error!r}")
            finally:
                unit.end()
        del self.house.units[unit.name]

    def _give_up(self, unit: Unit, change: Change | None, reason: str) -> None:
        """After a fault of our own: nobody waits for what will not come."""
        if unit.alive() is None:
            unit.trouble = reason
            if self.house.router.route(unit.name) is not None:
                self.house.router.give_up(unit.name, reason)
        if change is not None:
            change.failed(reason)
            change.closed()

    # --- receipts -------------------------------------------------------------------------------

    def _reject(self, receipt: Receipt, problems: tuple[Problem, ...]) -> None:
        self._close(receipt, Outcome.REJECTED, problems)

    def _settle(self, receipt: Receipt) -> None:
        """Called whenever a model's record moved on."""
        records = list(receipt.models.values())
        if receipt.outcome is None and all(record.outcome is not None for record in records):
            receipt.outcome = _outcome(receipt, records)
            receipt.reach(Milestone.SERVING, self.house.clock())
            self._tell(receipt)
            accepted = self._open.pop(receipt.id)
            is_newer = self.active is None or accepted.number > self.active.number
            if is_newer and receipt.outcome in (Outcome.APPLIED, Outcome.UNCHANGED):
                self.active = accepted
                self.house.metrics.active_revision(accepted.revision[:12])
        if receipt.outcome is not None and all(record.is_closed for record in records):
            receipt.reach(Milestone.CLOSED, self.house.clock())

    def _close(self, receipt: Receipt, outcome: Outcome, problems: tuple[Problem, ...]) -> None:
        receipt.outcome, receipt.problems = outcome, problems
        receipt.reach(Milestone.CLOSED, self.house.clock())
        self._tell(receipt)

    def _tell(self, receipt: Receipt) -> None:
        successful = receipt.outcome in (Outcome.APPLIED, Outcome.UNCHANGED)
        self.house.metrics.reload_ended(
            str(receipt.outcome), receipt.trigger, successful=successful, now=self.house.clock()
        )
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


def _placed(problem: Problem, parsed: ParseResult) -> Problem:
    """With the line and column of the field it is about; a model's name stands for its `model`."""
    names = [] if parsed.document is None else [model.name for model in parsed.document.models]
    path = f"models[{names.index(problem.path)}].model" if problem.path in names else problem.path
    return parsed.places.problem(problem.code, path, problem.message, problem.hint)


def _outcome(receipt: Receipt, records: list[ModelRecord]) -> Outcome:
    outcomes = {record.outcome for record in records} - {Outcome.UNCHANGED}
    if not outcomes:
        return Outcome.APPLIED if receipt.server_changes else Outcome.UNCHANGED
    if len(outcomes) == 1:
        (only,) = outcomes
        return only or Outcome.FAILED
    if Outcome.FAILED not in outcomes:
        return Outcome.SUPERSEDED
    return Outcome.PARTIALLY_APPLIED if Outcome.APPLIED in outcomes else Outcome.FAILED


def _record(plan: ModelPlan) -> ModelRecord:
    return ModelRecord(plan.model, plan.action, plan.changes, None if plan.load is None else plan.load.view())
