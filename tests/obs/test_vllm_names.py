"""Our values under vLLM's names, as gateways read them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_metrics import Snapshot, scrape, speak_of

from halogend.obs.metric_table import METRICS
from halogend.obs.metrics import Metrics
from halogend.obs.vllm_names import NAMES


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics("1.0")
    made.is_vllm_too = True
    return made


def vllm(metrics: Metrics, name: str, **labels: str) -> float | None:
    return scrape(metrics).get((f"vllm:{name}", tuple(sorted(labels.items()))))


def test_they_are_there_only_when_asked_for(metrics: Metrics) -> None:
    speak_of(metrics, "chat")
    assert b"vllm:num_requests_waiting" in metrics.render()
    metrics.is_vllm_too = False
    assert b"vllm:" not in metrics.render()


def test_every_row_renames_a_row_of_ours(metrics: Metrics) -> None:
    speak_of(metrics, "chat")
    kinds = {row.name: row.kind for row in METRICS}
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    for row in NAMES:
        made = families[f"vllm:{row.name}"]
        assert made.type == kinds[row.source]
        assert made.samples
        assert all(sample.labels["model_name"] == "chat" for sample in made.samples)


def test_lanes_and_the_router_are_one_queue(metrics: Metrics) -> None:
    metrics.engine_stats("chat", 1, Snapshot(running=3, running_long=1, waiting=4, waiting_long=2))
    metrics.waiting_in_router("chat", 5)
    assert vllm(metrics, "num_requests_running", model_name="chat") == 3
    assert vllm(metrics, "num_requests_waiting", model_name="chat") == 9


def test_while_one_generation_drains_the_newest_ones_pool_counts(metrics: Metrics) -> None:
    metrics.engine_stats("chat", 9, Snapshot(running=1, blocks_total=10, blocks_used=9))
    metrics.engine_stats("chat", 10, Snapshot(running=2, blocks_total=40, blocks_used=10))
    assert vllm(metrics, "kv_cache_usage_perc", model_name="chat") == 0.25
    assert vllm(metrics, "num_requests_running", model_name="chat") == 3
    assert vllm(metrics, "cache_config_info", model_name="chat", block_size="16", num_gpu_blocks="40") == 1


def test_histograms_keep_their_buckets(metrics: Metrics) -> None:
    metrics.first_token("chat", 0.3)
    assert vllm(metrics, "time_to_first_token_seconds_bucket", model_name="chat", le="0.5") == 1
    assert vllm(metrics, "time_to_first_token_seconds_bucket", model_name="chat", le="0.25") == 0
    assert vllm(metrics, "time_to_first_token_seconds_sum", model_name="chat") == 0.3


def test_requests_end_as_there(metrics: Metrics) -> None:
    for outcome in ("stop", "stop", "length", "cancelled", "queue_full"):
        metrics.request_ended("chat", outcome, 1.0)
    metrics.request_ended("", "model_not_found", 1.0)
    ended = {labels: count for (name, labels), count in scrape(metrics).items() if name == "vllm:request_success_total"}
    assert {dict(labels)["finished_reason"]: count for labels, count in ended.items()} == {
        "stop": 2,
        "length": 1,
        "abort": 1,
    }
