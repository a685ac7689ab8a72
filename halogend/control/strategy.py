"""Which way each model comes to its new generation, and where: the first that fits, played against the ledger.

    auto       beside the old one: at home, on a spare device, on an idle one; then after the old pool shrank;
               then replica by replica
    overlap    beside the old one, in those places
    shrink     at home, after the old pool gave what is missing
    rolling    at home, device by device: the old replica ends, then the new one is loaded
    replace    at home, after the old one ended

Pure. A model that cannot come any way is a problem of the plan, with the numbers and the levers; what serves is
never given up for another model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from halogend.config.problems import Problem
from halogend.config.schema import Document
from halogend.control.forecast import Forecast, forecast
from halogend.control.ledger import Holding
from halogend.control.plan import Plan, does_not_fit, make_plan, mib
from halogend.control.present import Present, returning
from halogend.control.side_by_side import apart, model_of, together
from halogend.control.target import Landing, Target, Way

_BESIDE = ("auto", "overlap")


@dataclass(frozen=True, slots=True)
class Now:
    """What there is: `goals` is what each model is, or will be when all is done, None for one in trouble; `held`
    the ledger; `present` the generations."""

    goals: Mapping[str, Target | None] = field(default_factory=dict)
    held: Mapping[str, Holding] = field(default_factory=dict)
    present: Mapping[str, Present] = field(default_factory=dict)


def decide(
    now: Now, wanted: Mapping[str, Target], documents: tuple[Document | None, Document]
) -> tuple[Plan, Forecast]:
    """`wanted` are targets at home. The plan's are where each will be."""
    settled = {name: _stays(now.goals.get(name), target) or _back(now, target) for name, target in wanted.items()}
    open_ways = {
        name: list(_ways(now, wanted[name], documents[1])) for name, target in settled.items() if target is None
    }
    first = {name: target or open_ways[name][0] for name, target in settled.items()}
    chosen, bytes_ = dict(first), _played(now, first, documents[1])
    while bytes_.misfits:
        moved = [name for name in _models(bytes_) if _next(now, name, chosen, open_ways)]
        if not moved:
            return _refused(now, first, documents, wanted)
        bytes_ = _played(now, chosen, documents[1])
    return _plan(now, chosen, documents), together(bytes_)


def _stays(old: Target | None, new: Target) -> Target | None:
    """A generation that does for the new document stays where it is; None where another is needed."""
    if old is None:
        return None
    there = new.at(old.device)
    return there.by(old.way) if old.same_generation(there) else None


def _back(now: Now, new: Target) -> Target | None:
    """Where an old generation drains that may serve again; None where there is none."""
    found = now.present.get(new.name, Present()).all_returnable
    places = [new.at(each.target.device) for each in reversed(found)]
    return next((each for each in places if returning(found, each) is not None), None)


def _serving(now: Now, name: str) -> int:
    """Replicas of the model that serve."""
    return sum(each.serving is not None for each in now.present.get(name, Present()).parts)


def _shrinks(now: Now, target: Target) -> bool:
    """Can an old pool give room? One of several has no newcomer in its place."""
    return _serving(now, target.name) == 1 and target.config.exec_mode == "single"


def _rolls(now: Now, target: Target, document: Document) -> bool:
    """Can it go replica by replica? With one that gives way nothing would serve; and what gave way can neither
    stand by for a probation nor wait for a moment at which all switch."""
    is_apart = target.config.probation or document.reload.atomic
    return _serving(now, target.name) > 1 and target.config.exec_mode != "single" and not is_apart


def _ways(now: Now, target: Target, document: Document) -> Iterator[Target]:
    """In order of choice; the one that is tried is the first."""
    stated, has_old = target.config.reload.strategy, _serving(now, target.name) > 0
    shrinks, rolls = _shrinks(now, target), _rolls(now, target, document)
    is_impossible = (stated == "rolling" and not rolls) or (stated == "shrink" and not shrinks)
    if stated in _BESIDE or not has_old or is_impossible:
        yield target.by(Way.OVERLAP)
        for each in target.elsewhere:
            if has_old or each.landing is Landing.IDLE:
                yield each.by(Way.OVERLAP)
    if stated in ("auto", "shrink") and shrinks:
        yield target.by(Way.SHRINK)
    if stated in ("auto", "rolling") and rolls:
        yield target.by(Way.ROLLING)
    if has_old and stated == "replace":
        yield target.by(Way.REPLACE)


