"""How long a load is said to take: by its sizes, then by what loads like it took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halogend.control.pace import Expected, Pace, Took

SECONDS = st.floats(0.1, 1e5)
TOOK = st.builds(Took, SECONDS, SECONDS, st.booleans())


def paced(*made: Took) -> Pace:
    pace = Pace()
    for each in made:
        pace.note(each)
    return pace


def test_before_any_load_its_sizes_say_it_and_that_is_told():
    assert Pace().expect(3.2, in_company=True) == Expected(3.2, 3.2, 3.2, 0)


def test_the_middle_of_the_last_ones_is_said_with_the_least_and_the_most():
    pace = paced(Took(3.2, 4.0, True), Took(3.2, 50.5, True), Took(3.2, 6.0, True))
    assert pace.expect(3.2, in_company=True).view() == {
        "expected_s": 6.0,
        "expected_least_s": 4.0,
        "expected_most_s": 50.5,
        "learned_from": 3,
    }


def test_what_a_load_takes_alone_says_nothing_of_one_in_company():
    pace = paced(Took(3.2, 50.5, True))
    assert pace.expect(3.2, in_company=False) == Expected(3.2, 3.2, 3.2, 0)
    assert pace.expect(3.2, in_company=True).seconds == pytest.approx(50.5)


def test_a_small_model_says_nothing_of_a_large_one():
    pace = paced(Took(3.0, 0.5, False))  # most of it was a process that stood by
    assert pace.expect(60.0, in_company=False) == Expected(60.0, 60.0, 60.0, 0)
    assert pace.expect(4.5, in_company=False).seconds == pytest.approx(0.75)


def test_the_newest_count():
    pace = paced(*(Took(10.0, 100.0, True) for _ in range(40)), *(Took(10.0, 20.0, True) for _ in range(5)))
    assert pace.expect(10.0, in_company=True) == Expected(20.0, 20.0, 20.0, 5)


@given(st.lists(TOOK, max_size=40), SECONDS, st.booleans())
def test_what_is_said_lies_between_the_least_and_the_most(made, by_size_s, in_company):
    found = paced(*made).expect(by_size_s, in_company=in_company)
    assert 0 < found.least_s <= found.seconds * (1 + 1e-9)
    assert found.seconds <= found.most_s * (1 + 1e-9)
    assert 0 <= found.learned_from <= 5
