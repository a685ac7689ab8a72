"""Documents in, receipts out: accepts one document at a time and lets every model converge.

Accepting (read, parse, facts, rules, plan) takes milliseconds and touches nothing that runs; then
each model's own task does the work. Owns the units and the receipts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from halogend.config.canonical import canonical, revision
from halogend.config.codes import Code
from halogend.config.parse import parse
from halogend.config.places import ParseResult
from halogend.config.problems import Problem
from halogend.config.rules import check
from halogend.config.schema import Document, ServerConfig
from halogend.control.converge import converge, grow
from halogend.control.facts import gather
from halogend.control.house import House
from halogend.control.machine import Machine
from halogend.control.plan import ModelPlan, Plan, Target, make_plan, targets
from halogend.control.receipts import Milestone, ModelAction, ModelRecord, Outcome, Receipt, Receipts
from halogend.control.recover import recover
from halogend.control.source import Content, SourceError
from halogend.control.unit import Change, Unit

_log = structlog.get_logger()


class Sockets(Protocol):
    """The listeners, as a change sees them. `prepare` binds what is new and may refuse."""

    async def prepare(self, server: ServerConfig) -> Problem | None: ...

    async def commit(self) -> None: ...

    async def discard(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where documents come from. `read` raises SourceError; `environ` is what `${NAME}` means."""

    file: str
    environ: Mapping[str, str]
    read: Callable[[], Content]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The document whose targets are set."""

    document: Document
    revision: str


@dataclass(frozen=True, slots=True)
class _Ask:
    receipt: Receipt
    content: Content | None


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
        self.active_revision: str | None = None
        self._sockets = sockets
        self._asks: asyncio.Queue[_Ask] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._worker = asyncio.create_task(self._take_asks())

    def reload(self, trigger: str, actor: str, content: Content | None = None) -> Receipt:
        """Opens the receipt now; without `content` the source is read when its turn comes."""
        receipt = self.receipts.open(trigger, actor)
        self._asks.put_nowait(_Ask(receipt, content))
        return receipt

    def document(self) -> str:
        """The active document's canonical text; empty before the first."""
        return "" if self.accepted is None else canonical(self.accepted.document)

    async def stop(self) -> None:
        """Ends the tasks and every generation. Requests must have been drained or ended before."""
        tasks = [self._worker, *self._tasks]
        tasks += [unit.reclaiming for unit in self.house.units.values() if unit.reclaiming is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left = [
            each for unit in self.house.units.values() for each in (unit.serving, unit.draining) if each is not None
        ]
        await asyncio.gather(*(generation.stop() for generation in left))

    # --- accepting ------------------------------------------------------------------------------

    async def _take_asks(self) -> None:
        while True:
            ask = await self._asks.get()
            try:
                await self._accept(ask)
            except Exception as error:  # noqa: BLE001  the daemon serves on whatever a document does to us
                _log.exception("accept_failed", receipt=ask.receipt.id)
                problem = Problem(Code.INTERNAL, f"halogend could not work out this document: {error!r}", "report this")
                self._close(ask.receipt, Outcome.FAILED, (problem,))

    async def _accept(self, ask: _Ask) -> None:
        """Read, parse, look, check, plan, bind: nothing that runs is touched before all are right."""
        receipt = ask.receipt
        async with self.house.step(None, "validate"):
            try:
                content = ask.content or self.source.read()
            except SourceError as error:
                return self._reject(
                    receipt, (Problem(Code.SOURCE_UNREADABLE, str(error), "make it readable", self.source.file),)
                )
            parsed = await asyncio.to_thread(parse, content.data, self.source.file, self.source.environ)
            gathered = None
            if parsed.partial is not None:
                gathered = await asyncio.to_thread(gather, parsed.partial, self._machine)
            problems = check(parsed, None if gathered is None else gathered.facts)
            document = parsed.document
            if problems or document is None or gathered is None:
                return self._reject(receipt, problems)
            receipt.revision = revision(document)
            receipt.previous_revision = None if self.accepted is None else self.accepted.revision
            plan = make_plan(self._goals(), targets(document, gathered), (self._server(), document.server))
            problems = tuple(_placed(problem, parsed) for problem in plan.problems or await self._prepare(document))
            if problems:
                await self._sockets.discard()
                return self._reject(receipt, problems)
        await self._apply(receipt, Accepted(document, receipt.revision), plan)
        return None

    async def _prepare(self, document: Document) -> tuple[Problem, ...]:
        problem = await self._sockets.prepare(document.server)
        return () if problem is None else (problem,)

    async def _apply(self, receipt: Receipt, accepted: Accepted, plan: Plan) -> None:
        self.accepted = accepted
        self.house.router.all_must_serve = accepted.document.server.ready == "all"
        self.house.metrics.active_revision(accepted.revision[:12])
        await self._sockets.commit()
        receipt.reach(Milestone.ACCEPTED, self.house.clock())
        receipt.server_changes = plan.server_changes
        receipt.models = {each.model: ModelRecord(each.model, each.action, each.changes) for each in plan.models}
        for each in plan.models:
            if each.action is ModelAction.KEEP:
                self._keep(receipt, each.model)
            else:
                self._want(receipt, each)
        self._settle(receipt)

    def _goals(self) -> dict[str, Target]:
        return {
            name: unit.goal for name, unit in self.house.units.items() if unit.goal is not None and not unit.trouble
        }

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
        if unit is None or unit.is_gone:
            unit = self.house.units[plan.model] = Unit(plan.model)
            task = asyncio.create_task(self._tend(unit))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        unit.want(Change(plan.target, receipt.models[plan.model], lambda: self._settle(receipt)))

    # --- one model's life -----------------------------------------------------------------------

    async def _tend(self, unit: Unit) -> None:
        """Changes and deaths, one after the other, until the model is removed."""
        while not unit.is_gone:
            await unit.until_needed()
            change = unit.begin()
            try:
                if change is not None:
                    await converge(unit, change, self.house)
                elif unit.serving is not None and unit.serving.died.is_set():
                    await recover(unit, self.house)
                else:
                    await grow(unit, self.house)
            except Exception as error:  # noqa: BLE001  the task must live: the next change may mend it
                _log.exception("converge_failed", model=unit.name)
                if change is not None and change.record.outcome is None:
                    change.failed(repr(error))
                    change.closed()
            finally:
                unit.end()
        if unit.reclaiming is not None:
            await unit.reclaiming
        if self.house.units.get(unit.name) is unit:
            del self.house.units[unit.name]

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
            if receipt.outcome in (Outcome.APPLIED, Outcome.UNCHANGED):
                self.active_revision = receipt.revision
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
