"""Where a HalogenModel is on its way: there, under way, held back, or stopped; and since when nothing has moved.

Pure. Owns the progress deadline, which is measured from the last thing that moved, not from the edit: a large model
may take an hour to load, as long as it loads. The moment is kept in the status itself, so that an operator that was
started again goes on from there. Must never know conditions.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halogen_operator.conditions import moment, stamp
from halogen_operator.engine_view import ReceiptView
from halogen_operator.observed import Observed
from halogen_operator.pods import PodState, Trouble
from halogen_operator.reasons import Why
from halogen_operator.rollout import most_unavailable
from halogen_operator.wanted import Refusal, Wanted

Mark = tuple[int, ...]
_HELD = "HRT-1018"


class Phase(enum.StrEnum):
    """`STOPPED` waits for people, `STUCK` for anything to move."""

    DONE = "done"
    UNDER_WAY = "under_way"
    PLANNED = "planned"
    STOPPED = "stopped"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation has come at the most (`mark`), and since when (`at`) it has come no further."""

    generation: int
    at: dt.datetime
    mark: Mark

    def view(self) -> dict[str, Any]:
        return {"generation": self.generation, "at": stamp(self.at), "mark": ".".join(map(str, self.mark))}


@dataclass(frozen=True, slots=True)
class Course:
    """`why` and `message` say what is the matter. `is_serving`: enough pods answer requests by what is wanted, and
    none that takes traffic answers by anything else."""

    phase: Phase
    why: Why
    message: str
    is_serving: bool = False
    progress: Progress | None = None


def course(of: Wanted | Refusal, seen: Observed, previous: Mapping[str, Any], now: dt.datetime) -> Course:
    """`previous` is the status before, for its `progress`."""
    if isinstance(of, Refusal):
        return Course(Phase.STOPPED, Why.REJECTED, "; ".join(of.problems))
    if seen.rollout.rejected is not None:
        return _refused(seen.rollout.rejected)
    is_serving = _is_serving(of, seen)
    if _is_done(of, seen):
        if of.spec.replicas == 0:
            return Course(Phase.DONE, Why.SCALED_TO_ZERO, "no pod is asked for", is_serving=True)
        return Course(Phase.DONE, Why.SERVING, f"{_serving(of, seen)} by revision {of.revision[:12]}", is_serving=True)
    if of.is_plan_only:
        return _planned(seen, is_serving=is_serving)
    return _under_way(of, seen, previous, now, is_serving=is_serving)


def _is_done(wanted: Wanted, seen: Observed) -> bool:
    is_whole = len(seen.there) == wanted.spec.replicas and all(seen.serves(each) for each in seen.there)
    return is_whole and not seen.is_behind


def _is_serving(wanted: Wanted, seen: Observed) -> bool:
    count = sum(seen.serves(each) for each in seen.there)
    least = max(1, wanted.spec.replicas - most_unavailable(wanted))
    return (
        not seen.is_behind
        and wanted.spec.replicas > 0
        and count >= least
        and all(seen.serves(each) for each in seen.ready)
    )


def _serving(wanted: Wanted, seen: Observed) -> str:
    count = sum(seen.serves(each) for each in seen.there)
    return f"{count} of {wanted.spec.replicas} pods serve"


def _refused(state: PodState) -> Course:
    receipt = None if state.engine is None else state.engine.receipt
    if receipt is None:
        return Course(Phase.STOPPED, Why.REJECTED, state.name)
    return Course(Phase.STOPPED, _why(receipt), f"{receipt.why} ({state.name}, receipt {receipt.id})")


def _why(receipt: ReceiptView) -> Why:
    if receipt.outcome == "rejected":
        return Why.CHANGES_HELD if any(f": {_HELD}: " in each for each in receipt.problems) else Why.REJECTED
    return Why.ROLLED_BACK if receipt.outcome == "rolled_back" else Why.LOAD_FAILED


