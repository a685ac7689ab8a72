"""Alive, wedged, or a host that stalled: told apart by what workers said and when."""

from halogend.control.health import SILENCE_S, WEDGED_S, Pulse, verdict
from halogend.wire.messages import Progress


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
