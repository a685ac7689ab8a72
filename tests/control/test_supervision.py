"""Silence from its first second to the restart: a played /proc, workers that speak or do not, a verdict each second."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.fake_proc import FakeProc

from halogend.control.doing import Looks
from halogend.control.health import Pulse, suspects, verdict
from halogend.wire.control import Progress

PIDS = {"text": 100, "engine": 200}
NOTHING: dict[str, Any] = {"states": "S"}
Seen = Callable[[int], dict[str, Any]]


@dataclass(frozen=True)
class Story:
    """`engine` and `text` are what /proc shows in each second; `speaks` who says something, `moves` whether the
    engine gets on with what it does; `late_s` how late our own loop is."""

    engine: Seen
    text: Seen = lambda second: NOTHING
    speaks: frozenset[str] = field(default=frozenset({"text"}))
    moves: bool = True
    late_s: Callable[[int], float] = lambda second: 0.0


def end_of(story: Story, proc: FakeProc, seconds: int = 185) -> tuple[int, str, str] | None:
    """(second, role, reason) of the restart; None when there was none."""
    pulses, looks = {role: Pulse(began=0.0) for role in PIDS}, Looks(proc.root, "chat")
    for role, pulse in pulses.items():
        pulse.hear(Progress(stage="serving", counter=0, busy=role == "engine"), 0.0)
    for second in range(1, seconds):
        now = float(second)
        for role, seen in (("engine", story.engine), ("text", story.text)):
            if role in story.speaks:
                counter = second if role == "engine" and story.moves else 0
                pulses[role].hear(Progress(stage="serving", counter=counter, busy=role == "engine"), now)
            if role in suspects(pulses, now):  # nobody looks at the others
                proc.process(PIDS[role], **seen(second))
        doing = looks.take(suspects(pulses, now), PIDS, now)
        found = verdict(pulses, now, story.late_s(second), doing)
        if found is not None:
            return second, *found
    return None


def works(second: int) -> dict[str, Any]:
    return {"states": "SR", "cpu_s": float(second)}


BOTH = frozenset({"text", "engine"})
STORIES = {
    "a lock: it sleeps and says nothing": (Story(lambda s: NOTHING), 11, "it does nothing"),
    "s1: stopped by a signal": (Story(lambda s: {"states": "TT"}), 11, "it is stopped by a signal"),
    "a slow machine, or a call that holds the interpreter": (Story(works), 61, "it takes processor time"),
    "a disk that does not answer": (Story(lambda s: {"states": "SD"}), 61, "it waits for a disk"),
    "pages that come back from swap": (
        Story(lambda s: {"states": "SD", "major_faults": 300 * s}),
        181,
        "it waits for memory",
    ),
    "no processor for it": (Story(lambda s: {"states": "SR", "cpu_s": 0.02 * s}), 181, "it gets no processor"),
    "s2: it speaks and moves": (Story(works, speaks=BOTH), None, ""),
    "a loop: it speaks, works and does not move": (
        Story(works, speaks=BOTH, moves=False),
        181,
        "busy without progress for 181 s: it takes processor time",
    ),
    "a lock inside a step: it speaks, rests and does not move": (
        Story(lambda s: NOTHING, speaks=BOTH, moves=False),
        61,
        "busy without progress for 61 s: it does nothing",
    ),
    "a host that holds up everybody": (Story(lambda s: NOTHING, speaks=frozenset()), 181, "has said nothing"),
    "everybody silent, one of them stopped": (
        Story(lambda s: {"states": "T"}, speaks=frozenset()),
        11,
        "the engine process has said nothing for 11 s: it is stopped",
    ),
    "our own loop was late, and hears it all in the end": (Story(lambda s: NOTHING, late_s=lambda s: 6.0), None, ""),
}


@pytest.mark.parametrize(("story", "second", "reason"), STORIES.values(), ids=STORIES)
def test_a_silence_ends_as_what_it_was(tmp_path, story, second, reason):
    found = end_of(story, FakeProc(tmp_path))
    assert (found and found[0]) == second
    assert found is None or reason in found[2]


def test_one_that_comes_back_to_life_in_time_is_left_alone(tmp_path):
    """Fifty seconds of work without a word, again and again, with a word in between."""
    proc = FakeProc(tmp_path)
    pulses, looks = {role: Pulse(began=0.0) for role in PIDS}, Looks(proc.root, "chat")
    for second in range(1, 120):
        now = float(second)
        pulses["text"].hear(Progress(stage="serving", counter=0, busy=False), now)
        if second % 50 == 1:
            pulses["engine"].hear(Progress(stage="serving", counter=second, busy=True), now)
        proc.process(PIDS["engine"], **works(second))
        assert verdict(pulses, now, 0.0, looks.take(suspects(pulses, now), PIDS, now)) is None
