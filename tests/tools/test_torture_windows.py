"""Gaps between tokens find the windows they belong to (L9 is judged by them)."""

import pytest
from torture.evidence import Serving, Window
from torture.messages import Asked, End
from torture.windows import Spans, gaps_of, percentile, steps_of


def asked(*tokens_at, end=End.ANSWERED):
    return Asked(
        prompt=0,
        sent_at=0,
        tokens_at=tokens_at,
        ended_at=max((*tokens_at, 0)),
        end=end,
        code="",
        moved=0,
        text="d",
    )


def test_spans_merge_and_touch():
    spans = Spans([Window("x", 5, 6), Window("x", 1, 3), Window("x", 2, 4), Window("x", 3, 3.5)])
    touching = [(0, 1), (1.5, 1.6), (3.9, 4.5), (0, 9), (6, 7)]
    apart = [(0, 0.9), (4.1, 4.9), (6.1, 9)]
    assert [spans.touch(*each) for each in touching] == [True] * 5
    assert [spans.touch(*each) for each in apart] == [False] * 3
    assert not Spans([]).touch(0, 9)


def test_a_gap_counts_for_each_window_it_touches_and_else_for_quiet():
    windows = [Window("load", 10, 20), Window("drain", 19, 30)]
    found = gaps_of([asked(1, 2, 11, 19.5, 25, 31, 32)], windows, [Serving(0, "tiny")])
    assert found == {
        ("tiny", "quiet"): [1, 1],
        ("tiny", "load"): [9, 8.5, 5.5],
        ("tiny", "drain"): [8.5, 5.5, 6],
    }


def test_a_swap_of_policy_counts_where_nothing_else_goes_on():
    windows = [Window("load", 10, 20), Window("policy", 5, 12)]
    found = gaps_of([asked(1, 2, 6, 11, 15)], windows, [Serving(0, "tiny")])
    assert found == {("tiny", "quiet"): [1], ("tiny", "policy"): [4], ("tiny", "load"): [5, 4]}


def test_gaps_go_to_the_checkpoint_that_served_when_the_stream_began():
    servings = [Serving(0, "x"), Serving(10, "y")]
    found = gaps_of([asked(9, 11, 14), asked(10.5, 11), asked(3)], [], servings)
    assert found == {("x", "quiet"): [2, 3], ("y", "quiet"): [0.5]}


def test_while_an_engine_was_shot_no_gap_is_judged():
    windows = [Window("kill", 10, 20), Window("load", 12, 18)]
    assert gaps_of([asked(1, 2, 15)], windows, [Serving(0, "x")]) == {("x", "quiet"): [1]}


def test_steps_of_receipts_become_windows():
    steps = [
        {"name": "load", "began_at": 1.0, "seconds": 2.0},
        {"name": "switch", "began_at": 3.0, "seconds": 0.0},
        {"name": "drain", "began_at": 3.0, "seconds": None},
        {"name": "reclaim", "began_at": 4.0, "seconds": 1.0},
    ]
    found = steps_of([{"models": [{"steps": steps}]}])
    assert [each.kind for each in found] == ["load", "switch"]
    assert (found[0].began_at, found[0].ended_at) == (1, 3)
    assert found[1].began_at < 3 < found[1].ended_at


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 5), (0.99, 10), (0.9, 9), (0.91, 10), (0.1, 1), (0.0, 1), (1.0, 10)]
)
def test_percentiles(share, value):
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == value
