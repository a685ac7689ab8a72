"""Alive, wedged, or a host that stalled: told apart by what workers said and when."""

import pytest

from halogend.control.doing import Doing
from halogend.control.health import LATE_S, PATIENCE_S, SILENCE_S, WEDGED_S, Pulse, suspects, verdict
from halogend.wire.control import Progress


def pulses(now, **heard_ago):
    made = {}
    for role, ago in heard_ago.items():
        made[role] = Pulse(began=0.0)
        made[role].hear(Progress(stage="serving", counter=1, busy=False), now - ago)
    return made


def test_two_that_speak_are_left_alone():
    assert verdict(pulses(100.0, text=1, engine=1), 100.0, 0.0) is None


def test_one_that_is_silent_while_the_other_speaks_is_named():
    role, reason = verdict(pulses(100.0, text=1, engine=SILENCE_S + 1), 100.0, 0.0)
    assert role == "engine"
    assert "said nothing for 11 s" in reason


def test_when_all_are_silent_the_host_stalled():
    assert verdict(pulses(100.0, text=SILENCE_S + 5, engine=SILENCE_S + 5), 100.0, 0.0) is None


def test_when_all_of_one_generation_are_silent_and_others_speak_it_is_to_blame():
    made = pulses(100.0, text=SILENCE_S + 5, engine=SILENCE_S + 5)
    role, _ = verdict(made, 100.0, 0.0, others_speak=True)
    assert role == "text"


def test_when_our_own_loop_was_late_nobody_is_blamed():
    assert verdict(pulses(100.0, text=1, engine=SILENCE_S + 1), 100.0, SILENCE_S) is None


def test_s2_a_long_step_that_moves_is_healthy_and_one_that_rests_is_wedged():
    made = pulses(0.0, text=0, engine=0)
    for second in range(1, 200):
        made["text"].hear(Progress(stage="serving", counter=1, busy=False), second)
        made["engine"].hear(Progress(stage="serving", counter=second, busy=True), second)
        assert verdict(made, float(second), 0.0) is None
    for second in range(200, 200 + int(WEDGED_S)):
        made["text"].hear(Progress(stage="serving", counter=1, busy=False), second)
        made["engine"].hear(Progress(stage="serving", counter=199, busy=True), second)
        assert verdict(made, float(second), 0.0) is None
    made["engine"].hear(Progress(stage="serving", counter=199, busy=True), 261.0)
    made["text"].hear(Progress(stage="serving", counter=1, busy=False), 261.0)
    role, reason = verdict(made, 261.0, 0.0)
    assert role == "engine"
    assert "without progress" in reason


def test_s6_a_slow_load_that_moves_bytes_is_not_still():
    pulse = Pulse(began=0.0)
    for second in range(1, 600):
        pulse.hear(Progress(stage="loading", counter=0, busy=True, done=second, total=600), second)
    assert pulse.still_s(600.0) == 1.0


# --- what was seen of a silent one ----------------------------------------------------------------

SILENCE = {
    Doing.RESTS: SILENCE_S,
    Doing.STOPPED: SILENCE_S,
    Doing.WORKS: WEDGED_S,
    Doing.DISK: WEDGED_S,
    Doing.PAGES: PATIENCE_S,
    Doing.STARVES: PATIENCE_S,
    Doing.FROZEN: PATIENCE_S,
}


@pytest.mark.parametrize(("seen", "limit_s"), SILENCE.items())
def test_a_silent_one_gets_the_time_that_what_it_does_deserves(seen, limit_s):
    """Nobody for ever; the reason names what it did."""
    now, doing = 1_000.0, {"engine": seen}
    assert verdict(pulses(now, text=1, engine=limit_s - 1), now, 0.0, doing) is None
    role, reason = verdict(pulses(now, text=1, engine=limit_s + 1), now, 0.0, doing)
    assert role == "engine"
    assert reason == f"the engine process has said nothing for {limit_s + 1:.0f} s: it {seen}"


@pytest.mark.parametrize("seen", [Doing.RESTS, Doing.WORKS, Doing.DISK, Doing.PAGES, Doing.STARVES, Doing.FROZEN])
def test_a_host_that_holds_up_everybody_gets_time_but_not_for_ever(seen):
    now, doing = 1_000.0, {"engine": seen, "text": seen}
    assert verdict(pulses(now, text=PATIENCE_S - 1, engine=PATIENCE_S - 1), now, 0.0, doing) is None
    assert verdict(pulses(now, text=PATIENCE_S + 1, engine=PATIENCE_S + 1), now, 0.0, doing) is not None


def test_s1_one_that_was_stopped_is_no_stalled_host_though_all_are_silent():
    now = 1_000.0
    made = pulses(now, text=SILENCE_S + 1, engine=SILENCE_S + 1)
    role, reason = verdict(made, now, 0.0, {"text": Doing.RESTS, "engine": Doing.STOPPED})
    assert (role, "is stopped by a signal" in reason) == ("engine", True)


def busy(still_s, now):
    made = pulses(now, text=0)
    made["engine"] = Pulse(began=0.0)
    made["engine"].hear(Progress(stage="serving", counter=7, busy=True), now - still_s)
    made["engine"].hear(Progress(stage="serving", counter=7, busy=True), now)
    return made


@pytest.mark.parametrize(
    ("seen", "limit_s"),
    [
        (None, WEDGED_S),
        (Doing.RESTS, WEDGED_S),
        (Doing.WORKS, PATIENCE_S),
        (Doing.DISK, PATIENCE_S),
        (Doing.PAGES, PATIENCE_S),
    ],
)
def test_s2_a_slow_step_on_a_slow_machine_is_told_from_a_lock_and_in_the_end_from_a_loop(seen, limit_s):
    now, doing = 1_000.0, {} if seen is None else {"engine": seen}
    assert verdict(busy(limit_s - 1, now), now, 0.0, doing) is None
    role, reason = verdict(busy(limit_s + 1, now), now, 0.0, doing)
    assert (role, "busy without progress" in reason) == ("engine", True)
    assert (seen is None) or reason.endswith(seen)


def test_while_our_own_loop_was_late_nothing_is_decided():
    now = 1_000.0
    made = pulses(now, text=1, engine=PATIENCE_S + 1)
    assert verdict(made, now, LATE_S + 0.1, {"engine": Doing.STOPPED}) is None
    assert verdict(made, now, LATE_S - 0.1, {"engine": Doing.STOPPED}) is not None


def test_a_look_is_taken_in_time_and_only_where_there_is_cause():
    now = 1_000.0
    assert suspects(pulses(now, text=1, engine=SILENCE_S / 2 + 1), now) == ["engine"]
    assert suspects(busy(WEDGED_S / 2 - 1, now), now) == []
    assert suspects(busy(WEDGED_S / 2 + 1, now), now) == ["engine"]
