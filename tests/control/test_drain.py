"""How long a drain goes on, and its early end."""

from types import SimpleNamespace

from halogend.control.drain import Drain
from halogend.control.retired import Retired, Stage


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


async def test_while_it_stands_no_time_is_counted():
    now = [100.0]
    drain = Drain(30.0, lambda: now[0])
    now[0] += 10.0
    drain.stand()
    now[0] += 1000.0
    assert drain.left_s == 20.0
    drain.go_on()
    drain.go_on()
    now[0] += 5.0
    assert drain.left_s == 15.0


async def test_the_drain_of_one_that_stood_by_begins_as_it_is_taken():
    """It was parked for longer than it may drain, and what takes it back is undone."""
    now = [100.0]
    retired = Retired(SimpleNamespace(is_alive=True, leases=["a request"]), None, Drain(30.0, lambda: now[0]))
    retired.park()
    now[0] += 1000.0
    assert retired.drain.left_s == 0.0
    retired.take()
    retired.put_back()
    assert (retired.stage, retired.drain.left_s > 29.0) == (Stage.DRAINING, True)
