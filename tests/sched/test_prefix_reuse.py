"""What is found again, and what is not: shared blocks, copies, sessions, and what goes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

import pytest
from support.reuse_traffic import ReuseWorld

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.chain import Chain
from halogend.sched.errors import InvariantError
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy, SessionClass
from halogend.sched.request import ANYBODY, Caller

DEPTHS = pytest.mark.parametrize("depth", [0, 1])
FULL = KvLayout((None,))
GEMMA = KvLayout((None, 20, 20, 20, 20, 20))  # five tables with a window to one that sees everything


def words(start: int, count: int) -> tuple[int, ...]:
    """A text of its own for each `start`."""
    return tuple((start * 31 + place * 7 + place // 5) % 97 for place in range(count))


def make_world(*, blocks: int = 256, depth: int = 0, layout: KvLayout = FULL) -> ReuseWorld:
    return ReuseWorld(blocks=blocks, depth=depth, layout=layout)


def say(world: ReuseWorld, prompt: Iterable[int], caller: Caller = ANYBODY, max_tokens: int = 2) -> int:
    """Serves it alone to its end; how many positions were found."""
    number = len(world.reused)
    assert world.ask(tuple(prompt), max_tokens, caller=caller) is None
    world.drain()
    return world.reused[number]


def session(name: str, **more: object) -> Caller:
    return Caller(session=name, **more)  # type: ignore[arg-type]  # fields of the caller


@DEPTHS
@pytest.mark.parametrize("layout", [FULL, GEMMA], ids=["full", "gemma"])
def test_k7_the_next_turn_goes_on_from_the_last_full_block(depth: int, layout: KvLayout) -> None:
    """K7: a document in message one, a new question in message two."""
    world = make_world(depth=depth, layout=layout)
    document = words(1, 150)
    assert say(world, (*document, *words(2, 10)), max_tokens=9) == 0
    said = (*document, *words(2, 10), *world.outcomes[0].tokens)
    assert say(world, (*document, *words(3, 12))) == 144  # another question
    assert say(world, (*said, *words(4, 8))) == 160  # it goes on: 168 were computed
    assert world.scheduler.reuse.hit_tokens == 144 + 160


def test_k7_fewer_than_a_block_in_common_is_nothing_in_common() -> None:
    world = make_world()
    assert say(world, (*words(1, 15), *words(2, 20))) == 0
    assert say(world, (*words(1, 15), *words(3, 20))) == 0


@DEPTHS
@pytest.mark.parametrize("layout", [FULL, GEMMA], ids=["full", "gemma"])
def test_a_prompt_that_is_there_as_a_whole_copies_its_last_block(depth: int, layout: KvLayout) -> None:
    """Its last token is computed once more, and nobody else's block is written: the runner compares."""
    world = make_world(depth=depth, layout=layout)
    prompt = words(1, 64)
    say(world, prompt)
    assert say(world, prompt, max_tokens=20) == 63
    (copying,) = [plan for plan in world.plans if plan.copies]
    (item,) = copying.items
    assert (item.start, item.count) == (63, 1)
    old, new = zip(*copying.copies, strict=True)
    assert len({*old, *new}) == 2 * layout.tables


def test_without_room_for_a_copy_the_last_block_is_computed() -> None:
    world = make_world(blocks=1 + 3)
    say(world, words(1, 48), max_tokens=1)
    assert say(world, words(1, 48), max_tokens=1) == 32
    assert not any(plan.copies for plan in world.plans)


@DEPTHS
def test_requests_that_run_together_share_and_the_same_work_is_kept_once(depth: int) -> None:
    world = make_world(depth=depth)
    system = words(1, 64)
    for number in range(3):
        world.ask((*system, *words(number + 2, 4)), 30)
    for _ in range(4):
        world.step()
    tables = [sequence.blocks[0] for sequence in world.scheduler._running]
    assert len(tables) == 3
    assert tables[0][:4] == tables[1][:4] == tables[2][:4]  # computed three times, kept once
    assert len({table[4] for table in tables}) == 3
    assert world.scheduler.stats.blocks_used == 4 + 3
    world.drain()


def test_scopes_never_find_each_other_s() -> None:
    world = make_world()
    prompt = words(1, 80)
    assert say(world, prompt, Caller(scope=b"a")) == 0
    assert say(world, prompt, Caller(scope=b"b")) == 0
    assert say(world, prompt, Caller(scope=b"a")) == 79


