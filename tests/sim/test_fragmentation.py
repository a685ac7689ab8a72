"""The allocators that fragmentation is measured of, and the load that keeps a pool full."""

from __future__ import annotations

import json

import pytest

from halogend.sched.errors import InvariantError
from halogend.sched.scheduler import Scheduler
from halogend.sim.__main__ import main
from halogend.sim.baselines import FreeListPool
from halogend.sim.blend import Blend
from halogend.sim.fragmentation import EXTERNAL_BAR, INTERNAL_BAR, PLAIN
from halogend.sim.held import unwritten_in_fixed
from halogend.sim.loads import HoldUse
from halogend.sim.measures import Measures
from halogend.sim.policies import FULL, Machine
from halogend.sim.simulation import Simulation
from halogend.sim.timing import SMOLLM2


def test_fixed_blocks_share_what_is_whole_and_waste_what_is_not():
    first, second = list(range(1, 11)), [*range(1, 9), 20, 21]
    assert unwritten_in_fixed([(first, 160), (second, 150)], 128) == pytest.approx((96 + 106) / (3 * 128))
    assert unwritten_in_fixed([(first[:8], 128)], 128) == 0


def test_a_plain_list_gives_out_what_was_free_for_longest():
    pool = FreeListPool(6)
    first = pool.take(3)
    pool.release(first[:1])
    assert pool.take(3) == [4, 5, 1]
    assert pool.free_count == 0
    with pytest.raises(InvariantError, match="asked of a list"):
        pool.take(1)


def test_a_plain_list_keeps_what_is_known_until_it_is_forgotten():
    pool = FreeListPool(6)
    (block,) = pool.take(1)
    pool.keep(block)
    pool.release([block])
    assert (pool.is_cached(block), pool.cached_count, pool.free_count) == (True, 1, 4)
    pool.share([block])
    assert (pool.is_cached(block), pool.references(block), pool.referenced_count) == (False, 1, 1)
    pool.release([block])
    pool.forget(block)
    assert pool.free_count == 5
    pool.audit([], [])


@pytest.mark.parametrize("plain", [True, False])
def test_a_pool_is_kept_as_full_as_it_is_said_to_be(plain):
    machine = Machine(512, max_batch=64, step_tokens=1024)
    pool = FreeListPool(513) if plain else machine.pool()
    scheduler = Scheduler(machine.first_come(64), pool, FULL)
    blend = Blend(1)
    uses = []

    def held():
        return pool.referenced_count / pool.capacity

    def watch(_):
        uses.append(held())
        scheduler.audit()

    load = HoldUse(0.8, blend.draw, blend.over, held, lambda: scheduler.stats.waiting)
    Simulation(scheduler, SMOLLM2, load, Measures(0, 12)).run(watch)
    settled = uses[20:]
    assert sum(0.6 < use <= 1 for use in settled) > 0.9 * len(settled)


def test_sessions_have_one_turn_at_a_time_and_some_requests_have_none():
    blend = Blend(3)
    running = [blend.draw(number) for number in range(100)]
    sessions = [job.caller.session for job in running if job.caller.session]
    assert 20 < len(sessions) < 80
    assert len(set(sessions)) == len(sessions)
    for job in running:
        blend.over(job)
    assert {job.kind for job in running} == {"short", "long", "turn"}
    again = {blend.draw(number).caller.session for number in range(100, 160)}
    assert again & set(sessions)


def test_runs_keep_both_bars_and_each_plain_way_misses_one(capsys):
    assert main(["fragmentation", "--requests", "60", "--pool-tokens", "16384", "--seed", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [bar["name"].split(":")[0] for bar in report["bars"][2:]] == list(PLAIN)
    assert report["rows"]["free list of 16"]["external"] > EXTERNAL_BAR
    assert report["rows"]["blocks of 128"]["internal"] > INTERNAL_BAR