def _planned(seen: Observed, *, is_serving: bool) -> Course:
    plan = seen.plan or {}
    if plan.get("outcome") == "rejected":
        return Course(Phase.STOPPED, Why.REJECTED, "; ".join(plan.get("problems") or ()), is_serving)
    return Course(Phase.PLANNED, Why.PLAN_ONLY, "nothing is applied; status.plan says what would be", is_serving)


# --- on the way ---------------------------------------------------------------------------------------


def _under_way(
    wanted: Wanted, seen: Observed, previous: Mapping[str, Any], now: dt.datetime, *, is_serving: bool
) -> Course:
    progress = _progress(wanted.generation, _mark(wanted, seen), previous.get("progress") or {}, now)
    trouble = _trouble(seen)
    last = "the API server to take what it refuses" if seen.is_behind else "pods to be ready"
    waits_for = seen.waits_for or seen.rollout.waits_for or last
    words = [_serving(wanted, seen), f"waiting for {waits_for}"]
    if trouble is not None and (trouble.message.partition(": ")[2] or trouble.message) not in waits_for:
        words.append(str(trouble))
    limit_s = _limit_s(wanted)
    if (now - progress.at).total_seconds() < limit_s:
        return Course(Phase.UNDER_WAY, Why.PROGRESSING, "; ".join(words), is_serving, progress)
    message = "; ".join([f"nothing moved for {limit_s} s", *words])
    return Course(Phase.STUCK, Why.DEADLINE if trouble is None else trouble.why, message, is_serving, progress)


def _limit_s(wanted: Wanted) -> int:
    """A probation is waited for, and nothing moves in it."""
    probation = wanted.spec.probation
    return wanted.spec.update.progress_deadline_s + (0 if probation is None else math.ceil(probation.s))


def _progress(generation: int, mark: Mark, before: Mapping[str, Any], now: dt.datetime) -> Progress:
    """The one before goes on unless it has come further than ever: a pod that starts again and again comes no
    further."""
    at, best = moment(str(before.get("at"))), _read_mark(before.get("mark"))
    if at is None or best is None or at > now or before.get("generation") != generation or mark > best:
        return Progress(generation, now, mark)
    return Progress(generation, at, best)


def _mark(wanted: Wanted, seen: Observed) -> Mark:
    """Counted are pods that stay: those that serve; those of them whose daemon serves; that were handed this
    generation; that answer; all; and the percent that they have loaded."""
    stay = [each for each in seen.there if seen.is_current(each)]
    engines = [each.engine for each in stay if each.engine is not None]
    receipts = [each.receipt for each in engines if each.receipt is not None]
    return (
        sum(seen.serves(each) for each in stay),
        sum(each.name in seen.rollout.serving for each in stay),
        sum(each.generation == wanted.generation for each in receipts),
        len(engines),
        len(stay),
        sum(model.percent for each in engines for model in each.models),
    )


def _read_mark(text: Any) -> Mark | None:
    numbers = str(text).split(".")
    return tuple(map(int, numbers)) if all(each.isascii() and each.isdecimal() for each in numbers) else None


def _trouble(seen: Observed) -> Trouble | None:
    """What keeps it from going on, the worst first."""
    of_pods = [(each.name, each.pod.trouble) for each in seen.there]
    for name, trouble in of_pods:
        if trouble is not None:
            return Trouble(trouble.why, f"{name}: {trouble.message}")
    if seen.no_pods is not None:
        return Trouble(Why.PODS_NOT_MADE, seen.no_pods)
    if (blocking := next((each for each in seen.troubles if each.why is Why.CHILD_REFUSED), None)) is not None:
        return blocking
    for each in seen.there:
        failed = [model for model in (each.engine.models if each.engine else ()) if model.state == "failed"]
        if failed:
            return Trouble(Why.ENGINE_FAILED, f"{each.name}: {failed[0].trouble or 'it does not serve'}")
    silent = next((each for each in seen.there if each.engine is None and each.pod.ip is not None), None)
    return None if silent is None else Trouble(Why.UNREACHABLE, f"{silent.name}: {silent.error}")
