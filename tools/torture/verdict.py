"""The verdict: lines of PASS and FAIL with their figures. Pure.

Three kinds: `correctness` and `memory` decide the exit status, `timing` does so only when asked: how long
something takes says as much about the machine as about the daemon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torture.evidence import Count, Evidence, Window
from torture.messages import NEAR_TIE_NATS, Asked, End, Judged
from torture.windows import JUDGED, KILL, POLICY, QUIET, Gaps, gaps_of, percentile, steps_of

CORRECTNESS, MEMORY, TIMING = "correctness", "memory", "timing"
MEDIAN_RATIO, P99_RATIO = 1.2, 2.0
RECLAIM_SHARE, RECLAIM_BYTES = 0.02, 16 << 20
PEAK_SHARE = 0.05
GROWTH_BYTES = 32 << 20
SPARE_DESCRIPTORS = 3
FEWEST_GAPS = 200
_ENGINE_DIED = "engine_died"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Line:
    """`ok` None: too little was seen to say."""

    name: str
    kind: str
    ok: bool | None
    text: str
    figures: dict[str, Any]


def verdict(evidence: Evidence) -> list[Line]:
    lost, killed, cut = _sorted_out(evidence)
    return [
        _requests(evidence, lost, killed, cut),
        _cut(cut),
        _answers(evidence),
        _acts(evidence),
        *_goals(evidence),
        _policies(evidence),
        *_flat(evidence.before, evidence.after),
        _reclaims(evidence),
        _peaks(evidence),
        *_gaps(evidence),
    ]


def failed(lines: Iterable[Line], *, strict: bool) -> bool:
    """Does any line that is judged say no? Strict: timing is judged too."""
    return any(line.ok is False and (strict or line.kind != TIMING) for line in lines)


def _sorted_out(evidence: Evidence) -> tuple[list[Asked], list[Asked], list[Asked]]:
    """Requests that failed, those that a killed engine took with it after their first token, and other
    streams that were cut."""
    kills = [each for each in evidence.windows if each.kind == KILL]
    lost = [each for each in evidence.asked if each.end is End.FAILED]
    broken = [each for each in evidence.asked if each.end is End.CUT]
    killed = [each for each in broken if each.code == _ENGINE_DIED and _within(each.ended_at, kills)]
    return lost, killed, [each for each in broken if each not in killed]


def _within(at: float, windows: Iterable[Window]) -> bool:
    return any(each.began_at <= at <= each.ended_at for each in windows)


def _requests(evidence: Evidence, lost: list[Asked], killed: list[Asked], cut: list[Asked]) -> Line:
    sent, moved = len(evidence.asked), sum(each.moved for each in evidence.asked)
    answered = sent - len(lost) - len(killed) - len(cut)
    text = f"{sent} sent, {answered} answered, {len(lost)} failed{_codes(lost)}; apart: {len(killed)} that had tokens"
    text += f" when their engine was killed; {moved} found the other port"
    figures = {"sent": sent, "answered": answered, "failed": len(lost), "killed": len(killed), "moved": moved}
    return Line("requests", CORRECTNESS, not lost and answered > 0, text, figures)


def _cut(cut: list[Asked]) -> Line:
    return Line("streams cut", CORRECTNESS, not cut, f"{len(cut)}{_codes(cut)}", {"cut": len(cut)})


def _codes(asked: list[Asked]) -> str:
    codes = Counter(each.code or "no reason" for each in asked)
    return f" ({', '.join(f'{count} {code}' for code, count in codes.most_common(_SHOWN))})" if codes else ""


def _answers(evidence: Evidence) -> Line:
    """Greedy answers are known: each must be one checkpoint's to the letter, or part from it where two tokens are as
    likely."""
    whole = evidence.whole
    odd = [(each, evidence.judged.get((each.prompt, each.text))) for each in whole if not evidence.is_learned(each)]
    gaps = [judged.gap_nats or 0.0 for _, judged in odd if judged is not None and judged.is_right]
    wrong = [(asked, judged) for asked, judged in odd if judged is None or not judged.is_right]
    text = f"{len(whole) - len(odd)} of {len(whole)} are to the letter what one checkpoint answers at rest, "
    text += f"{len(gaps)} part from it at near-ties{_largest(gaps)}, {len(wrong)} are wrong"
    text += "".join(f"\n    {_why(*each)}" for each in wrong[:_SHOWN])
    figures = {
        "whole": len(whole),
        "equal": len(whole) - len(odd),
        "near_ties": len(gaps),
        "largest_gap_nats": max(gaps, default=None),
        "near_tie_nats": NEAR_TIE_NATS,
        "wrong": [[each.prompt, each.sent_at, each.ended_at, each.text, _why(each, judged)] for each, judged in wrong],
    }
    return Line("answers", CORRECTNESS, not wrong, text, figures)


def _largest(gaps: list[float]) -> str:
    return f" (the largest gap {max(gaps):.4f} of at most {NEAR_TIE_NATS:g} nats)" if gaps else ""


def _why(asked: Asked, judged: Judged | None) -> str:
    """It is wrong."""
    if judged is None:
        return f"prompt {asked.prompt}: no checkpoint answers so at rest"
    gap = "no token that" if judged.gap_nats is None else f"{judged.gap_nats:.3f} nats below the likeliest what"
    return f"prompt {asked.prompt}, after {judged.at_chars} characters: {gap} follows"


def _acts(evidence: Evidence) -> Line:
    done = ", ".join(f"{count} {name}" for name, count in sorted(evidence.acts.items()))
    faults = "".join(f"\n    {fault}" for fault in evidence.faults)
    text = f"{done or 'none'}; {evidence.taken_back} taken back without a load; {len(evidence.faults)} faults{faults}"
    return Line("acts", CORRECTNESS, not evidence.faults, text, {"acts": evidence.acts, "faults": evidence.faults})


def _goals(evidence: Evidence) -> Iterator[Line]:
    for goal in evidence.goals:
        figures = {"made": goal.made, "wanted": goal.wanted}
        yield Line(goal.what, CORRECTNESS, goal.made >= goal.wanted, f"{goal.made} of {goal.wanted}", figures)


def _policies(evidence: Evidence) -> Line:
    outcomes = Counter(str(each["outcome"]) for each in evidence.receipts.values())
    text = f"{evidence.policies} swaps of policy alone, each with its receipt; all receipts: "
    text += ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    pending = outcomes.get("None", 0)
    figures = {"policies": evidence.policies, "outcomes": dict(outcomes)}
    return Line("policy swaps", CORRECTNESS, evidence.policies > 0 and not pending, text, figures)


def _flat(before: Count | None, after: Count | None) -> Iterator[Line]:
    if before is None or after is None:
        yield Line("flat", CORRECTNESS, None, "not counted", {})
        return
    text = f"processes {before.processes} -> {after.processes}, descriptors {before.descriptors}"
    text += f" -> {after.descriptors}"
    ok = before.processes == after.processes and after.descriptors <= before.descriptors + SPARE_DESCRIPTORS
    figures = {"processes": [before.processes, after.processes], "descriptors": [before.descriptors, after.descriptors]}
    yield Line("flat", CORRECTNESS, ok, text, figures)
    grown = after.daemon_bytes - before.daemon_bytes
    text = f"{_mib(before.daemon_bytes)} -> {_mib(after.daemon_bytes)} MiB (at most {_mib(GROWTH_BYTES)} more)"
    yield Line("daemon's memory", MEMORY, grown <= GROWTH_BYTES, text, {"grown_bytes": grown})


def _reclaims(evidence: Evidence) -> Line:
    """Each reclaim: expected and returned within 2 % or 16 MiB."""
    rows = [
        (step["expected_bytes"], step["returned_bytes"])
        for receipt in evidence.receipts.values()
        for model in receipt["models"]
        for step in model["steps"]
        if step["name"] == "reclaim" and step.get("returned_bytes") is not None
    ]
    off = [abs(expected - returned) for expected, returned in rows]
    bad = [each for each, row in zip(off, rows, strict=True) if each > max(RECLAIM_SHARE * row[0], RECLAIM_BYTES)]
    worst = max(range(len(rows)), key=off.__getitem__, default=None)
    text = f"{len(rows) - len(bad)} of {len(rows)} returned what was expected, within 2 % or 16 MiB"
    if worst is not None:
        text += f"; farthest off: {_mib(rows[worst][0])} MiB expected, {_mib(rows[worst][1])} returned"
    figures = {"reclaims": [list(row) for row in rows], "off": len(bad)}
    return Line("reclaims", MEMORY, not bad if rows else None, text, figures)


def _peaks(evidence: Evidence) -> Line:
    """Each change: what its plan said would be held at the most, and what was, within 5 %."""
    peaks = [each for each in evidence.peaks if each.planned_bytes]
    off = [abs(each.measured_bytes / each.planned_bytes - 1) for each in peaks]
    bad = [each for each in off if each > PEAK_SHARE]
    text = f"{len(off) - len(bad)} of {len(off)} plans told the peak within 5 %"
    if peaks:
        worst = peaks[max(range(len(off)), key=off.__getitem__)]
        text += f"; farthest off: {_mib(worst.planned_bytes)} MiB planned, {_mib(worst.measured_bytes)} held"
        text += f" ({worst.change})"
    figures = {"peaks": [[each.change, each.planned_bytes, each.measured_bytes, each.held] for each in peaks]}
    return Line("plan's peak", MEMORY, not bad if off else None, text, figures)


def _gaps(evidence: Evidence) -> Iterator[Line]:
    windows = [*evidence.windows, *steps_of(evidence.receipts.values())]
    gaps = gaps_of(evidence.asked, windows, evidence.servings)
    for checkpoint in evidence.rates:
        for window in JUDGED:
            yield _gap(checkpoint, window, gaps)
        yield replace(_gap(checkpoint, POLICY, gaps), ok=None)


def _gap(checkpoint: str, window: str, gaps: Gaps) -> Line:
    there, quiet = gaps.get((checkpoint, window), []), gaps.get((checkpoint, QUIET), [])
    name = f"gap {checkpoint} {window}"
    if min(len(there), len(quiet)) < FEWEST_GAPS:
        return Line(name, TIMING, None, f"too few to say: {len(there)}, quiet {len(quiet)}", {})
    was, now = ([percentile(values, share) for share in (0.5, 0.99)] for values in (quiet, there))
    median, p99 = (after / max(before, 1e-6) for before, after in zip(was, now, strict=True))
    text = f"median {now[0] * 1e3:.1f} ms ({median:.2f} x quiet), p99 {now[1] * 1e3:.1f} ms ({p99:.2f} x)"
    figures = {"median_s": now[0], "p99_s": now[1], "quiet_median_s": was[0], "quiet_p99_s": was[1], "gaps": len(there)}
    return Line(name, TIMING, median <= MEDIAN_RATIO and p99 <= P99_RATIO, text, figures)


def _mib(count: int) -> int:
    return round(count / (1 << 20))
