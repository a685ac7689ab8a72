"""KV memory as an operator sees it: always an answer, of what was said last, with its age."""

import json

import msgspec
import pytest
from support.played.world import until

from halogend.control.cache_view import cache_view
from halogend.control.receipts import Milestone

SAID = {
    "blocks_used": 12,
    "blocks_total": 20,
    "blocks_pinned": 2,
    "blocks_cached": 5,
    "blocks_reserved": 70,
    "evictions": {"window": 1, "age": 4},
    "prefix_query_tokens": 400,
    "prefix_hit_tokens": 100,
    "internal_fragmentation": 0.03125,
    "external_fragmentation": 0.0625,
    "running": 5,
    "running_long": 1,
    "waiting": 9,
    "waiting_long": 7,
    "largest_gap_s": 0.25,
}


@pytest.fixture
async def said(serving):
    """A world whose one engine has said `SAID`, and its replica."""
    there = await serving()
    await there.ask("a")
    (replica,) = there.unit("a").serving.replicas
    await until(lambda: replica.stats, "the engine has told of itself")
    replica._receive("engine", msgspec.structs.replace(replica.stats, **SAID))
    return there, replica


async def test_k8_what_is_used_is_occupancy_and_what_is_reserved_stands_apart(said):
    there, replica = said
    (pool,) = cache_view(there.house, replica.told_at)["models"]["a"]
    blocks = {name: pool[f"blocks_{name}"] for name in ("total", "used", "pinned", "cached", "free", "reserved")}
    assert blocks == {"total": 20, "used": 12, "pinned": 2, "cached": 5, "free": 3, "reserved": 70}
    assert pool["usage"] == 0.6
    assert pool["evictions"] == {"age": 4, "window": 1}
    assert pool["prefix"] == {"query_tokens": 400, "hit_tokens": 100, "hit_rate": 0.25}
    assert pool["fragmentation"] == {"internal": 0.0312, "external": 0.0625}
    assert (pool["running"], pool["running_long"], pool["waiting"], pool["waiting_long"]) == (5, 1, 9, 7)
    assert (pool["generation"], pool["role"], pool["age_s"]) == (1, "serving", 0.0)


async def test_k9_while_an_engine_computes_a_long_prompt_the_last_snapshot_is_shown_with_its_age(said):
    there, replica = said
    long = there.stage.hold("generate", prompt="long")
    answer = await there.submit("a", "long")
    held = await long.reached()
    before, later = (cache_view(there.house, replica.told_at + age_s) for age_s in (0.0, 42.0))
    assert later["models"]["a"][0] == {**before["models"]["a"][0], "age_s": 42.0}
    assert json.loads(json.dumps(later)) == later
    held.say("go")
    await until(lambda: answer.has_token, "it answers")


async def test_a_generation_that_has_said_nothing_yet_is_left_out_and_one_that_drains_is_not(said):
    there, replica = said
    slow = there.stage.hold("generate", prompt="slow")
    await there.submit("a", "slow", 5)
    (await slow.reached()).say("token")
    await there.apply(there.model("a", "b"), until=Milestone.SERVING)
    pools = cache_view(there.house, replica.told_at)["models"]["a"]
    assert ("draining", 1) in [(pool["role"], pool["generation"]) for pool in pools]
