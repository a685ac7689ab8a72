"""Snapshots of several engines as one."""

from halogend.control.tally import counters_of, together
from halogend.wire.stats import EngineStats


def _stats(**fields):
    zeros = {name: 0 for name in EngineStats.__struct_fields__ if name not in ("queue_s", "step_s", "evictions")}
    return EngineStats(**{**zeros, **fields})


def test_of_one_it_is_the_snapshot_itself():
    said = _stats(running=3, blocks_total=8, queue_s=(0.5,), step_s=(("decode", 0.1),))
    assert together([said], spoke=said) == said


def test_sums_and_the_single_steps_of_the_one_that_spoke():
    one = _stats(running=1, blocks_total=4, blocks_used=2, generated_tokens=7, queue_s=(1.0,))
    other = _stats(running=2, blocks_total=6, generated_tokens=5, queue_s=(2.0,), step_s=(("decode", 0.1),))
    both = together([one, other], spoke=other)
    assert (both.running, both.blocks_total, both.blocks_used, both.generated_tokens) == (3, 10, 2, 12)
    assert (both.queue_s, both.step_s) == ((2.0,), (("decode", 0.1),))
    assert together([]) == _stats()


def test_of_one_that_is_gone_only_the_counters_stay():
    gone = counters_of(_stats(running=1, waiting=2, blocks_total=4, blocks_used=2, steps=9, queue_s=(1.0,)))
    assert gone == _stats(steps=9)


def test_evictions_are_summed_by_reason_and_shares_weighed_by_the_blocks_in_use():
    one = _stats(blocks_used=30, evictions={"room": 2}, internal_fragmentation=0.1, largest_gap_s=0.5)
    other = _stats(blocks_used=10, evictions={"room": 1, "ttl": 4}, internal_fragmentation=0.3, largest_gap_s=0.2)
    both = together([one, other], spoke=other)
    assert both.evictions == {"room": 3, "ttl": 4}
    assert round(both.internal_fragmentation, 6) == 0.15
    assert both.largest_gap_s == 0.2
    assert counters_of(one) == _stats(evictions={"room": 2})
