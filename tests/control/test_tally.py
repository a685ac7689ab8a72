"""Snapshots of several engines as one."""

from halogend.control.tally import counters_of, together
from halogend.wire.messages import EngineStats


def _stats(**fields):
    zeros = {name: 0 for name in EngineStats.__struct_fields__ if name not in ("queue_s", "step_s")}
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
