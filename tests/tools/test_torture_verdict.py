"""Each line of the report says PASS for a sound run, and FAIL for the one thing that is wrong."""

from dataclasses import replace

import pytest
from torture.evidence import Count, Evidence, Goal, Peak, Serving, Window
from torture.messages import NEAR_TIE_NATS, Asked, End, Judged
from torture.verdict import CORRECTNESS, MEMORY, TIMING, failed, verdict

MIB = 1 << 20


def asked(end=End.ANSWERED, code="", text="good", tokens_at=(1.0, 2.0)):
    times = {"sent_at": 0, "tokens_at": tokens_at, "ended_at": 2}
    return Asked(prompt=0, end=end, code=code, moved=0, text=text, **times)


def receipt(*steps, outcome="applied"):
    return {"outcome": outcome, "models": [{"steps": list(steps)}]}


def reclaim(expected, returned):
    return {"name": "reclaim", "began_at": 0.0, "seconds": 1.0, "expected_bytes": expected, "returned_bytes": returned}


def sound(**changes):
    """Ten requests, one reclaim, one plan: nothing to complain of."""
    count = Count(processes=2, descriptors=20, daemon_bytes=50 * MIB)
    evidence = Evidence(
        asked=[asked()] * 10,
        receipts={"r1": receipt(reclaim(1000 * MIB, 990 * MIB))},
        answers={0: {"good", "also good"}},
        peaks=[Peak("1 -> b", 1000 * MIB, 960 * MIB)],
        goals=[Goal("generations", 3, 3)],
        policies=7,
        before=count,
        after=count,
    )
    return replace(evidence, **changes)


def complaints(evidence):
    return [line.name for line in verdict(evidence) if line.ok is False]


def test_a_sound_run_passes():
    assert complaints(sound()) == []
    assert not failed(verdict(sound()), strict=True)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"asked": [asked(), asked(End.FAILED, "503 queue_full", tokens_at=())]}, "requests"),
        ({"asked": []}, "requests"),
        ({"asked": [asked(), asked(End.CUT, "draining")]}, "streams cut"),
        ({"asked": [asked(), asked(End.CUT, "engine_died")]}, "streams cut"),
        ({"asked": [asked(), asked(text="mixed")]}, "answers"),
        ({"faults": ["it lied"]}, "acts"),
        ({"goals": [Goal("generations", 3, 2)]}, "generations"),
        ({"policies": 0}, "policy swaps"),
        ({"receipts": {"r1": receipt(outcome=None)}}, "policy swaps"),
        ({"after": Count(3, 20, 50 * MIB)}, "flat"),
        ({"after": Count(2, 24, 50 * MIB)}, "flat"),
        ({"after": Count(2, 20, 83 * MIB)}, "daemon's memory"),
        ({"receipts": {"r1": receipt(reclaim(100 * MIB, 83 * MIB))}}, "reclaims"),
        ({"receipts": {"r1": receipt(reclaim(4000 * MIB, 4081 * MIB))}}, "reclaims"),
        ({"peaks": [Peak("x", 100 * MIB, 94 * MIB)]}, "plan's peak"),
        ({"peaks": [Peak("x", 100 * MIB, 106 * MIB)]}, "plan's peak"),
    ],
)
def test_what_is_wrong_is_said(changes, name):
    evidence = sound(**changes)
    assert complaints(evidence) == [name]
    assert failed(verdict(evidence), strict=False)


def test_streams_of_an_engine_that_was_killed_are_apart():
    shot = asked(End.CUT, "engine_died")
    evidence = sound(asked=[asked(), shot], windows=[Window("kill", 1.5, 9)])
    assert complaints(evidence) == []
    assert verdict(evidence)[0].figures["killed"] == 1
    assert complaints(replace(evidence, windows=[Window("kill", 2.5, 9)])) == ["streams cut"]
    assert complaints(replace(evidence, asked=[asked(), asked(End.CUT, "draining")])) == ["streams cut"]


def answers_line(evidence):
    (line,) = [line for line in verdict(evidence) if line.name == "answers"]
    return line


def test_an_answer_that_parts_at_a_near_tie_is_told_from_a_wrong_one():
    near, far = (Judged(gap_nats=NEAR_TIE_NATS * share, at_chars=7) for share in (0.4, 1.1))
    odd = asked(text="other")
    evidence = sound(asked=[asked(), odd, odd], judged={(0, "other"): near})
    line = answers_line(evidence)
    assert complaints(evidence) == []
    assert [line.figures[each] for each in ("whole", "equal", "near_ties", "wrong")] == [3, 1, 2, []]
    assert line.figures["largest_gap_nats"] == near.gap_nats
    for judged, why in (
        (far, f"after 7 characters: {far.gap_nats:.3f} nats below the likeliest what follows"),
        (Judged(gap_nats=None, at_chars=7), "after 7 characters: no token that follows"),
        (None, "no checkpoint answers so at rest"),
    ):
        wrong = replace(evidence, judged={} if judged is None else {(0, "other"): judged})
        assert complaints(wrong) == ["answers"]
        assert why in answers_line(wrong).text
        assert len(answers_line(wrong).figures["wrong"]) == 2


def streams(gap_s, count, began_at):
    return [asked(tokens_at=tuple(began_at + gap_s * index for index in range(count)))]


def test_slow_windows_are_said_and_judged_only_when_asked():
    windows = [Window("load", 1000, 2000)]
    requests = streams(0.01, 300, 0) + streams(0.013, 300, 1000)
    evidence = sound(asked=requests, windows=windows, servings=[Serving(0, "tiny")], rates={"tiny": (9, 5)})
    lines = verdict(evidence)
    assert complaints(evidence) == ["gap tiny load"]
    assert {line.kind for line in lines} == {CORRECTNESS, MEMORY, TIMING}
    assert (failed(lines, strict=False), failed(lines, strict=True)) == (False, True)
    assert "1.30 x quiet" in next(line.text for line in lines if line.name == "gap tiny load")
    evidence.asked = streams(0.01, 300, 0) + streams(0.0115, 300, 1000)
    assert complaints(evidence) == []
    evidence.asked = streams(0.01, 300, 0) + streams(0.01, 296, 1000) + streams(0.021, 5, 1100)
    assert complaints(evidence) == ["gap tiny load"]
    evidence.asked = streams(0.01, 300, 0) + streams(0.5, 100, 1000)
    assert complaints(evidence) == []
