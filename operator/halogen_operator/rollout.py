"""Which pods are handed the document now, and how far it has come.

Pure. One after another: of the pods that answer requests no more than `update.maxUnavailable` are in a change at a
time; pods that answer none are in nobody's way. What one pod refused is handed to no other that has something to
lose. Must never know how a document is handed over, nor what is told of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from halogen_operator.document import respelt
from halogen_operator.engine_view import EngineView, ReceiptView
from halogen_operator.pods import PodState
from halogen_operator.wanted import Wanted

MOST_ATTEMPTS = 3
"""For a pod whose daemon ended during the change: by then it is the change that ends it."""


class Standing(enum.StrEnum):
    """How a pod stands to the document."""

    SERVES = "serves"  # answers requests by it
    CHANGES = "changes"  # has it, and is on its way there
    WANTS = "wants"  # has another, or none
    REFUSED = "refused"  # has refused it, or failed at it: it is not handed in again
    UNKNOWN = "unknown"  # its daemon does not answer
    UNFIT = "unfit"  # is of an old template, or has too few devices: it will be replaced


@dataclass(frozen=True, slots=True)
class Rollout:
    """Names of pods: `push` are to be handed the document now, `serving` answer requests by it. `rejected`: the first
    that refused it or failed at it. `is_done`: as many pods as are asked for are there, and serve it. `waits_for`:
    what it waits for, for people; empty when done."""

    push: tuple[str, ...] = ()
    serving: tuple[str, ...] = ()
    rejected: PodState | None = None
    is_done: bool = False
    waits_for: str = ""


def decide(wanted: Wanted, states: Sequence[PodState], template: str = "") -> Rollout:
    """From what every pod of the HalogenModel looks like now. `template` is the digest of the template that pods are
    made from; one with another lacks what the document may name, and is about to be replaced. With the plan-only
    annotation nothing is handed in."""
    there = sorted((each for each in states if each.is_there), key=lambda each: each.name)
    standings = {each.name: standing(wanted, each, template) for each in there}
    serving = tuple(each.name for each in there if standings[each.name] is Standing.SERVES)
    rejected = next((each for each in there if standings[each.name] is Standing.REFUSED), None)
    push = () if wanted.is_plan_only else _push(wanted, there, standings)
    is_current = all(template in ("", each.pod.template) for each in there)
    is_done = is_current and len(serving) == len(there) == wanted.spec.replicas
    waits_for = "" if is_done else _waits_for(wanted, there, standings, push)
    return Rollout(push, serving, rejected, is_done, waits_for)


def standing(wanted: Wanted, state: PodState, template: str = "") -> Standing:
    """What a pod told last, against the document that is wanted."""
    engine, is_old = state.engine, template not in ("", state.pod.template)
    has_it = engine is not None and has_text(wanted, engine)
    if engine is not None and has_it and (not is_old or engine.is_serving):
        return _with_text(engine)
    if is_old or state.pod.devices < wanted.devices:
        return Standing.UNFIT
    if engine is None:
        return Standing.UNKNOWN
    receipt = _answer(wanted, engine)
    if receipt is None or (receipt.is_interrupted and _attempts(wanted, engine) < MOST_ATTEMPTS):
        return Standing.WANTS
    return Standing.REFUSED if receipt.is_refused else Standing.CHANGES


def has_text(wanted: Wanted, engine: EngineView) -> bool:
    """Is what is asked of the daemon now what is wanted? Where its release spells a document otherwise than ours, and
    in a way that is not to be read here, its own record says whether it is what we handed in."""
    if engine.document is not None and wanted.document in (engine.document, respelt(engine.document)):
        return True
    receipt = engine.receipt
    is_ours = receipt is not None and receipt.generation == wanted.generation and receipt.revision is not None
    if receipt is None or not is_ours or receipt.outcome in ("rejected", "superseded"):
        return False
    return receipt.revision == engine.desired


def most_unavailable(wanted: Wanted) -> int:
    """How many pods that answer requests may be in a change at a time: `update.maxUnavailable`, a share rounded down;
    one at the least."""
    limit = str(wanted.spec.update.max_unavailable)
    share = int(limit.removesuffix("%"))
    return max(1, wanted.spec.replicas * share // 100 if limit.endswith("%") else share)


def _with_text(engine: EngineView) -> Standing:
    """It has the text: does it serve it, is it on its way, or did that fail?"""
    if engine.is_serving:
        return Standing.SERVES
    receipt = engine.receipt
    is_about_it = receipt is not None and receipt.revision == engine.desired and not receipt.is_interrupted
    is_loading = any(each.is_loading for each in engine.models)
    failed = receipt is not None and is_about_it and receipt.is_refused and not is_loading
    return Standing.REFUSED if failed else Standing.CHANGES


def _answer(wanted: Wanted, engine: EngineView) -> ReceiptView | None:
    """What came of handing this generation in, where the daemon has another document all the same. What was taken
    once and is gone (a daemon that started again, a way back that somebody took) is no answer."""
    receipt = engine.receipt
    if receipt is None or receipt.generation != wanted.generation:
        return None
    return receipt if receipt.is_open or receipt.is_refused else None


def _attempts(wanted: Wanted, engine: EngineView) -> int:
    return sum(each.is_interrupted and each.generation == wanted.generation for each in engine.receipts)


def _push(wanted: Wanted, there: Sequence[PodState], standings: Mapping[str, Standing]) -> tuple[str, ...]:
    """One that is in a change already, of an older document, takes its place anyway. Where one refused it, or took it
    and its engine failed, no other that has something to lose follows."""
    is_refused = any(_is_bad(each, standings[each.name]) for each in there)
    changing = {each.name for each in there if _is_in_change(each, standings[each.name])}
    left = most_unavailable(wanted) - len(changing)
    found = []
    for each in there:
        if standings[each.name] is not Standing.WANTS:
            continue
        takes_place = _answers(each) and each.name not in changing
        if not _has_to_lose(each):
            found.append(each.name)
        elif not is_refused and (left > 0 or not takes_place):
            found.append(each.name)
            left -= takes_place
    return tuple(found)


def _is_bad(state: PodState, standing: Standing) -> bool:
    has_failed = state.engine is not None and any(each.state == "failed" for each in state.engine.models)
    return standing is Standing.REFUSED or (standing is Standing.CHANGES and has_failed)


def _answers(state: PodState) -> bool:
    """Is it one of those that answer requests, or would but for a change?"""
    return state.pod.is_ready or (state.engine is not None and state.engine.has_served)


def _is_in_change(state: PodState, standing: Standing) -> bool:
    """One that answers requests, and whose daemon does not answer us, may be. One that has done it is until the
    cluster has seen that, for it takes no traffic before, and until it has passed its probation."""
    engine = state.engine
    is_busy = engine is None or engine.is_changing or engine.is_on_probation or not state.pod.is_ready
    return _answers(state) and (standing in (Standing.CHANGES, Standing.UNKNOWN) or is_busy)


def _has_to_lose(state: PodState) -> bool:
    """Does it serve, or is it on its way there, by what it has? One that was just started has an empty document."""
    return state.pod.is_ready or (state.engine is not None and bool(state.engine.models))


def _waits_for(
    wanted: Wanted, there: Sequence[PodState], standings: Mapping[str, Standing], push: tuple[str, ...]
) -> str:
    """The most telling of it."""

    def first(kind: Standing) -> PodState | None:
        return next((each for each in there if standings[each.name] is kind), None)

    if (refused := first(Standing.REFUSED)) is not None:
        return f"another spec: {refused.name} refused this one"
    if (changes := first(Standing.CHANGES)) is not None:
        return _words(changes)
    if push:
        return f"{push[0]} to take the document"
    if (unfit := first(Standing.UNFIT)) is not None:
        return f"{unfit.name} to be replaced"
    if (unknown := first(Standing.UNKNOWN)) is not None:
        return f"the daemon of {unknown.name}: {unknown.error or 'no answer'}"
    if (waiting := first(Standing.WANTS)) is not None:
        tried = next((each.name for each in there if each.engine is not None and each.engine.is_on_probation), None)
        return f"the turn of {waiting.name}" + (f", after the probation of {tried}" if tried else "")
    count = wanted.spec.replicas - len(there)
    return f"pods: {count} to come" if count > 0 else f"pods: {-count} to go"


def _words(state: PodState) -> str:
    """Such as `chat-5d8c to serve: weights, 43 %`."""
    models = state.engine.models if state.engine is not None else ()
    loading = next((each for each in models if each.is_loading), None)
    if loading is not None:
        return f"{state.name} to serve: {loading.stage or 'loading'}, {loading.percent} %"
    trouble = next((each.trouble for each in models if each.trouble), None)
    return f"{state.name} to serve: {trouble}" if trouble else f"{state.name} to serve"
