from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from support.sched_world import EVERYTHING, World, make_limits, naive_generate

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.errors import InvariantError
from halogend.sched.request import Request
from halogend.sched.scheduler import Scheduler
from halogend.sched.step import StepResult

DEPTHS = pytest.mark.parametrize("depth", [0, 1])


def shape(world: World, plan: int = -1) -> list[tuple[int, int, int]]:
    return [(item.id, item.start, item.count) for item in world.plans[plan].items]


def run_until_preempted(world: World) -> None:
    for _ in range(200):
        if world.scheduler.stats.preemptions:
            return
        world.step()
    pytest.fail("nobody was preempted")


@DEPTHS
@pytest.mark.parametrize("chunk", [0, 1, 7, 64])
def test_tokens_do_not_depend_on_chunks(depth: int, chunk: int) -> None:
    world = World(make_limits(prefill_chunk_tokens=chunk), blocks=64, depth=depth)
    for prompt_tokens in (1, 5, 33, 100):
        world.add(prompt_tokens, 9)
    world.drain()
    assert [o.end.reason for o in world.outcomes.values()] == ["length"] * 4


def test_decodes_come_first_then_prompts_in_order_of_arrival() -> None:
    world = World(make_limits(step_tokens=32), blocks=64)
    world.add(40, 5)
    world.add(3, 5)
    world.add(30, 5)
    world.step()
    assert shape(world) == [(0, 0, 32)]
    world.step()
    assert shape(world) == [(0, 32, 8), (1, 0, 3), (2, 0, 21)]
    world.step()
    assert shape(world) == [(0, 40, 1), (1, 3, 1), (2, 21, 9)]


def test_several_prompts_share_a_step_but_each_keeps_to_its_chunk() -> None:
    world = World(make_limits(step_tokens=64, prefill_chunk_tokens=10), blocks=64)
    world.add(25, 5)
    world.add(15, 5)
    world.step()
    assert shape(world) == [(0, 0, 10), (1, 0, 10)]


def test_a_prompt_moves_although_decodes_fill_the_budget() -> None:
    world = World(make_limits(max_batch=9, step_tokens=4), blocks=64)
    for _ in range(8):
        world.add(1, 40)
    while world.scheduler.stats.running < 8:
        world.step()
    world.add(40, 3)
    for _ in range(8):
        world.step()
    assert len(world.outcomes[8].tokens) == 3


@DEPTHS
def test_stop_id_ends_a_request_and_is_the_last_token(depth: int) -> None:
    world = World(make_limits(), blocks=16, depth=depth)
    expected = naive_generate(Request(0, tuple(i * 7 % 97 for i in range(4)), 30))
    world.add(4, 30, frozenset({expected[5]}))
    world.drain()
    outcome = world.outcomes[0]
    assert outcome.end.reason == "stop"
    assert outcome.tokens[-1] == expected[5]
    assert len(outcome.tokens) == expected.index(expected[5]) + 1


def test_depth_one_names_the_token_on_its_way_by_its_slot() -> None:
    world = World(make_limits(), blocks=16, depth=1)
    world.add(3, 4)
    world.step()
    world.step()
    item = world.plans[1].items[0]
    assert (item.start, item.tokens, item.from_slot, item.samples) == (3, (), True, True)
    world.drain()
    assert len(world.plans) == 4  # nothing is computed beyond max_tokens


def test_depth_one_drops_the_result_of_a_request_that_has_ended() -> None:
    expected = naive_generate(Request(0, (0, 7, 14), 9))
    world = World(make_limits(), blocks=16, depth=1)
    world.add(3, 9, frozenset({expected[0]}))
    world.step()
    world.step()  # step 1 is planned, then step 0 brings the stop id
    assert world.outcomes[0].end.reason == "stop"
    assert world.pool.referenced_count == 0
    world.drain()
    assert world.outcomes[0].tokens == expected[:1]


def test_a_third_step_may_not_be_in_flight() -> None:
    world = World(make_limits(), blocks=16)
    world.add(3, 9)
    assert world.scheduler.schedule(0.0)
    assert world.scheduler.schedule(0.0)
    with pytest.raises(InvariantError, match="in flight"):
        world.scheduler.schedule(0.0)


