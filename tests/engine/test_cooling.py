"""Rest between steps."""

from halogend.engine.cooling import MOST_S, Cooling


def test_without_a_share_there_is_no_rest():
    cooling = Cooling()
    cooling.computed(5.0, 100.0)
    assert cooling.left_s(100.0) == 0.0


def test_rest_is_that_share_of_the_time():
    cooling = Cooling()
    cooling.set(0.75)
    cooling.computed(0.1, 100.0)
    assert abs(cooling.left_s(100.0) - 0.3) < 1e-9
    assert abs(cooling.left_s(100.2) - 0.1) < 1e-9
    assert cooling.left_s(100.4) == 0.0


def test_a_long_step_is_followed_by_a_bounded_rest():
    cooling = Cooling()
    cooling.set(0.9)
    cooling.computed(3.0, 0.0)
    assert cooling.left_s(0.0) == MOST_S


def test_the_end_of_the_heat_ends_the_rest():
    cooling = Cooling()
    cooling.set(0.5)
    cooling.computed(0.5, 0.0)
    cooling.set(0.0)
    assert cooling.left_s(0.1) == 0.0
