"""A step carried out: one forward pass and a token for each row that wants one.

Owns the slots and how each request samples. Keeps a failure to the request that caused it, as long
as that can be told. Must never know the queue, the pool or the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import structlog
import torch

from halogend.engine.interface import Runner
from halogend.engine.sampler import NumericError, Row, Sampler, SamplingState
from halogend.sched.errors import InvariantError
from halogend.sched.step import StepItem, StepPlan, StepResult
from halogend.wire.messages import Sampling

NUMERIC_ERROR = "numeric_error"
ENGINE_ERROR = "engine_error"
_MAX_FAILURES_IN_A_ROW = 3

log = structlog.get_logger(__name__)


class EngineBrokenError(Exception):
    """Forward passes fail whatever they hold: only a new process helps."""


class Executor:
    """Carries out plans in the order they are given. One thread."""

    def __init__(self, runner: Runner, slots: int) -> None:
        self._runner = runner
        self._slots = torch.zeros(slots, dtype=torch.int64)
        self._sampler = Sampler(runner.vocab)
        self._states: dict[int, SamplingState] = {}
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
            self._slots = torch.cat([self._slots, torch.zeros(missing, dtype=torch.int64)])

    def run(self, plan: StepPlan) -> StepResult:
        """The whole plan in one pass; if that raises, each item alone, so that the guilty one fails
        by itself. Raises EngineBrokenError when several in a row fail alone, InvariantError for
        our own bugs."""
        if len(plan.items) == 1:
            return self._run_alone(plan)
        try:
            return self._run(plan)
        except InvariantError:
            raise
        except Exception:  # a kernel may raise anything, and one request's fault must not end the others
            log.exception("step_failed", step=plan.number, requests=len(plan.items))
        parts = [self._run_alone(replace(plan, items=(item,), copies=())) for item in plan.items]
        return StepResult(
            number=plan.number,
            sampled=tuple(pair for part in parts for pair in part.sampled),
            failed=tuple(pair for part in parts for pair in part.failed),
        )

    def _run_alone(self, plan: StepPlan) -> StepResult:
        (item,) = plan.items
        try:
            return self._run(plan)
        except InvariantError:
            raise
        except Exception as error:  # as in `run`
            self._failures_in_a_row += 1
            if self._failures_in_a_row >= _MAX_FAILURES_IN_A_ROW:
                raise EngineBrokenError(f"{self._failures_in_a_row} requests in a row failed") from error
            log.exception("request_failed", request=item.id, step=plan.number)
            return StepResult(plan.number, (), ((item.id, ENGINE_ERROR),))

    def _run(self, plan: StepPlan) -> StepResult:
        logits = self._runner.forward(plan, self._slots)
        self._failures_in_a_row = 0
        wanted = [item for item in plan.items if item.samples]
        if tuple(logits.shape) != (len(wanted), self._runner.vocab):
            raise InvariantError(f"{len(wanted)} rows were wanted, the runner gave {tuple(logits.shape)}")
        rows: npt.NDArray[np.float32] = logits.numpy(force=True)
        sampled: list[tuple[int, int]] = []
        failed: list[tuple[int, str]] = []
        for item, row in zip(wanted, rows, strict=True):
            outcome = self._sample(item, row)
            if isinstance(outcome, int):
                self._slots[item.slot] = outcome
                sampled.append((item.id, outcome))
            else:
                failed.append((item.id, outcome))
        return StepResult(plan.number, tuple(sampled), tuple(failed))

    def _sample(self, item: StepItem, row: Row) -> int | str:
        """The token, or the code of what went wrong for this request alone."""
        try:
            return self._sampler.choose(row, self._states[item.id])
        except NumericError as error:
            log.warning("logits_not_finite", request=item.id, position=item.start + item.count, error=str(error))
            return NUMERIC_ERROR
        except Exception:  # odd parameters of one request must not end the others
            log.exception("sampling_failed", request=item.id)
            return ENGINE_ERROR