def test_the_newest_gives_way_and_is_recomputed_with_its_tokens() -> None:
    world = World(make_limits(), blocks=7)  # 6 blocks = 96 tokens
    world.add(20, 50)
    world.add(20, 50)
    run_until_preempted(world)
    assert world.scheduler.stats.running == 1
    assert world.outcomes[1].tokens  # they are kept
    assert shape(world)[0][0] == 0
    world.drain()
    starts = [i.start for p in world.plans for i in p.items if i.id == 1]
    (resumed,) = [start for before, start in pairwise(starts) if start <= before]
    assert resumed in (0, 16, 32)  # it finds full blocks of its own that were not needed meanwhile
    assert world.scheduler.stats.prompt_tokens == 40  # recomputing counts no prompt twice
    assert world.scheduler.stats.generated_tokens == 100


@pytest.mark.parametrize("blocks", [10, 11, 12])
def test_an_older_prompt_takes_the_blocks_of_a_newer_decode(blocks: int) -> None:
    """The newer one may be in the step already: it is taken out of it."""
    world = World(make_limits(prefill_chunk_tokens=1), blocks=blocks)
    world.add(96, 4)
    world.add(10, 100)
    run_until_preempted(world)
    assert [(id_, count) for id_, _, count in shape(world)] == [(0, 1)]
    assert world.scheduler.stats.waiting == 1
    assert world.outcomes[1].tokens
    world.drain()


def test_an_older_decode_takes_the_blocks_of_a_newer_prompt() -> None:
    """The newer one was to come later in the same step: it does not."""
    world = World(make_limits(prefill_chunk_tokens=1), blocks=10)
    world.add(10, 100)
    world.add(96, 4)
    run_until_preempted(world)
    assert [id_ for id_, _, _ in shape(world)] == [0]
    world.drain()


def test_the_newest_waits_with_what_it_has_when_no_block_is_free() -> None:
    """Giving up its own blocks would only cost it the recomputation."""
    world = World(make_limits(), blocks=6)
    world.add(16, 20)
    world.add(16, 40)
    while world.outcomes[0].end is None:
        world.step()
    assert len(world.outcomes[1].tokens) < len(world.outcomes[0].tokens)
    world.drain()
    assert world.scheduler.stats.preemptions == 0


@DEPTHS
def test_memory_is_taken_on_demand(depth: int) -> None:
    """A3: large budgets, early stops: all run together."""
    world = World(make_limits(), blocks=9, depth=depth)
    for number in range(4):
        prompt = tuple((number * 13 + i * 7) % 97 for i in range(4))
        stop = naive_generate(Request(number, prompt, 9))[8]
        world.add(4, 120, frozenset({stop}))
    world.step()
    assert world.scheduler.stats.running == 4
    world.drain()
    assert world.scheduler.stats.preemptions == 0


def test_a_long_prompt_waits_for_room_instead_of_thrashing() -> None:
    world = World(make_limits(step_tokens=16), blocks=9)  # 128 tokens
    world.add(30, 60)
    world.add(100, 20)
    world.drain()
    assert world.scheduler.stats.preemptions == 0
    assert world.first_seen == [0, 1]


def test_the_head_is_admitted_when_nothing_runs() -> None:
    """S3: the largest request that fits at all runs at once."""
    world = World(make_limits(), blocks=5)
    assert world.add(60, 5) is None
    world.step()
    assert world.scheduler.stats.running == 1
    world.drain()


def test_what_can_never_fit_is_refused_at_once() -> None:
    world = World(make_limits(), blocks=5)
    assert world.add(60, 5) is None
    assert world.add(60, 6) == "kv_too_small"


def test_queue_bound_counts_who_would_wait() -> None:
    """A2: free places are no reason for a refusal, even with a queue of nothing."""
    world = World(make_limits(max_batch=2, max_queue=1), blocks=16)
    assert [world.add(3, 3) for _ in range(4)] == [None, None, None, "queue_full"]
    world.step()
    assert world.scheduler.stats.waiting == 1
    assert world.add(3, 3) == "queue_full"
    world.drain()


