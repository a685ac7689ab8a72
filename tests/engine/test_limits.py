"""Whether new limits can be taken live, with the tables of sliding models."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.counting_runner import CountingRunner, make_loaded
from support.engine_client import make_engine_limits
from support.engine_driver import engine_spec

from halogend.config.schema import ModelConfig
from halogend.control import facts
from halogend.control.facts import AUTO_STEP_TOKENS as PLANNED_STEP_TOKENS
from halogend.engine import loading
from halogend.engine.interface import Loaded
from halogend.engine.limits import AUTO_STEP_TOKENS, check_limits, least_blocks, sched_caller, sched_limits
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy, LongLane, SessionClass, Watermarks
from halogend.sched.request import Caller
from halogend.wire import policy as wire
from halogend.wire.policy import EnginePolicy

CONTEXT = 4096
BLOCK = 64  # bytes
GOLD = wire.SessionClass(name="gold", priority=10, pin_quota=0.2, ttl_s=900.0)


def sliding() -> Loaded:
    """One table of everything and two of 32 positions."""
    layout = KvLayout((None, 32, 32))
    return make_loaded(CountingRunner(8), block_count=200, reserve_blocks=2000, layout=layout)


@pytest.mark.parametrize(
    ("chunk", "blocks"),
    [
        (16, 1 + 64 + 2 * 4),  # 32 - 1 + 16 positions in a row touch 4 blocks at most
        (64, 1 + 64 + 2 * 7),
        (0, 1 + 64 + 2 * 19),  # as many as a step computes: 256
        (5000, 1 + 3 * 64),  # the whole request in one step
    ],
)
def test_the_least_pool_follows_windows_and_chunk(chunk: int, blocks: int) -> None:
    def refusal(pool: int) -> str | None:
        limits = make_engine_limits(max_model_len=1024, prefill_chunk_tokens=chunk, pool_bytes=pool * BLOCK)
        failure = check_limits(limits, sliding(), CONTEXT, 0)
        return failure.message if failure else None

    assert refusal(blocks) is None
    assert "one request of 1024 tokens" in refusal(blocks - 1)
    assert f"({blocks * BLOCK} bytes)" in refusal(blocks - 1)


def test_what_was_accepted_is_counted_with_the_new_chunk() -> None:
    limits = make_engine_limits(max_model_len=64, prefill_chunk_tokens=64, pool_bytes=(1 + 64 + 14) * BLOCK)
    assert check_limits(limits, sliding(), CONTEXT, 1024) is None
    larger = make_engine_limits(max_model_len=64, prefill_chunk_tokens=128, pool_bytes=(1 + 64 + 14) * BLOCK)
    assert "accepted already" in check_limits(larger, sliding(), CONTEXT, 1024).message


def test_a_chunk_left_to_us_is_planned_as_it_is_run() -> None:
    assert PLANNED_STEP_TOKENS == AUTO_STEP_TOKENS
    assert sched_limits(make_engine_limits(prefill_chunk_tokens=0)).request_step_tokens == AUTO_STEP_TOKENS


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 6, 8, 64])
def test_threads_of_a_load_are_planned_as_they_are_taken(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.os, "sched_getaffinity", lambda _: set(range(cores)))
    model = ModelConfig(name="m", model="m.gguf")
    assert facts._load_threads(model, cores) == loading.load_threads(engine_spec(Path("m.gguf"), load_threads=0))


@pytest.mark.parametrize("chunk", [1, 16, 255, 257, 4096])
def test_a_chunk_of_the_document_is_the_most_of_a_step(chunk: int) -> None:
    assert sched_limits(make_engine_limits(prefill_chunk_tokens=chunk)).request_step_tokens == chunk


def test_every_field_of_the_policy_reaches_the_scheduler() -> None:
    policy = EnginePolicy(
        max_queue_tokens=1000,
        prefill_timeout_s=1.5,
        max_gap_s=0.1,
        long_threshold_tokens=77,
        long_concurrent=2,
        soft=0.5,
        hard=0.6,
        min_free_ratio=0.1,
        eviction="priority_lru",
        classes=(GOLD,),
    )
    limits = sched_limits(make_engine_limits(policy=policy))
    assert (limits.max_queue_tokens, limits.prefill_timeout_s, limits.max_gap_s) == (1000, 1.5, 0.1)
    assert limits.long == LongLane(77, 2)
    assert limits.watermarks == Watermarks(0.5, 0.6)
    assert limits.min_free_ratio == 0.1
    assert limits.eviction == EvictionPolicy("priority_lru", (SessionClass("gold", 10, 0.2, 900.0),))


def test_lanes_and_watermarks_are_off_at_0() -> None:
    limits = sched_limits(make_engine_limits(policy=EnginePolicy(long_threshold_tokens=0, soft=0, hard=0)))
    assert (limits.long, limits.watermarks) == (None, None)


@pytest.mark.parametrize(
    ("klass", "scope", "expected"),
    [
        ("gold", "key", Caller(b"team-a", "team-a", 2.0, "gold", "team-a\ntalk")),
        ("gold", "shared", Caller(b"", "team-a", 2.0, "gold", "team-a\ntalk")),
        ("", "key", Caller(b"team-a", "team-a", 2.0, "", "team-a\ntalk")),
        ("gone", "key", Caller(b"team-a", "team-a", 2.0, "gone", "team-a\ntalk")),  # it may be named again
    ],
)
def test_words_of_a_caller_become_the_scheduler_s(klass: str, scope: str, expected: Caller) -> None:
    asked = wire.Caller(key="team-a", weight=2.0, klass=klass, session="talk")
    policy = EnginePolicy(classes=(GOLD,), cache_scope=scope)
    assert sched_caller(asked, policy) == expected
    assert sched_caller(wire.Caller(key="team-b", session="talk"), policy).session != expected.session
    assert sched_caller(wire.Caller(key="team-a"), policy).session == ""


def test_a_block_for_each_table_at_least() -> None:
    assert least_blocks(make_engine_limits(), sliding(), 1) == 1 + 3