def test_k1_a_session_s_newer_turns_supersede_its_older_ones() -> None:
    """K1: A still hits after B's twenty turns, each of which goes on from the same place."""
    world = make_world(blocks=1 + 40)
    a, b = words(1, 160), words(2, 160)
    say(world, a, session("a"))
    for turn in range(20):
        say(world, (*b, *words(turn + 10, 60)), session("b"))
    assert say(world, a, session("a")) == 159
    assert world.scheduler.reuse.evictions.keys() == {"superseded"}


def test_k1_a_session_that_begins_anew_supersedes_what_it_had() -> None:
    world = make_world(blocks=1 + 40)
    a = words(1, 160)
    say(world, a, session("a"))
    for turn in range(20):
        say(world, words(turn + 10, 220), session("b"))
    assert say(world, a, session("a")) == 159


@DEPTHS
def test_k2_what_was_matched_is_not_evicted_for_the_rest(depth: int) -> None:
    """K2: the pool is full of the prefix that the request has found, and of nothing else that could go."""
    world = make_world(blocks=1 + 12, depth=depth)
    prefix = words(1, 128)
    say(world, prefix)
    assert say(world, (*prefix, *words(2, 60))) == 128
    say(world, words(3, 32))
    assert say(world, (*prefix, *words(4, 62))) == 128


def test_k3_the_shared_prefix_goes_last() -> None:
    """K3: conversations under one system prompt come and go; nobody's end harms another, and it stays."""
    world = make_world(blocks=1 + 24)
    system = words(1, 64)
    for number in range(12):
        found = say(world, (*system, *words(number + 2, 100)))
        assert found == (64 if number else 0)
    assert sum(world.scheduler.reuse.evictions.values()) > 50


@pytest.mark.parametrize("depth", [0, 1])
def test_k3_one_s_end_leaves_the_others_their_blocks(depth: int) -> None:
    world = make_world(blocks=1 + 24, depth=depth)
    system = words(1, 64)
    for number in range(3):
        world.ask((*system, *words(number + 2, 20)), 40)
    world.step()
    world.abort(0)
    for _ in range(5):
        world.step()
    world.abort(1)
    world.drain()


def test_k4_own_stale_branches_go_before_a_live_conversation() -> None:
    """K4: a long conversation is older than all that the asker left behind, and stays as a whole."""
    world = make_world(blocks=1 + 100)
    long = words(1, 1000)  # 63 blocks
    say(world, long, session("long"))
    for turn in range(15):
        say(world, (*words(2, 100), *words(10 + turn, 150)), session("asker"))
    assert say(world, long, session("long")) == 992
    assert world.scheduler.reuse.evictions["superseded"] > 0


def test_k4_others_stale_branches_go_only_after_the_asker_s() -> None:
    world = make_world(blocks=1 + 40)
    first = [words(1, 32), words(2, 96)]
    say(world, (*first[0], *first[1]), session("other"))
    say(world, (*first[0], *words(3, 96)), session("other"))  # now 6 blocks of it are stale
    say(world, (*words(4, 32), *words(5, 96)), session("asker"))
    say(world, (*words(4, 32), *words(6, 96)), session("asker"))
    say(world, (*words(4, 32), *words(7, 256)), session("asker"))  # needs 16, 12 of them free
    assert say(world, (*first[0], *first[1])) == 127


def test_k5_tokens_are_the_same_with_reuse_and_without() -> None:
    """K5: every answer is compared with the naive model's by `drain`; here prompts differ late and end early."""
    world = make_world(blocks=1 + 70, layout=GEMMA)
    for number in range(12):
        say(world, (*words(1, 33 + 7 * (number % 5)), *words(number % 3, 5 * number)), max_tokens=1 + number)
    assert world.scheduler.reuse.hit_tokens > 0


def test_the_branch_that_comes_back_later_goes_first() -> None:
    """Round robin of four with room for three: plain LRU would find the system prompt alone."""
    world = make_world(blocks=1 + 4 + 3 * 8 + 2)
    system = words(1, 64)
    found = [say(world, (*system, *words(2 + turn % 4, 128)), max_tokens=1) for turn in range(60)]
    own = sum(found[20:]) - 64 * 40
    assert own > 0.45 * 128 * 40  # two thirds are the optimum


