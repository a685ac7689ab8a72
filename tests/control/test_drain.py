"""How long a drain goes on, and its early end."""

from halogend.control.drain import Drain


async def test_a_drain_counts_down_to_nothing():
    now = [100.0]
    drain = Drain(30.0, lambda: now[0])
    assert drain.left_s == 30.0
    now[0] += 12.0
    assert drain.left_s == 18.0
    now[0] += 100.0
    assert drain.left_s == 0.0


async def test_whoever_ends_it_first_stands_as_the_one_who_did():
    drain = Drain(30.0)
    drain.end("uid:0")
    drain.end("key:operations")
    await drain.hurried()
    assert (drain.by, drain.left_s) == ("uid:0", 0.0)
