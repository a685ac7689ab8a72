"""Real scheduler, real runner and real sampler, a step at a time, without a process around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.sampling_reference import make_sampling

from halogend.engine.execute import Executor
from halogend.engine.interface import Loaded
from halogend.sched.blocks import BlockPool
from halogend.sched.limits import SchedLimits
from halogend.sched.request import ANYBODY, Caller, End, Request
from halogend.sched.scheduler import Scheduler
from halogend.wire.requests import Sampling

GREEDY = make_sampling(temperature=0)


class Served:
    """`tokens`, `ended` and `reused` by request id; `copies` counts blocks that were copied. `blocks` is the
    pool's limit, block 0 included. Each step is a second of the scheduler's time. Audits after every step."""

    def __init__(self, engine: Loaded, *, blocks: int | None = None, **limits: Any) -> None:
        values: dict[str, Any] = {
            "max_batch": 32,
            "max_queue": 256,
            "queue_timeout_s": 0,
            "request_timeout_s": 0,
            "prefill_chunk_tokens": 0,
            "step_tokens": 256,
            "max_gap_s": 0,
        }
        self.limits = SchedLimits(**(values | limits))
        self.pool = BlockPool(engine.reserve_blocks, blocks or engine.block_count)
        self.scheduler = Scheduler(self.limits, self.pool, engine.layout)
        self.tokens: dict[int, list[int]] = {}
        self.ended: dict[int, End] = {}
        self.reused: dict[int, int] = {}
        self.copies = 0
        self.steps = 0
        self._engine = engine
        self._executor = Executor(engine.runner, self.limits.max_batch, engine.chooser)

    def add(
        self,
        id_: int,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        caller: Caller = ANYBODY,
        sampling: Sampling = GREEDY,
        stop_ids: Sequence[int] = (),
    ) -> None:
        request = Request(id_, tuple(prompt), max_tokens, frozenset(stop_ids), caller)
        assert self.scheduler.add(request, float(self.steps)) is None
        self._executor.begin(id_, sampling, prompt)
        self.tokens[id_] = []

    def abort(self, id_: int) -> None:
        self.scheduler.abort(id_)
        self._executor.forget(id_)
        self.scheduler.audit()

    def step(self) -> bool:
        """Whether there was anything to compute. The next step is planned before this one is known, if the engine
        can."""
        plan = self.scheduler.schedule(float(self.steps))
        if plan is not None:
            self.copies += len(plan.copies)
            self.steps += 1
            self._executor.submit(plan)
        elif not self._executor.in_flight:
            assert not self.scheduler.has_requests
            return False
        if plan is None or self._executor.in_flight > self._engine.steps_ahead:
            self._collect()
        return True

    def _collect(self) -> None:
        events = self.scheduler.apply(self._executor.collect())
        for id_, token in events.sampled:
            self.tokens[id_].append(token)
        for end in events.ended:
            self.ended[end.id] = end
            self._executor.forget(end.id)
        self.reused.update(events.reused)
        self.scheduler.audit()

    def run(self, steps: int = 100_000) -> None:
        """Until nothing is left to do, or so many steps."""
        for _ in range(steps):
            if not self.step():
                return

    def resize(self, blocks: int) -> int:
        """How many blocks moved."""
        while self._executor.in_flight:
            self._collect()
        resized = self.scheduler.resize(blocks)
        assert resized.ended == ()
        self._engine.runner.resize_pool(blocks, resized.moves)
        self.scheduler.audit()
        return len(resized.moves)