def test_one_shot_prompts_do_not_push_out_what_comes_again() -> None:
    world = make_world(blocks=1 + 40)
    regular = words(1, 160)
    for _ in range(4):
        say(world, regular)
        say(world, words(90, 100))
    found = []
    for number in range(40):
        say(world, words(number + 100, 200))
        if number % 3 == 0:
            found.append(say(world, regular))
    assert found[7:] == [159] * 7  # plain LRU never finds it


def test_sliding_tables_keep_what_a_next_turn_needs_and_little_else() -> None:
    """Of a long conversation the windows at its end stay; what lies behind them goes before anything else."""
    world = make_world(blocks=1 + 130, layout=GEMMA)
    long = words(1, 500)  # 31 blocks, six times
    say(world, long)
    say(world, words(2, 300))
    assert world.scheduler.reuse.evictions.keys() == {"window"}
    assert say(world, (*long, *words(3, 9))) == 496


def test_where_a_prompt_ended_windows_stay_too() -> None:
    """A template may leave out what was thought: then the next turn goes on from the prompt, not from the answer."""
    world = make_world(blocks=1 + 130, layout=GEMMA)
    prompt = words(1, 160)
    say(world, prompt, max_tokens=150)
    say(world, words(2, 300))
    assert world.scheduler.reuse.evictions["window"] > 0
    assert say(world, (*prompt, *words(3, 30))) == 160


def test_who_gives_way_pins_nothing() -> None:
    policy = EvictionPolicy("priority_lru", (SessionClass("gold", 0, 0.9, 60.0),))
    world = make_world(blocks=1 + 12)
    world.scheduler.update(replace(world.limits, eviction=policy))
    for number in range(3):
        world.ask(words(number, 40), 80, caller=session(f"{number}", klass="gold"))
    while not world.scheduler.stats.preemptions:
        world.step()
        assert world.scheduler.reuse.blocks_pinned == 0
    world.drain()


def test_a_class_s_pins_stay_until_its_time_is_over() -> None:
    gold = EvictionPolicy("priority_lru", (SessionClass("gold", 10, 0.5, 60.0),))
    world = make_world(blocks=1 + 40)
    world.scheduler.update(replace(world.limits, eviction=gold))
    pinned = words(1, 160)
    say(world, pinned, session("a", klass="gold"))
    assert world.scheduler.reuse.blocks_pinned == 10
    assert world.scheduler.stats.blocks_used == 10
    for number in range(8):
        world.now += 5
        say(world, words(number + 2, 400))
    assert say(world, pinned, session("a", klass="gold")) == 159
    world.now += 61
    say(world, words(50, 400))
    assert world.scheduler.reuse.blocks_pinned == 0


def test_a_quota_holds_the_newest_and_no_more() -> None:
    policy = EvictionPolicy("priority_lru", (SessionClass("gold", 0, 0.3, 60.0),))
    world = make_world(blocks=1 + 40)  # 12 blocks may be pinned
    world.scheduler.update(replace(world.limits, eviction=policy))
    for number in range(4):
        say(world, words(number, 90), session(f"{number}", klass="gold"))
        assert world.scheduler.reuse.blocks_pinned <= 12
    assert world.scheduler.reuse.blocks_pinned == 10
    say(world, words(9, 320), session("9", klass="gold"))  # 20 blocks: as much of it as there is quota for
    assert world.scheduler.reuse.blocks_pinned == 12
    world.scheduler.update(replace(world.limits, eviction=EvictionPolicy()))
    assert world.scheduler.reuse.blocks_pinned == 0


def test_pins_give_way_to_one_who_is_alone_and_to_a_smaller_pool() -> None:
    policy = EvictionPolicy("priority_lru", (SessionClass("gold", 0, 0.5, 60.0),))
    world = make_world(blocks=1 + 20)
    world.scheduler.update(replace(world.limits, eviction=policy))
    say(world, words(1, 160), session("a", klass="gold"))
    assert world.scheduler.reuse.blocks_pinned == 10
    assert say(world, words(2, 300)) == 0  # 19 blocks
    assert world.scheduler.reuse.blocks_pinned == 0
    say(world, words(1, 160), session("a", klass="gold"))
    world.resize(6)
    assert world.scheduler.reuse.blocks_pinned == 0
    world.scheduler.audit()


