"""Steps between their plan and their result, and how long each has taken.

Where one is planned while another is computed, a step's time begins when the one before it has ended:

    ahead 0   plan n | compute n | plan n+1 | compute n+1 |
    ahead 1   plan n | plan n+1  | plan n+2   ...
                     | compute n | compute n+1 |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from halogend.engine.execute import Executor
from halogend.sched.step import StepPlan, StepResult


@dataclass(frozen=True, slots=True)
class Collected:
    """A step that is done, with the seconds that it took from its planning on. Those of `result` are of computing
    alone, and none where a part of the step was repeated: that says nothing about what such a step takes."""

    plan: StepPlan
    result: StepResult
    seconds: float


@dataclass(frozen=True, slots=True)
class _Submitted:
    plan: StepPlan
    planned_s: float
    submitted_s: float


class UnderWay:
    """`ahead` steps may be submitted before the one before them is collected. One writer: the loop."""

    def __init__(self, executor: Executor, ahead: int, clock: Callable[[], float]) -> None:
        self._executor = executor
        self._ahead = ahead
        self._clock = clock
        self._steps: deque[_Submitted] = deque()
        self._collected_s = clock()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def is_full(self) -> bool:
        """The oldest is to be collected before another is planned."""
        return len(self._steps) > self._ahead

    def submit(self, plan: StepPlan, planned_s: float) -> None:
        """Raises what `Executor.submit` raises."""
        submitted_s = self._clock()
        self._executor.submit(plan)
        self._steps.append(_Submitted(plan, planned_s, submitted_s))

    def collect(self) -> Collected:
        """The oldest, of at least one. Raises what `Executor.collect` raises."""
        step = self._steps.popleft()
        result = self._executor.collect()
        before_s, self._collected_s = self._collected_s, self._clock()
        seconds = self._collected_s - max(step.submitted_s, before_s)
        if not result.failed:
            result = replace(result, seconds=seconds)
        return Collected(step.plan, result, self._collected_s - max(step.planned_s, before_s))
