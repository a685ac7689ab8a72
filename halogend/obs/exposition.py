"""A registry's text for a scrape. Owns what is left out of it; must never know a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
More = Callable[[Iterable[Family]], Iterable[Family]]


def exposition(registry: CollectorRegistry, more: More | None = None) -> bytes:
    """Prometheus text format, for CONTENT_TYPE, without the `_created` series, which double it for nothing. `more`
    makes further families of the registry's own."""
    return generate_latest(_Shown(registry, more))


class _Shown(Collector):
    def __init__(self, registry: CollectorRegistry, more: More | None) -> None:
        self._registry = registry
        self._more = more

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
        if self._more is not None:
            yield from self._more(self._registry.collect())
