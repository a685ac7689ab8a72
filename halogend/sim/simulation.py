"""Simulated time: what comes, a step, what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from halogend.sched.errors import InvariantError
from halogend.sched.request import End
from halogend.sched.scheduler import Scheduler
from halogend.sched.spans import SpanStep
from halogend.sched.step import StepPlan, StepResult
from halogend.sim.loads import Load
from halogend.sim.measures import Measures
from halogend.sim.timing import StepTimes, StepWork, work_of

RETRY_AFTER_S = 1.0  # how long who is refused stays away
Watch = Callable[[float], None]


class Simulation:
    """One scheduler under one load until the measures are complete or nobody asks any more. As in the
    engine's loop, what comes while a step is computed is taken in when it has ended."""

    def __init__(
        self, scheduler: Scheduler, times: StepTimes, load: Load, measures: Measures, *, spans: bool = True
    ) -> None:
        self._scheduler = scheduler
        self._times = times
        self._load = load
        self._measures = measures
        self._spans = spans
        self._said: dict[int, int] = {}  # tokens of its answer that a request has, by number
        self.now = 0.0

    def run(self, watch: Watch | None = None) -> None:
        """`watch` is called after each step with the time: there are no spans then. Raises InvariantError when
        work is left that the scheduler never takes up."""
        spans = self._spans and watch is None
        while not self._measures.complete:
            self._take_in()
            self._end(self._scheduler.expire(self.now))
            if spans and self._advance():
                continue
            plan = self._scheduler.schedule(self.now)
            if plan is not None:
                self._step(plan)
                if watch is not None:
                    watch(self.now)
            elif (due := self._load.due_s(self.now)) is not None:
                self.now = max(self.now, due)
            elif self._scheduler.has_requests:
                raise InvariantError(f"the scheduler stands still: {self._scheduler.stats}")
            else:
                break
        self._measures.preemptions = self._scheduler.stats.preemptions

    def _take_in(self) -> None:
        while (asked_s := self._load.due_s(self.now)) is not None and asked_s <= self.now:
            job = self._load.take()
            number = self._measures.ask(job, asked_s, self.now)
            refusal = self._scheduler.add(job.request(number), asked_s)
            if refusal is None:
                self._said[number] = 0
            else:
                self._over(number, refusal.code)

    def _step(self, plan: StepPlan) -> None:
        work = work_of(plan)
        seconds = self._times.seconds(work)
        self.now += seconds
        sampled = tuple((item.id, self._next_token(item.id)) for item in plan.items if item.samples)
        events = self._scheduler.apply(StepResult(plan.number, sampled, seconds=seconds))
        self._measures.step(seconds, work.decode_rows > 0)
        for number, tokens in events.reused:
            self._measures.reuse(number, tokens)
        for number, _ in events.sampled:
            self._said[number] += 1
            self._measures.token(number, self.now)
        self._end(events.ended)

    def _advance(self) -> bool:
        """A whole span of decode steps; False when the next step must be planned."""
        running = [(s.request.id, s.computed) for s in self._scheduler.running]
        most = min((self._left(number) - 1 for number, _ in running), default=0)
        most = self._scheduler.span(most) if most > 0 else 0
        if most <= 0:
            return False
        work = StepWork(decode_rows=len(running), decode_context=sum(computed + 1 for _, computed in running))
        due_s = self._load.due_s(self.now)
        steps: list[SpanStep] = []
        while len(steps) < most and (due_s is None or due_s > self.now):
            seconds = self._times.seconds(work)
            steps.append(SpanStep(self.now, seconds))
            self.now += seconds
            work = replace(work, decode_context=work.decode_context + len(running))
        tokens = {number: self._say(number, len(steps)) for number, _ in running}
        self._scheduler.apply_span(steps, tokens)
        self._measures.span(tokens, steps, self.now)
        return True

    def _left(self, number: int) -> int:
        """Tokens of its answer that are still to come."""
        return len(self._measures.live[number].job.answer) - self._said[number]

    def _say(self, number: int, count: int) -> tuple[int, ...]:
        said = self._said[number]
        self._said[number] = said + count
        return self._measures.live[number].job.answer[said : said + count]

    def _next_token(self, number: int) -> int:
        return self._measures.live[number].job.answer[self._said[number]]

    def _end(self, ended: tuple[End, ...]) -> None:
        for end in ended:
            del self._said[end.id]
            self._over(end.id, end.code)

    def _over(self, number: int, code: str | None) -> None:
        job = self._measures.end(number, self.now, code)
        self._load.ended(job, self.now if code is None else self.now + RETRY_AFTER_S)
