"""Steps carried out: one forward pass and a token for each row that wants one.

Owns the slots and how each request samples. Keeps a failure to the request that caused it, as long
as that can be told. Must never know the queue, the pool or the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import structlog
import torch
from torch import Tensor

from halogend.engine.interface import Chooser, Chosen, Runner, Want
from halogend.engine.sampler import NumericError, Row, Sampler, SamplingState
from halogend.sched.errors import InvariantError
from halogend.sched.step import StepItem, StepPlan, StepResult
from halogend.wire.requests import Sampling

NUMERIC_ERROR = "numeric_error"
ENGINE_ERROR = "engine_error"
_MAX_FAILURES_IN_A_ROW = 3
_T = TypeVar("_T")

log = structlog.get_logger(__name__)


class EngineBrokenError(Exception):
    """Forward passes fail whatever they hold: only a new process helps."""


@dataclass(slots=True)
class _Step:
    """One that was submitted. Rows `chosen` for are on their way from the device; `logits` has a row for each of
    `by_host`, whose tokens nobody knows yet. `result` is there once all of them are known."""

    plan: StepPlan
    wanted: Sequence[StepItem] = ()
    states: Sequence[SamplingState] = ()
    by_host: Sequence[int] = ()
    logits: Tensor | None = None
    chosen: Chosen | None = None
    result: StepResult | None = None


class Executor:
    """Carries out plans in the order they are given. One thread.

    With a `chooser` tokens are chosen where the logits are, and a step is under way before the one before it
    is asked for; those of requests with penalties are chosen here, and the next step waits for them.

        submit   n        n+1           n+2
        device   | step n      | step n+1      |
        collect                n             n+1
    """

    def __init__(self, runner: Runner, slots: int, chooser: Chooser | None = None) -> None:
        self._runner = runner
        self._chooser = chooser
        device = torch.device("cpu") if chooser is None else chooser.device
        self._slots = torch.zeros(slots, dtype=torch.int64, device=device)
        self._sampler = Sampler(runner.vocab)
        self._states: dict[int, SamplingState] = {}
        self._steps: deque[_Step] = deque()
        self._failures_in_a_row = 0

    def begin(self, request_id: int, sampling: Sampling, prompt: Sequence[int]) -> None:
        """Before a request's first step."""
        self._states[request_id] = SamplingState(sampling, prompt)

    def forget(self, request_id: int) -> None:
        """After a request's last step; unknown ids are ignored."""
        self._states.pop(request_id, None)

    def grow_slots(self, slots: int) -> None:
        """At least this many slots from now on."""
        missing = slots - len(self._slots)
        if missing > 0:
            self._slots = torch.cat([self._slots, self._slots.new_zeros(missing)])

    @property
    def in_flight(self) -> int:
        """Steps that were submitted and not collected."""
        return len(self._steps)

    def run(self, plan: StepPlan) -> StepResult:
        """Submitted and collected; no other step is in flight."""
        self.submit(plan)
        return self.collect()

    def submit(self, plan: StepPlan) -> None:
        """The whole plan in one pass; if that raises, each item alone, so that the guilty one fails
        by itself. Raises EngineBrokenError when several in a row fail alone, InvariantError for
        our own bugs."""
        for step in self._steps:
            if step.by_host:  # their tokens are read by this one
                self._finish(step)
        self._steps.append(self._begin(plan))

    def collect(self) -> StepResult:
        """Of the oldest step in flight. Raises EngineBrokenError when the device has failed."""
        return self._finish(self._steps.popleft())

    def _begin(self, plan: StepPlan) -> _Step:
        if len(plan.items) == 1:
            return self._begin_alone(plan)
        try:
            return self._launch(plan)
        except InvariantError:
            raise
        except Exception:  # a kernel may raise anything, and one request's fault must not end the others
            log.exception("step_failed", step=plan.number, requests=len(plan.items))
        alone = [replace(plan, items=(item,), copies=()) for item in plan.items]
        parts = [self._finish(self._begin_alone(each)) for each in alone]
        result = StepResult(
            number=plan.number,
            sampled=tuple(pair for part in parts for pair in part.sampled),
            failed=tuple(pair for part in parts for pair in part.failed),
        )
        return _Step(plan, result=result)

    def _begin_alone(self, plan: StepPlan) -> _Step:
        (item,) = plan.items
        try:
            return self._launch(plan)
        except InvariantError:
            raise
        except Exception as error:  # as in `_begin`
            self._failures_in_a_row += 1
            if self._failures_in_a_row >= _MAX_FAILURES_IN_A_ROW:
                raise EngineBrokenError(f"{self._failures_in_a_row} requests in a row failed") from error
            log.exception("request_failed", request=item.id, step=plan.number)
            return _Step(plan, result=StepResult(plan.number, (), ((item.id, ENGINE_ERROR),)))

    def _launch(self, plan: StepPlan) -> _Step:
        logits = self._runner.forward(plan, self._slots)
        self._failures_in_a_row = 0
        wanted = [item for item in plan.items if item.samples]
        if tuple(logits.shape) != (len(wanted), self._runner.vocab):
            raise InvariantError(f"{len(wanted)} rows were wanted, the runner gave {tuple(logits.shape)}")
        states = [self._states[item.id] for item in wanted]
        if self._chooser is None:
            return _Step(plan, wanted, states, range(len(wanted)), logits)
        by_host = [row for row, state in enumerate(states) if state.penalised]
        wants = [
            Want(row, item.slot, state.sampling, item.start + item.count)
            for row, (item, state) in enumerate(zip(wanted, states, strict=True))
            if not state.penalised
        ]
        chosen = self._chooser.choose(logits, wants, self._slots) if wants else None
        return _Step(plan, wanted, states, by_host, logits[by_host] if by_host else None, chosen)

    def _finish(self, step: _Step) -> StepResult:
        if step.result is None:
            step.result = self._choose(step)
            step.by_host, step.logits, step.chosen = (), None, None
        return step.result

    def _choose(self, step: _Step) -> StepResult:
        outcomes: dict[int, int | str] = {}
        if step.chosen is not None:
            outcomes.update(self._await(step, step.chosen))
        if step.logits is not None:
            rows = _arrived(step, partial(_on_host, step.logits))
            for row, logits in zip(step.by_host, rows, strict=True):
                item = step.wanted[row]
                outcomes[row] = outcome = self._sample(item, step.states[row], logits)
                if isinstance(outcome, int):
                    self._slots[item.slot] = outcome
        told = [(item.id, outcomes[row]) for row, item in enumerate(step.wanted)]
        return StepResult(
            step.plan.number,
            tuple((id_, outcome) for id_, outcome in told if isinstance(outcome, int)),
            tuple((id_, outcome) for id_, outcome in told if isinstance(outcome, str)),
        )

    def _await(self, step: _Step, chosen: Chosen) -> list[tuple[int, int | str]]:
        """What the device has chosen, by row."""
        tokens = _arrived(step, chosen.wait)
        rows = (row for row, state in enumerate(step.states) if not state.penalised)
        outcomes: list[tuple[int, int | str]] = []
        for row, token in zip(rows, tokens, strict=True):
            if token < 0:
                item = step.wanted[row]
                log.warning("logits_not_finite", request=item.id, position=item.start + item.count)
            outcomes.append((row, token if token >= 0 else NUMERIC_ERROR))
        return outcomes

    def _sample(self, item: StepItem, state: SamplingState, row: Row) -> int | str:
        """The token, or the code of what went wrong for this request alone."""
        try:
            return self._sampler.choose(row, state)
        except NumericError as error:
            log.warning("logits_not_finite", request=item.id, position=item.start + item.count, error=str(error))
            return NUMERIC_ERROR
        except Exception:  # odd parameters of one request must not end the others
            log.exception("sampling_failed", request=item.id)
            return ENGINE_ERROR


def _arrived(step: _Step, wait: Callable[[], _T]) -> _T:
    """What the device gives. What a kernel has done wrong is told by whoever waits next: here."""
    try:
        return wait()
    except RuntimeError as error:
        raise EngineBrokenError(f"the device failed in step {step.plan.number}") from error


def _on_host(logits: Tensor) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = logits.numpy(force=True)
    return values
