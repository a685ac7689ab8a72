"""Metrics: the table, monotone counters over generations, and series that go away."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from halogend.obs.metric_table import METRICS
from halogend.obs.metrics import Metrics

STATES = ("held", "pinned", "cached", "free")


@dataclass
class Snapshot:
    running: int = 0
    waiting: int = 0
    blocks_total: int = 10
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_pinned: int = 0
    blocks_reserved: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    evictions: dict[str, int] = field(default_factory=dict)
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    running_long: int = 0
    waiting_long: int = 0
    internal_fragmentation: float = 0.0
    external_fragmentation: float = 0.0
    largest_gap_s: float = 0.0
    queue_s: tuple[float, ...] = ()
    step_s: tuple[tuple[str, float], ...] = field(default=())


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1.0")


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return scrape(metrics).get((f"halogen_{name}", tuple(sorted(labels.items()))))


def speak_of(metrics: Metrics, model: str, generation: int = 1) -> None:
    """Everything that is ever said with a model's name."""
    stats = Snapshot(
        running=1,
        waiting=2,
        blocks_used=4,
        preemptions=1,
        prompt_tokens=5,
        generated_tokens=6,
        evictions={"age": 2},
        prefix_query_tokens=8,
        prefix_hit_tokens=3,
        queue_s=(0.1,),
        step_s=(("decode", 0.02),),
    )
    metrics.generation_state(model, generation, "serving")
    metrics.engine_up(model, generation, up=True)
    metrics.replicas(model, generation, up=1, down=0)
    metrics.engine_stats(model, generation, stats)
    metrics.waiting_in_router(model, 3)
    metrics.request_ended(model, "stop", 1.0)
    metrics.first_token(model, 0.1)
    metrics.token_gap(model, 0.01)
    metrics.memory_held(model, generation, 7)
    metrics.working_surplus(model, generation, -3)
    metrics.reclaimed(model, 9, 4)


def test_every_row_can_be_written_and_is_scraped(metrics: Metrics) -> None:
    speak_of(metrics, "chat")
    metrics.reload_ended("applied", "file", successful=True, now=5.0)
    metrics.reload_phase("load", 2.0)
    metrics.active_revision("abc")
    metrics.memory("cpu:0", "weights", 7)
    metrics.access_refused("infer", "invalid_api_key")
    metrics.certificates({"admin": 9.0})
    metrics.device("cuda:0", {row.name: 1.0 for row in METRICS if row.name.startswith("device_")})
    names = {name for name, _ in scrape(metrics)}
    for row in METRICS:
        suffix = {"counter": "_total", "gauge": "", "histogram": "_count"}[row.kind]
        assert f"halogen_{row.name}{suffix}" in names
        assert row.help.endswith(".")
    assert not any(name.endswith("_created") for name in names)


def test_counters_are_monotone_over_generations_and_restarts(metrics: Metrics) -> None:
    def tell(generation: int, tokens: int) -> float | None:
        metrics.engine_stats("chat", generation, Snapshot(generated_tokens=tokens))
        return value(metrics, "generated_tokens_total", model="chat")

    assert tell(1, 10) == 10
    assert tell(1, 15) == 15
    assert tell(2, 3) == 18  # the newcomer counts from 0 while the old one drains
    assert tell(1, 16) == 19
    assert tell(2, 5) == 21
    assert tell(2, 2) == 23  # the engine was restarted
    metrics.forget_generation("chat", 1)
    assert tell(2, 4) == 25


def test_a_generation_leaves_no_gauge_behind(metrics: Metrics) -> None:
    speak_of(metrics, "chat", 1)
    speak_of(metrics, "chat", 2)
    metrics.forget_generation("chat", 1)
    left = [labels for _, labels in scrape(metrics)]
    assert not any(("generation", "1") in labels for labels in left)
    assert any(("generation", "2") in labels for labels in left)
    assert value(metrics, "requests_total", model="chat", outcome="stop") == 2


def test_l16_a_removed_model_leaves_no_series(metrics: Metrics) -> None:
    speak_of(metrics, "chat")
    speak_of(metrics, "other")
    metrics.forget("chat")
    metrics.request_ended("chat", "stop", 1.0)  # a late word must not bring it back
    metrics.engine_stats("chat", 1, Snapshot(generated_tokens=99))
    text = metrics.render().decode()
    assert '"chat"' not in text
    assert '"other"' in text


def test_a_model_that_comes_back_is_counted_from_nothing(metrics: Metrics) -> None:
    speak_of(metrics, "chat")
    metrics.forget("chat")
    speak_of(metrics, "chat", 1)
    assert value(metrics, "generated_tokens_total", model="chat") == 6


def test_one_state_a_generation_and_one_revision(metrics: Metrics) -> None:
    for state in ("loading", "serving", "draining"):
        metrics.generation_state("chat", 1, state)
    metrics.active_revision("a")
    metrics.active_revision("b")
    held = scrape(metrics)
    assert [dict(labels)["state"] for name, labels in held if name == "halogen_generation_state"] == ["draining"]
    assert [dict(labels)["revision"] for name, labels in held if name == "halogen_config_info"] == ["b"]


