"""What is true of a HalogenModel: its five conditions, from where it is on its way and what was seen.

Pure. Owns which condition has which reason; every pair is in `reasons`. A spec that was refused, and a generation
that is not running, are never Ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from halogen_operator.conditions import FALSE, TRUE, UNKNOWN, Verdict
from halogen_operator.course import Course, Phase
from halogen_operator.engine_view import GOOD
from halogen_operator.observed import Observed
from halogen_operator.pods import PodState, Trouble
from halogen_operator.reasons import Kind, Why
from halogen_operator.rollout import has_text
from halogen_operator.wanted import Refusal, Wanted

_FAULTS = frozenset({Why.REJECTED})


def verdicts(of: Wanted | Refusal, seen: Observed, course: Course, active: str | None) -> tuple[Verdict, ...]:
    """All five, in the order in which people read them. `active` is the revision that is served meanwhile."""
    return (
        _ready(course, active),
        _validated(of, seen, course),
        _reconciling(course),
        _stalled(course),
        _degraded(of, seen, course),
    )


def _ready(course: Course, active: str | None) -> Verdict:
    if course.phase is Phase.DONE:
        return Verdict(Kind.READY, TRUE, course.why, course.message)
    if course.is_serving and course.phase in (Phase.UNDER_WAY, Phase.STUCK, Phase.PLANNED):
        return Verdict(Kind.READY, TRUE, Why.SERVING, course.message)
    meanwhile = f"revision {active} serves on" if active else "nothing serves"
    return Verdict(Kind.READY, FALSE, course.why, f"{meanwhile}; {course.message}")


def _validated(of: Wanted | Refusal, seen: Observed, course: Course) -> Verdict:
    """A pod's word counts: it alone knows files and devices."""
    if course.phase is Phase.STOPPED and course.why in _FAULTS:
        return Verdict(Kind.VALIDATED, FALSE, Why.REJECTED, course.message)
    taken = [] if isinstance(of, Refusal) else [each.name for each in seen.there if _took(of, seen, each)]
    if taken:
        return Verdict(Kind.VALIDATED, TRUE, Why.ACCEPTED, f"{taken[0]} took the document")
    return Verdict(Kind.VALIDATED, UNKNOWN, Why.NOT_JUDGED, "no pod has looked at files and devices yet")


def _took(wanted: Wanted, seen: Observed, state: PodState) -> bool:
    engine = state.engine
    if engine is None:
        return state.name in seen.trusted
    receipt = engine.receipt
    is_judged = receipt is not None and receipt.generation == wanted.generation and receipt.outcome in GOOD
    return is_judged or has_text(wanted, engine)


def _reconciling(course: Course) -> Verdict:
    if course.phase is Phase.UNDER_WAY:
        return Verdict(Kind.RECONCILING, TRUE, Why.PROGRESSING, course.message)
    return Verdict(Kind.RECONCILING, FALSE, course.why, course.message)


def _stalled(course: Course) -> Verdict:
    if course.phase in (Phase.STOPPED, Phase.STUCK):
        return Verdict(Kind.STALLED, TRUE, course.why, course.message)
    if course.phase is Phase.UNDER_WAY:
        return Verdict(Kind.STALLED, FALSE, Why.PROGRESSING, "something moves, or has moved lately")
    return Verdict(Kind.STALLED, FALSE, Why.AS_ASKED, "nothing waits for anybody")


def _degraded(of: Wanted | Refusal, seen: Observed, course: Course) -> Verdict:
    found = list(_degradations(of, seen, course))
    if not found:
        return Verdict(Kind.DEGRADED, FALSE, Why.AS_ASKED, "nothing that serves is less than it should be")
    return Verdict(Kind.DEGRADED, TRUE, found[0].why, "; ".join(each.message for each in found))


def _degradations(of: Wanted | Refusal, seen: Observed, course: Course) -> Iterator[Trouble]:
    yield from seen.troubles
    for each in seen.there:
        if each.engine is None:
            if each.pod.is_ready:
                yield Trouble(Why.UNREACHABLE, f"{each.name}: {each.error}")
            continue
        for model in each.engine.models:
            if model.degraded:
                yield Trouble(Why.ENGINE_DEGRADED, f"{each.name}: {model.degraded}")
        if each.engine.hold is not None:
            yield Trouble(Why.CHANGES_HELD, f"{each.name}: changes are held {each.engine.hold}")
    if isinstance(of, Wanted) and course.phase is Phase.STUCK and course.is_serving:
        count = sum(seen.serves(each) for each in seen.there)
        if count < of.spec.replicas:
            yield Trouble(Why.TOO_FEW_PODS, f"{count} of {of.spec.replicas} pods serve")
