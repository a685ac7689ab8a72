"""Requests as they come: what nobody could compute is refused at once, the rest is the scheduler's.

Owns no request. Must never know when a step is due.
"""

from __future__ import annotations

from dataclasses import dataclass

from halogend.engine.execute import ENGINE_ERROR, Executor
from halogend.engine.limits import sched_caller
from halogend.engine.live import LiveLimits
from halogend.engine.outbox import Outbox
from halogend.sched.request import Request
from halogend.sched.scheduler import Scheduler
from halogend.wire.requests import Generate


@dataclass(frozen=True, slots=True)
class Intake:
    """What it is given is the loop's. Tokens are below `vocab`."""

    scheduler: Scheduler
    executor: Executor
    live: LiveLimits
    outbox: Outbox
    vocab: int

    def take(self, message: Generate, now: float) -> None:
        """A request waits from now on, or its refusal is told with the next frame."""
        if not 0 <= min(message.prompt_ids, default=0) <= max(message.prompt_ids, default=0) < self.vocab:
            self.outbox.refuse(message.id, "bad_token", f"token ids must be below {self.vocab}")
            return
        try:
            caller = sched_caller(message.caller, self.live.current.policy)
            stop_ids = frozenset(message.stop_ids)
            request = Request(message.id, message.prompt_ids, message.max_tokens, stop_ids, caller)
        except ValueError as error:
            self.outbox.refuse(message.id, ENGINE_ERROR, str(error))
            return
        refusal = self.live.refusal_ahead(request) or self.scheduler.add(request, now)
        if refusal is not None:
            self.outbox.refuse(message.id, refusal.code, refusal.message)
            return
        self.executor.begin(message.id, message.sampling, message.prompt_ids)
