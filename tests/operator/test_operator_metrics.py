"""What the operator counts: every row can be written and is scraped."""

from collections.abc import Iterator

import pytest
from halogen_operator.metrics import METRICS, Metrics
from prometheus_client.parser import text_string_to_metric_families

CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "False"}]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1.0")


def scraped(metrics: Metrics) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(metrics.render().decode()):
        yield from ((sample.name, sample.labels, sample.value) for sample in family.samples)


def test_every_row_is_scraped_and_nothing_else(metrics: Metrics) -> None:
    metrics.reconciled("ok", 0.1)
    metrics.called("get", "Pod", 200, 0.1)
    metrics.pushed("applied")
    metrics.watch_restarted()
    metrics.paused(is_paused=False)
    metrics.queue_depth(1)
    metrics.models(2)
    metrics.event_age("Pod", None, 3.0)
    metrics.conditions("models", "chat", CONDITIONS)
    names = {name for name, _, _ in scraped(metrics)}
    assert {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in names} == set(METRICS)
    assert not any(name.endswith("_created") for name in names)


def test_what_is_a_matter_of_the_moment_is_asked_at_each_scrape(metrics: Metrics) -> None:
    depths = iter([4, 5])
    metrics.before_scrape(lambda: metrics.queue_depth(next(depths)))
    for depth in (4, 5):
        assert ("halogen_operator_queue_depth", {}, depth) in list(scraped(metrics))


def test_a_model_that_is_gone_leaves_no_series(metrics: Metrics) -> None:
    metrics.conditions("models", "chat", CONDITIONS)
    metrics.conditions("models", "code", CONDITIONS)
    metrics.forget("models", "chat")
    metrics.forget("models", "never told of")
    named = {labels["name"] for name, labels, _ in scraped(metrics) if name == "halogen_operator_model_condition"}
    assert named == {"code"}