def test_a_failed_reload_keeps_the_time_of_the_last_good_one(metrics: Metrics) -> None:
    metrics.reload_ended("applied", "file", successful=True, now=5.0)
    metrics.reload_ended("rejected", "api", successful=False, now=9.0)
    assert value(metrics, "config_last_reload_successful") == 0
    assert value(metrics, "config_last_reload_success_timestamp_seconds") == 5.0
    assert value(metrics, "reloads_total", outcome="rejected", trigger="api") == 1


def test_k8_usage_is_occupancy_and_what_is_reserved_stands_apart(metrics: Metrics) -> None:
    stats = Snapshot(blocks_total=16, blocks_used=12, blocks_pinned=2, blocks_cached=3, blocks_reserved=90)
    metrics.engine_stats("chat", 1, stats)
    held = {"model": "chat", "generation": "1"}
    assert value(metrics, "cache_usage", **held) == 0.75
    assert value(metrics, "cache_reserved_blocks", **held) == 90
    states = {state: value(metrics, "cache_blocks", state=state, **held) for state in STATES}
    assert states == {"held": 10, "pinned": 2, "cached": 3, "free": 1}
    metrics.engine_stats("chat", 1, Snapshot(blocks_total=0))
    assert value(metrics, "cache_usage", **held) == 0


@given(st.data())
def test_k8_usage_is_never_above_one_and_the_states_are_the_whole_pool(data: st.DataObject) -> None:
    metrics = Metrics("1.0")
    total = data.draw(st.integers(1, 50))
    used = data.draw(st.integers(0, total))
    stats = Snapshot(
        blocks_total=total,
        blocks_used=used,
        blocks_pinned=data.draw(st.integers(0, used)),
        blocks_cached=data.draw(st.integers(0, total - used)),
        blocks_reserved=data.draw(st.integers(0, 10 * total)),
    )
    metrics.engine_stats("chat", 1, stats)
    held = {"model": "chat", "generation": "1"}
    assert 0 <= value(metrics, "cache_usage", **held) <= 1
    assert sum(value(metrics, "cache_blocks", state=state, **held) for state in STATES) == total


def test_reuse_and_evictions_are_counted_over_generations_and_restarts(metrics: Metrics) -> None:
    metrics.engine_stats("chat", 1, Snapshot(prefix_query_tokens=100, prefix_hit_tokens=40, evictions={"age": 5}))
    metrics.engine_stats("chat", 1, Snapshot(prefix_query_tokens=150, prefix_hit_tokens=80, evictions={"age": 6}))
    metrics.engine_stats("chat", 2, Snapshot(prefix_query_tokens=10, evictions={"age": 1, "window": 7}))
    metrics.engine_stats("chat", 2, Snapshot(prefix_query_tokens=5, evictions={"window": 2}))  # started anew
    assert value(metrics, "prefix_cache_queries_total", model="chat") == 165
    assert value(metrics, "prefix_cache_hits_total", model="chat") == 80
    assert value(metrics, "evictions_total", model="chat", reason="age") == 7
    assert value(metrics, "evictions_total", model="chat", reason="window") == 9


def test_lanes_and_fragmentation_and_the_largest_gap_of_late(metrics: Metrics) -> None:
    held = {"model": "chat", "generation": "1"}
    stats = Snapshot(running=5, running_long=1, waiting=9, waiting_long=7, internal_fragmentation=0.02)
    metrics.engine_stats("chat", 1, replace(stats, external_fragmentation=0.08, largest_gap_s=0.9))
    assert [value(metrics, "requests_running", lane=lane, **held) for lane in ("short", "long")] == [4, 1]
    assert [value(metrics, "requests_waiting", lane=lane, **held) for lane in ("short", "long")] == [2, 7]
    assert [value(metrics, "cache_fragmentation", kind=k, **held) for k in ("internal", "external")] == [0.02, 0.08]
    for _ in range(59):
        metrics.engine_stats("chat", 1, replace(stats, largest_gap_s=0.1))
    assert value(metrics, "largest_gap_seconds", **held) == 0.9
    metrics.engine_stats("chat", 1, replace(stats, largest_gap_s=0.1))
    assert value(metrics, "largest_gap_seconds", **held) == 0.1


def test_what_is_kept_free_and_what_others_use_go_with_their_device(metrics: Metrics) -> None:
    metrics.memory("cpu:1", "weights", 5)
    metrics.rooms({"cpu:0": (3, 4), "cpu:1": (1, 2)})
    assert value(metrics, "memory_bytes", device="cpu:1", use="foreign") == 2
    metrics.rooms({"cpu:0": (9, 0)})
    assert value(metrics, "memory_bytes", device="cpu:0", use="reserve") == 9
    assert value(metrics, "memory_bytes", device="cpu:1", use="foreign") is None
    assert value(metrics, "memory_bytes", device="cpu:1", use="weights") == 5


def test_what_is_not_told_of_a_device_any_more_has_no_series(metrics: Metrics) -> None:
    metrics.device("cuda:0", {"device_temperature_celsius": 61.0, "device_rest_ratio": 0.0})
    metrics.device("cuda:0", {"device_temperature_celsius": None, "device_rest_ratio": 0.25})
    told = {name: value for (name, _), value in scrape(metrics).items() if name.startswith("halogen_device_")}
    assert told == {"halogen_device_rest_ratio": 0.25}
