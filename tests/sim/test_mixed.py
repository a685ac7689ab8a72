"""The arms of `bench sim mixed` differ in policy alone, and near capacity lanes keep what is asked of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from halogend.sched.limits import LongLane
from halogend.sim import mixed
from halogend.sim.__main__ import main
from halogend.sim.loads import ClosedLoop
from halogend.sim.policies import Machine, in_order


def test_first_come_beside_lanes_has_their_steps_and_nothing_of_their_policy():
    lanes = replace(Machine(64, 8).lanes(16, LongLane(100, 2)), max_gap_s=0.7)
    first_come = in_order(lanes)
    same = ("max_batch", "max_queue", "step_tokens", "prefill_chunk_tokens", "max_gap_s", "eviction")
    assert all(getattr(first_come, name) == getattr(lanes, name) for name in same)
    assert (first_come.long, first_come.watermarks) == (None, None)
    assert (first_come.prefill_timeout_s, first_come.min_free_ratio) == (0.0, 0.0)


def test_clients_that_think_begin_apart_and_those_that_do_not_at_once():
    assert ClosedLoop(3, lambda _: None, 0.0).due_s(0.0) == 0.0
    thinking = ClosedLoop(3, lambda _: None, 10.0)
    due = []
    for _ in range(3):
        due.append(thinking.due_s(0.0))
        thinking.take()
    assert due == sorted(due)
    assert len(set(due)) == 3
    assert thinking.due_s(0.0) is None


def _report(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    status = main(["mixed", "--divide", "8", "--json", *options])
    report = json.loads(capsys.readouterr().out)
    assert report["met"] == (status == 0)
    return report


def test_in_a_saturated_loop_the_mean_wait_is_that_of_first_come(capsys):
    """The law that docs/simulator.md states: as many wait, in whatever order."""
    options = ("--loads", "saturated", "--clients", "40", "--requests", "400", "--max-batch", "8")
    rows = _report(capsys, *options)["rows"]
    first_come, lanes = (rows[f"{mixed.SATURATED}: {name}"] for name in (mixed.FIRST_COME, mixed.LANES))
    assert lanes["short p50"] < 0.6 * first_come["short p50"]
    assert lanes["mean wait"] == pytest.approx(first_come["mean wait"], rel=0.1)


def test_how_many_requests_warm_up_can_be_told(capsys):
    """A client's first, unless it is said otherwise: what is measured ends later when more come before it."""
    options = ("--loads", "saturated", "--clients", "8", "--requests", "20", "--max-batch", "4")
    name = f"{mixed.SATURATED}: {mixed.FIRST_COME}"
    told = [_report(capsys, *options, *more)["rows"][name] for more in ((), ("--warm-up", "8"), ("--warm-up", "48"))]
    assert told[0] == told[1]
    assert told[2]["simulated"] > 2 * told[1]["simulated"]


@pytest.mark.slow
def test_near_capacity_lanes_keep_both_bars_beside_first_come_with_the_same_steps(capsys):
    report = _report(capsys, "--loads", "near", "--think", "24", "--requests", "2000")
    assert len(report["bars"]) == len(mixed.BARS) + 1
    assert report["met"]
