"""Workers: take whose turn it is, look, and say when to look again.

Owns what becomes of a look that fails. One that fails, for whatever reason, keeps no other model waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from halogen_operator.kube import ConflictError, KubeError
from halogen_operator.queue import Queue
from halogen_operator.reconcile import Look, World, reconcile
from halogen_operator.resources import HALOGEN_MODEL

_LOG = structlog.get_logger()
_SLOWER: Final = 1.25
_SLOWEST: Final = 5.0  # times `follow_s`
_SPREAD: Final = 0.2  # of `look_again_s`, to either side
_PAUSED_S: Final = 1.0


@dataclass
class Pace:
    """When to look again if no event comes before. One writer: the workers.

    What pods are at during a change is followed, slower and slower while nothing moves; what is settled is looked at
    again after a while, spread out so that five hundred models do not come at once. `chance` returns [0, 1).
    """

    follow_s: float
    look_again_s: float
    chance: Callable[[], float]
    _still: dict[str, float] = field(default_factory=dict)

    def after_s(self, uid: str, look: Look) -> float:
        """Seconds."""
        if look.is_settled and not look.has_changed:
            self.forget(uid)
            return self.look_again_s * (1.0 - _SPREAD + 2.0 * _SPREAD * self.chance())
        factor = 1.0 if look.has_changed else min(_SLOWEST, self._still.get(uid, 1.0) * _SLOWER)
        self._still[uid] = factor
        return self.follow_s * factor

    def forget(self, uid: str) -> None:
        """Gone, or settled."""
        self._still.pop(uid, None)


async def work(queue: Queue, world: World, gate: asyncio.Event, pace: Pace) -> None:
    """One worker, until the queue is closed. Looks at nothing while the gate is closed."""
    while True:
        await gate.wait()
        uid = await queue.take()
        if uid is None:
            return
        if gate.is_set():
            await _look(uid, queue, world, pace)
        else:
            queue.done(uid, _PAUSED_S)


async def _look(uid: str, queue: Queue, world: World, pace: Pace) -> None:
    began, outcome = time.monotonic(), "error"
    try:
        look = await reconcile(uid, world)
        outcome = "ok"
        if look is None:
            _forget(uid, world)
        _put_back(uid, look, queue, pace)
    except ConflictError as error:
        outcome = "conflict"
        after_s = queue.failed(uid)
        _LOG.debug("looking_again", uid=uid, after_s=round(after_s, 1), reason=str(error))
    except KubeError as error:
        after_s = queue.failed(uid, error.retry_after_s)
        _LOG.warning("look_failed", uid=uid, after_s=round(after_s, 1), error=str(error))
    except Exception:  # noqa: BLE001  a fault of ours at one model, logged: the others are looked at all the same
        after_s = queue.failed(uid)
        _LOG.exception("look_broken", uid=uid, after_s=round(after_s, 1))
    finally:
        world.metrics.reconciled(outcome, time.monotonic() - began)


def _forget(uid: str, world: World) -> None:
    ref = world.memory.forget(uid)
    if ref is not None and world.store.find(HALOGEN_MODEL, ref.namespace, ref.name) is None:  # no namesake has come
        world.metrics.forget(ref.namespace, ref.name)


def _put_back(uid: str, look: Look | None, queue: Queue, pace: Pace) -> None:
    if look is None:
        pace.forget(uid)
        queue.forget(uid)
    elif look.is_refused:
        queue.failed(uid)
    else:
        queue.done(uid, pace.after_s(uid, look))
