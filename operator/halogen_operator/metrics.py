"""What the operator counts, and how it is read.

Owns every metric of the operator in one table. Must never ask anybody anything: a scrape shows what was told last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from halogend.obs.exposition import exposition

_SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)

METRICS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "halogen_operator_build_info": ("1, with the operator's version", ("version",)),
    "halogen_operator_reconciles_total": ("Looks at a HalogenModel; outcome: ok, conflict or error", ("outcome",)),
    "halogen_operator_reconcile_seconds": ("How long a look takes", ()),
    "halogen_operator_queue_depth": ("HalogenModels that are due and wait for a worker", ()),
    "halogen_operator_api_requests_total": (
        "Calls to the API server, watches left out; code 0: no answer",
        ("verb", "kind", "code"),
    ),
    "halogen_operator_api_request_seconds": ("How long such a call takes", ("verb",)),
    "halogen_operator_pushes_total": (
        "Documents handed to pods; outcome: what came back at once, or error",
        ("outcome",),
    ),
    "halogen_operator_watch_restarts_total": ("How often watching had to begin anew after an error", ()),
    "halogen_operator_last_event_age_seconds": (
        "Seconds since a watch said anything, bookmarks included; namespace is empty for all of them",
        ("kind", "namespace"),
    ),
    "halogen_operator_is_paused": ("1 while another operator goes first", ()),
    "halogen_operator_models": ("HalogenModels looked after", ()),
    "halogen_operator_model_condition": (
        "1 if the condition of a HalogenModel is True, else 0",
        ("namespace", "name", "type"),
    ),
}
"""Name -> what it says, labels."""


class Metrics:
    """One registry of its own. One writer: the event loop."""

    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry()
        made = {name: _make(name, text, labels, self._registry) for name, (text, labels) in METRICS.items()}
        self._made: dict[str, Any] = made
        self._conditions: dict[tuple[str, str], tuple[str, ...]] = {}
        self._before: list[Callable[[], None]] = []
        self._of("build_info", version).set(1)
        self._of("watch_restarts_total")
        self._of("is_paused").set(0)

    def before_scrape(self, tell: Callable[[], None]) -> None:
        """Called at each scrape, to tell what is a matter of the moment. It must not wait."""
        self._before.append(tell)

    def reconciled(self, outcome: str, seconds: float) -> None:
        """`outcome`: ok, conflict or error."""
        self._of("reconciles_total", outcome).inc()
        self._of("reconcile_seconds").observe(seconds)

    def looks(self) -> float:
        """How many looks there were."""
        samples = self._made["halogen_operator_reconciles_total"].collect()[0].samples
        return float(sum(each.value for each in samples if each.name.endswith("_total")))

    def called(self, verb: str, kind: str, status: int, seconds: float) -> None:
        """As `kube.Observe`."""
        self._of("api_requests_total", verb, kind, str(status)).inc()
        self._of("api_request_seconds", verb).observe(seconds)

    def pushed(self, outcome: str) -> None:
        """`outcome`: what a pod answered at once, or `error`."""
        self._of("pushes_total", outcome).inc()

    def watch_restarted(self) -> None:
        """Watching ended by an error and begins anew."""
        self._of("watch_restarts_total").inc()

    def paused(self, *, is_paused: bool) -> None:
        """Whether another operator goes first."""
        self._of("is_paused").set(int(is_paused))

    def queue_depth(self, count: int) -> None:
        """HalogenModels that wait for a worker."""
        self._of("queue_depth").set(count)

    def models(self, count: int) -> None:
        """HalogenModels in the store."""
        self._of("models").set(count)

    def event_age(self, kind: str, namespace: str | None, seconds: float) -> None:
        """Of one watch."""
        self._of("last_event_age_seconds", kind, namespace or "").set(seconds)

    def conditions(self, namespace: str, name: str, conditions: Sequence[Mapping[str, Any]]) -> None:
        """Of one HalogenModel, as its status has them."""
        for condition in conditions:
            is_true = condition["status"] == "True"
            self._of("model_condition", namespace, name, condition["type"]).set(int(is_true))
        self._conditions[namespace, name] = tuple(each["type"] for each in conditions)

    def forget(self, namespace: str, name: str) -> None:
        """The series of a HalogenModel that is gone."""
        for each in self._conditions.pop((namespace, name), ()):
            self._made["halogen_operator_model_condition"].remove(namespace, name, each)

    def forget_all(self) -> None:
        """The series of every HalogenModel: another operator looks after them, and has its own."""
        for namespace, name in tuple(self._conditions):
            self.forget(namespace, name)

    def render(self) -> bytes:
        """Text for a scrape."""
        for tell in self._before:
            tell()
        return exposition(self._registry)

    def _of(self, name: str, *labels: str) -> Any:
        metric = self._made[f"halogen_operator_{name}"]
        return metric.labels(*labels) if labels else metric


def _make(name: str, text: str, labels: tuple[str, ...], registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if name.endswith("_total"):
        return Counter(name.removesuffix("_total"), text, labels, registry=registry)
    if name.endswith(("reconcile_seconds", "request_seconds")):
        return Histogram(name, text, labels, registry=registry, buckets=_SECONDS)
    return Gauge(name, text, labels, registry=registry)
