"""Temperature limits, and a device that gets as hot as it is worked."""

import pytest

from halogend.config.facts import DeviceFacts
from halogend.control.thermal import MOST_REST, Governor, limit_c


def device(product="h100", slowdown_c=92.0, kind="cuda"):
    return DeviceFacts(id="cuda:0", memory_bytes=1, kind=kind, product=product, slowdown_c=slowdown_c)


@pytest.mark.parametrize(
    ("stated", "facts", "expected"),
    [
        ("auto", device(), 87.0),
        ("auto", device("rtx_4090"), 78.0),
        ("auto", device("rtx_4090", slowdown_c=None), 78.0),
        ("auto", device("ai_max_395", slowdown_c=None, kind="rocm"), None),
        ("auto", device(product=""), 87.0),
        ("off", device(), None),
        (70, device(), 70.0),
        (70, device(slowdown_c=None), 70.0),
        ("auto", device(kind="cpu"), None),
    ],
)
def test_the_limit(stated, facts, expected):
    assert limit_c(stated, facts) == expected


def worked(hottest_c, limit, seconds, ambient_c=30.0, warmth_s=40.0, begin_c=None):
    """Temperatures, a second each, of a device that full work brings to `hottest_c` in the end."""
    governor, temperature, found = Governor(), ambient_c if begin_c is None else begin_c, []
    for _ in range(seconds):
        rest = governor.feel(temperature, limit, 1.0)
        goal = ambient_c + (hottest_c - ambient_c) * (1 - rest)
        temperature += (goal - temperature) / warmth_s
        found.append(temperature)
    return found, governor


@pytest.mark.parametrize("hottest_c", [84.0, 95.0, 110.0])
def test_a_device_that_would_get_too_hot_is_held_at_its_limit(hottest_c):
    temperatures, governor = worked(hottest_c, 78.0, 1800)
    assert max(temperatures) < 78.0 + 6
    assert all(abs(each - 77.0) < 2 for each in temperatures[-300:])
    assert governor.rest > 0


def test_one_that_stays_cool_never_rests():
    _, governor = worked(75.0, 78.0, 900)
    assert governor.rest == 0.0


def test_rest_ends_when_the_heat_is_over():
    _, governor = worked(95.0, 78.0, 600)
    assert governor.rest > 0.1
    for _ in range(120):
        governor.feel(40.0, 78.0, 1.0)
    assert governor.rest == 0.0


def test_something_is_always_computed():
    governor = Governor()
    for _ in range(1000):
        assert governor.feel(150.0, 78.0, 5.0) <= MOST_REST


def test_what_is_not_told_changes_nothing_and_no_limit_ends_it():
    governor = Governor()
    rest = governor.feel(90.0, 78.0, 1.0)
    assert rest > 0
    assert governor.feel(None, 78.0, 1.0) == rest
    assert governor.feel(90.0, None, 1.0) == 0.0