def _next(now: Now, name: str, chosen: dict[str, Target], open_ways: dict[str, list[Target]]) -> bool:
    """Lets a model try its next way; False where it has none."""
    ways = open_ways.get(name, [])
    while len(ways) > 1:
        ways.pop(0)
        if ways[0].landing is not Landing.IDLE or _is_idle(now, ways[0], chosen):
            chosen[name] = ways[0]
            return True
    return False


def _is_idle(now: Now, target: Target, chosen: Mapping[str, Target]) -> bool:
    """Nothing is on its device and no other model will be."""
    others = [each.device for name, each in chosen.items() if name != target.name]
    return target.device not in {*others, *(each.device for each in now.held.values())}


def _tried(target: Target, now: Now, document: Document) -> list[str]:
    """The ways that were looked at beside the first, in words."""
    first, *others = _ways(now, target, document)
    places = [each.device for each in others if each.way is Way.OVERLAP]
    tried = [f"on {', '.join(places)}"] if places else []
    if Way.SHRINK in {each.way for each in (first, *others)}:
        there = now.present[target.name].active
        least = mib(target.floor_bytes if there is None else there.floor_bytes)
        tried.append(f"after the old pool shrank to one full request ({least})")
    if Way.ROLLING in {each.way for each in others}:
        tried.append("device by device, after the old replica there ended")
    return tried


def _levers(now: Now, target: Target) -> str:
    """What would make room."""
    lower = f"lower kv_cache_ratio or max_model_len, or remove a model from {target.device}"
    if not _serving(now, target.name):
        return f"{lower}, or take another device"
    stated = target.config.reload.strategy
    between = "rolling or " if target.config.exec_mode != "single" else "shrink or " if _shrinks(now, target) else ""
    ways = {"overlap": f"{between}replace", "replace": ""}
    others = ways.get(stated, "replace")
    has_spare = any(each.landing is Landing.SPARE for each in target.elsewhere)
    may_land = target.config.exec_mode == "single" and not has_spare
    spare = ", or keep a device spare" if may_land else ""
    return f"{lower}{spare}" + (f", or set reload.strategy: {others}" if others else "")


def _refused(
    now: Now, first: Mapping[str, Target], documents: tuple[Document | None, Document], wanted: Mapping[str, Target]
) -> tuple[Plan, Forecast]:
    """The bytes show what the first way would have taken."""
    bytes_ = _played(now, first, documents[1])
    problems: tuple[Problem, ...] = tuple(
        does_not_fit(side, taken, *_advice(now, wanted[model_of(key)], documents[1]))
        for key, (side, taken) in bytes_.misfits.items()
    )
    return replace(_plan(now, first, documents), problems=problems), together(bytes_)


def _advice(now: Now, wanted: Target, document: Document) -> tuple[list[str], str]:
    """What was tried, and what would make room."""
    return _tried(wanted, now, document), _levers(now, wanted)


def _played(now: Now, chosen: Mapping[str, Target], document: Document) -> Forecast:
    """With every replica by itself."""
    parts = apart(now.present, chosen)
    return forecast(now.held, parts.present, parts.wanted, together=document.reload.atomic)


def _models(bytes_: Forecast) -> list[str]:
    """Those that do not fit."""
    return list(dict.fromkeys(model_of(key) for key in bytes_.misfits))


def _plan(now: Now, chosen: Mapping[str, Target], documents: tuple[Document | None, Document]) -> Plan:
    returnable = {name: each.all_returnable for name, each in now.present.items()}
    leaving = {name: [back.target for back in each.leaving] for name, each in now.present.items()}
    return make_plan(now.goals, chosen, documents, returnable, leaving)