def test_waiting_too_long_ends_in_queue_timeout() -> None:
    world = World(make_limits(max_batch=1, queue_timeout_s=10), blocks=16)
    world.add(3, 5)
    world.add(3, 5)
    world.step()
    world.now = 9.9
    assert world.scheduler.expire(world.now) == ()
    world.now = 10.0
    (end,) = world.scheduler.expire(world.now)
    assert (end.id, end.reason, end.code) == (1, "error", "queue_timeout")
    world.end((end,))
    world.drain()
    assert world.outcomes[0].end.reason == "length"


def test_a_preempted_request_does_not_time_out_in_the_queue_again() -> None:
    world = World(make_limits(queue_timeout_s=10), blocks=7)
    world.add(20, 50)
    world.add(20, 50)
    run_until_preempted(world)
    world.now = 1000.0
    assert world.scheduler.expire(world.now) == ()
    world.drain()


def test_living_too_long_ends_in_request_timeout_wherever_it_is() -> None:
    world = World(make_limits(max_batch=1, request_timeout_s=10), blocks=16)
    world.add(3, 500 // BLOCK_TOKENS)
    world.now = 5.0
    world.add(3, 5)
    world.step()
    world.now = 10.0
    ended = world.scheduler.expire(world.now)
    assert [(e.id, e.code) for e in ended] == [(0, "request_timeout")]
    world.now = 15.0
    assert [e.id for e in world.scheduler.expire(world.now)] == [1]
    assert world.pool.referenced_count == 0


@DEPTHS
@pytest.mark.parametrize("steps", range(6))
def test_abort_frees_everything_at_once_at_any_point(steps: int, depth: int) -> None:
    """A1: in the queue, in prefill, in decode, with a step in flight."""
    world = World(make_limits(step_tokens=16, max_batch=1), blocks=16, depth=depth)
    world.add(40, 10)
    world.add(3, 10)
    for _ in range(steps):
        world.step()
    for request_id in (1, 0):
        world.abort(request_id)
    assert world.pool.referenced_count == 0
    assert not world.scheduler.has_requests
    world.scheduler.abort(0)  # once more is no harm
    world.drain()


def test_a_failing_request_fails_alone() -> None:
    """A9: its own step went wrong; the other three are as they would have been."""
    world = World(make_limits(), blocks=32)
    for _ in range(4):
        world.add(10, 12)
    world.step()
    world.failing = frozenset({2})
    world.step()
    assert (world.outcomes[2].end.reason, world.outcomes[2].end.code) == ("error", "numeric_error")
    world.drain()
    assert [len(o.tokens) for o in world.outcomes.values()] == [12, 12, 1, 12]


def test_a_smaller_batch_lets_running_ones_finish() -> None:
    world = World(make_limits(max_batch=4), blocks=64)
    for _ in range(6):
        world.add(3, 20)
    world.step()
    world.scheduler.update(replace(make_limits(), max_batch=1))
    world.step()
    assert world.scheduler.stats.running == 4
    while world.scheduler.stats.running == 4:
        world.step()
    most = 0
    while world.alive:
        world.step()
        most = max(most, world.scheduler.stats.running)
    assert most == 1
    world.check()


def test_shrinking_preempts_who_finds_no_room_below_the_limit_and_loses_no_token() -> None:
    world = World(make_limits(), blocks=16)
    for _ in range(3):
        world.add(30, 30)
    world.step()
    moves = world.resize(5)
    assert min(moves, default=5) >= 5 > max(moves.values(), default=0)
    world.scheduler.audit()
    assert world.scheduler.stats.running == 2
    assert world.scheduler.stats.blocks_total == 4
    world.drain()
    assert world.resize(16) == {}
    assert world.pool.free_count + world.pool.cached_count == 15


def test_shrinking_moves_blocks_down_and_preempts_nobody_while_there_is_room() -> None:
    world = World(make_limits(), blocks=16)
    for prompt in (60, 60, 20):  # 4, 4 and 2 blocks
        world.add(prompt, 8)
    while world.scheduler.stats.blocks_used < 10:
        world.step()
    lower = min((s for s in world.scheduler._running if s.request.id < 2), key=lambda s: s.blocks[0][0])
    world.abort(lower.request.id)
    moves = world.resize(8)
    assert moves
    assert min(moves) >= 8 > max(moves.values())
    assert world.scheduler.stats.preemptions == 0
    assert world.scheduler.stats.running == 2
    world.drain()
    assert world.scheduler.stats.preemptions == 0


def test_shrinking_below_a_request_ends_it() -> None:
    world = World(make_limits(), blocks=16)
    world.add(30, 30)
    world.add(3, 3)
    world.step()
    world.resize(4)
    assert world.outcomes[0].end.code == "kv_too_small"
    world.drain()
    assert world.outcomes[1].end.reason == "length"


def test_no_resize_while_a_step_may_still_write() -> None:
    world = World(make_limits(), blocks=16, depth=1)
    world.add(3, 9)
    world.step()
    with pytest.raises(InvariantError, match="in flight"):
        world.resize(8)


def test_nobody_starves_while_others_keep_coming() -> None:
    """The large one is admitted and ends although small ones never stop arriving."""
    world = World(make_limits(max_batch=3), blocks=7)
    world.add(10, 30)
    world.add(80, 10)
    for _ in range(300):
        world.add(5, 20)
        world.step()
        if world.outcomes[1].end:
            break
    assert world.outcomes[1].end is not None
    assert len(world.plans) < 120


def test_queue_waits_are_measured_once_for_each_admission() -> None:
    world = World(make_limits(max_batch=1), blocks=16)
    world.add(3, 2)
    world.add(3, 2)
    world.now = 1.5
    world.step()
    assert world.scheduler.take_queue_waits() == (1.5,)
    world.now = 4.0
    world.drain()
    assert world.scheduler.take_queue_waits() == (pytest.approx(4.0, abs=0.01),)


@pytest.mark.parametrize(
    "result",
    [StepResult(1, ((0, 5),)), StepResult(0, ()), StepResult(0, ((1, 5),))],
    ids=["number", "missing", "stranger"],
)
def test_results_that_cannot_be_are_our_bug(result: StepResult) -> None:
    world = World(make_limits(), blocks=16)
    world.add(3, 2)
    world.scheduler.schedule(0.0)
    with pytest.raises(InvariantError):
        world.scheduler.apply(result)


def test_the_same_id_twice_is_our_bug() -> None:
    scheduler = Scheduler(make_limits(), BlockPool(8, 8), EVERYTHING)
    request = Request(1, (1,), 1)
    assert scheduler.add(request, 0.0) is None
    with pytest.raises(InvariantError, match="twice"):
        scheduler.add(request, 0.0)


@pytest.mark.parametrize(("prompt", "max_tokens"), [((), 1), ((1,), 0)])
def test_requests_that_make_no_sense(prompt: tuple[int, ...], max_tokens: int) -> None:
    with pytest.raises(ValueError, match="request 1"):
        Request(1, prompt, max_tokens)


@pytest.mark.parametrize("field", ["max_batch", "step_tokens", "max_queue", "queue_timeout_s", "prefill_chunk_tokens"])
def test_limits_that_make_no_sense(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make_limits(**{field: -1})


def test_the_promise_to_the_largest_request_lasts_until_it_ends() -> None:
    world = World(make_limits(max_batch=1), blocks=64)
    assert world.scheduler.positions_promised == 0
    world.add(2 * BLOCK_TOKENS, 4 * BLOCK_TOKENS + 1)
    world.add(3, 5)
    assert world.scheduler.positions_promised == 6 * BLOCK_TOKENS
    world.abort(0)
    assert world.scheduler.positions_promised == 7
    world.drain()
    assert world.scheduler.positions_promised == 0


def test_k8_what_is_reserved_is_a_guess_beside_what_is_held() -> None:
    world = World(make_limits(step_tokens=256), blocks=64)
    assert world.scheduler.blocks_reserved == 0
    world.add(100, 600)
    world.step()
    held, capacity = world.scheduler.stats.blocks_used, world.scheduler.stats.blocks_total
    assert 0 < held <= capacity
    assert world.scheduler.blocks_reserved <= 1  # nobody has ended yet: no more than one to grow into is expected
    world.drain()
    assert world.scheduler.blocks_reserved == 0
    for _ in range(3):
        world.add(100, 600)
    world.step()
    used = world.scheduler.stats.blocks_used
    assert world.scheduler.blocks_reserved > 30  # 600 tokens are expected by now, and are no part of the usage
    assert used < 10
    assert world.scheduler.stats.waiting == 2