def test_a_lower_class_goes_first_whatever_its_age() -> None:
    classes = (SessionClass("gold", 10), SessionClass("tin", -1))
    for policy, found in (("priority_lru", 159), ("lru", 0)):
        world = make_world(blocks=1 + 24)
        world.scheduler.update(replace(world.limits, eviction=EvictionPolicy(policy, classes)))
        say(world, words(1, 160), Caller(klass="gold"))
        for number in range(6):
            say(world, words(number + 2, 160), Caller(klass="tin"))
        assert say(world, words(1, 160), Caller(klass="gold")) == found


@DEPTHS
@pytest.mark.parametrize("steps", range(7))
def test_abort_at_every_moment(steps: int, depth: int) -> None:
    """In the queue, while it shares, while its copy is made, in prefill, in decode."""
    world = make_world(blocks=1 + 26, depth=depth, layout=KvLayout((None, 20)))
    prompt = words(1, 48)
    say(world, prompt)
    world.ask(prompt, 20)
    world.ask((*prompt, *words(2, 120)), 20)
    for _ in range(steps):
        world.step()
    for request_id in (2, 1):
        world.abort(request_id)
        world.scheduler.audit()
    world.drain()
    assert say(world, prompt) == 47


def test_a_request_that_failed_leaves_nothing_to_others() -> None:
    """What made its output go wrong may be in what it wrote."""
    world = make_world()
    prompt = words(1, 70)
    world.ask(prompt, 20)
    world.step()
    world.step()
    world.failing = frozenset({0})
    world.step()
    world.failing = frozenset()
    assert world.outcomes[0].end.code == "numeric_error"
    assert world.pool.cached_count == 0
    assert say(world, prompt) == 0


@pytest.mark.parametrize("limit", [24, 16, 12])
def test_a_smaller_pool_moves_shared_and_cached_blocks(limit: int) -> None:
    world = make_world(blocks=1 + 40)
    system = words(1, 64)
    say(world, words(9, 100))
    for number in range(2):
        world.ask((*system, *words(number + 2, 20)), 30)
    for _ in range(4):
        world.step()
    world.resize(limit)
    world.scheduler.audit()
    world.drain()
    world.resize(1 + 40)
    assert say(world, (*system, *words(2, 20))) >= 64


def test_k6_a_block_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """K6: the cost of a cold prompt is one hash a block, in chunks, in decode and after it gave way too."""
    hashed = []

    def counted(data: bytes) -> object:
        hashed.append(data)
        return sha256(data)

    monkeypatch.setattr("halogend.sched.chain.sha256", counted)
    world = make_world()
    world.scheduler.update(replace(world.limits, prefill_chunk_tokens=10))
    say(world, words(1, 500), max_tokens=61)
    assert len(hashed) == 1 + 560 // BLOCK_TOKENS  # and the scope
    assert len(set(hashed)) == len(hashed)


def test_usage_never_counts_more_found_than_asked() -> None:
    """K8: a request that gives way and comes back asks once."""
    world = make_world(blocks=8)
    for number in range(4):
        world.ask(words(number, 20), 50)
    world.drain()
    assert world.scheduler.stats.preemptions > 0
    reuse = world.scheduler.reuse
    assert (reuse.query_tokens, reuse.hit_tokens) == (80, 0)


def test_a_block_that_two_nodes_have_is_found() -> None:
    world = make_world()
    say(world, words(1, 100))
    first, second, *_ = world.scheduler._tables._index
    first.blocks = second.blocks
    with pytest.raises(InvariantError):
        world.scheduler.audit()


def test_a_user_that_is_not_there_is_found() -> None:
    world = make_world()
    say(world, words(1, 100))
    next(iter(world.scheduler._tables._index)).users = 1
    with pytest.raises(InvariantError, match="users"):
        world.scheduler.audit()


def test_chains_of_different_tokens_differ_and_grow_with_them() -> None:
    tokens = list(words(1, 40))
    chain = Chain(b"", tokens)
    assert chain.key(1) != Chain(b"", [*tokens[:16], *words(2, 16)]).key(1)
    with pytest.raises(InvariantError, match="not full"):
        chain.key(2)
    tokens += words(3, 3000)
    assert chain.key(150) == Chain(b"", tokens).key(150)
    assert chain.key(150) != Chain(b"a", tokens).key(150)


def test_prompt_tokens_are_those_that_were_computed() -> None:
    world = make_world(blocks=65)
    prompt = tuple(range(64))
    world.ask(prompt, 1)
    world.drain()
    world.ask((*prompt, 1), 1)
    world.drain()
    assert world.scheduler.reuse.hit_tokens == 64
    assert world.scheduler.stats.prompt_tokens == 64 + 1
