"""What kopf is told: whatever is asked of an API server must be what a real one takes."""

from __future__ import annotations

import itertools

from halogen_operator.resources import CHILDREN, HALOGEN_MODEL, WATCHED
from halogen_operator.settings import Settings
from halogen_operator.watching import _kopf_settings


def test_kopf_posts_nothing_kills_nobody_and_never_gives_up() -> None:
    made = _kopf_settings(Settings(shortest_back_off_s=1.0, longest_back_off_s=300.0))
    assert not made.posting.enabled
    assert made.process.ultimate_exiting_timeout is None
    delays = made.networking.error_backoffs
    assert not isinstance(delays, float)
    for _ in range(2):
        assert list(itertools.islice(delays, 8)) == [1, 2, 4, 8, 16, 30, 30, 30]


def test_every_wait_for_the_server_has_an_end() -> None:
    made = _kopf_settings(Settings())
    assert isinstance(made.watching.server_timeout, int), "an API server refuses 290.0 seconds"
    assert made.networking.request_timeout == 30.0
    assert made.networking.connect_timeout == made.watching.connect_timeout == 5.0
    assert 60.0 < made.watching.inactivity_timeout < 300.0


def test_of_children_those_that_are_ours_are_asked_for_and_models_whoever_made_them() -> None:
    made = _kopf_settings(Settings())
    selectors = {selector.any_name: text for selector, text in made.watching.label_selectors.items()}
    assert selectors == {kind.plural: CHILDREN for kind in WATCHED if kind is not HALOGEN_MODEL}
