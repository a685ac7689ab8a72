"""The one object that writes metrics; what there is stands in `metric_table`.

Nothing here waits or asks: a scrape renders what was told last. Every series of a model goes with
`forget`, and what is still said about a forgotten model is dropped until it is known again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from halogend.obs.exposition import exposition
from halogend.obs.metric_table import GENERATION, METRICS, MODEL, MetricRow
from halogend.obs.vllm_names import as_vllm

UNKNOWN_MODEL = ""
"""The `model` label of a request that named no model of the document: names from outside are no labels."""

_SHORT_LANE, _LONG_LANE = "short", "long"
_ROUTER_LANE = "router"
_RESERVE, _FOREIGN = "reserve", "foreign"
_GAPS_KEPT = 60  # snapshots


class EngineSnapshot(Protocol):
    """What an engine says about itself about once a second; its counters grow from 0 at its start."""

    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def blocks_total(self) -> int: ...
    @property
    def blocks_used(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def generated_tokens(self) -> int: ...
    @property
    def blocks_cached(self) -> int: ...
    @property
    def blocks_pinned(self) -> int: ...
    @property
    def blocks_reserved(self) -> int: ...
    @property
    def evictions(self) -> Mapping[str, int]: ...
    @property
    def prefix_query_tokens(self) -> int: ...
    @property
    def prefix_hit_tokens(self) -> int: ...
    @property
    def running_long(self) -> int: ...
    @property
    def waiting_long(self) -> int: ...
    @property
    def internal_fragmentation(self) -> float: ...
    @property
    def external_fragmentation(self) -> float: ...
    @property
    def largest_gap_s(self) -> float: ...
    @property
    def queue_s(self) -> Sequence[float]: ...
    @property
    def step_s(self) -> Sequence[tuple[str, float]]: ...


class Metrics:
    """One registry of its own. Single-threaded: everything runs in the daemon's event loop.

    `is_vllm_too`: what is rendered has the values under vLLM's names besides."""

    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry()
        self._rows = {row.name: row for row in METRICS}
        self._made = {row.name: _make(row, self._registry) for row in METRICS}
        self._series: dict[str, dict[tuple[str, ...], Counter | Gauge | Histogram]] = {row.name: {} for row in METRICS}
        self._counted: dict[tuple[str, int, str, str], int] = {}  # an engine's counter as it was told last
        self._gaps: dict[tuple[str, int], deque[float]] = {}
        self._forgotten: set[str] = set()
        self.is_vllm_too = False
        self._set("build_info", (version,), 1)
        self._set("config_last_reload_successful", (), 0)

    # --- requests -----------------------------------------------------------------------------

    def request_ended(self, model: str, outcome: str, seconds: float) -> None:
        """`outcome`: stop, length, cancelled or an error code. Once for every request."""
        self._add("requests", (model, outcome), 1)
        self._observe("request_seconds", (model,), seconds)

    def first_token(self, model: str, seconds: float) -> None:
        self._observe("time_to_first_token_seconds", (model,), seconds)

    def token_gap(self, model: str, seconds: float) -> None:
        self._observe("inter_token_seconds", (model,), seconds)

    def waiting_in_router(self, model: str, count: int) -> None:
        """Requests that wait because no generation of this model serves."""
        self._set("requests_waiting", (model, "", _ROUTER_LANE), count)

    # --- changes ------------------------------------------------------------------------------

    def reload_ended(self, outcome: str, trigger: str, *, successful: bool, now: float) -> None:
        """`now` in epoch seconds. Successful: the daemon is what the newest document asks for."""
        self._add("reloads", (outcome, trigger), 1)
        self._set("config_last_reload_successful", (), int(successful))
        if successful:
            self._set("config_last_reload_success_timestamp_seconds", (), now)

    def reload_phase(self, phase: str, seconds: float) -> None:
        """`phase`: validate, load, switch or reclaim."""
        self._observe("reload_phase_seconds", (phase,), seconds)

    def active_revision(self, revision: str) -> None:
        self._drop("config_info", ())
        self._set("config_info", (revision,), 1)

    # --- generations --------------------------------------------------------------------------

    def generation_state(self, model: str, generation: int, state: str) -> None:
        """A model that was forgotten is known again from here on."""
        self._forgotten.discard(model)
        self._drop("generation_state", (model, str(generation)))
        self._set("generation_state", (model, str(generation), state), 1)

    def engine_up(self, model: str, generation: int, *, up: bool) -> None:
        self._set("engine_up", (model, str(generation)), int(up))

    def replicas(self, model: str, generation: int, *, up: int, down: int) -> None:
        for state, count in (("up", up), ("down", down)):
            self._set("replicas", (model, str(generation), state), count)

    def memory(self, device: str, use: str, bytes_: int) -> None:
        self._set("memory_bytes", (device, use), bytes_)

    def spare_worker(self, *, up: bool) -> None:
        self._set("spare_worker", (), int(up))

    def spare_worker_taken(self) -> None:
        """By a load."""
        self._add("spare_worker_loads", (), 1)

    def rooms(self, devices: Mapping[str, tuple[int, int]]) -> None:
        """By device what is kept free and what others use, in bytes; devices that are not named have none."""
        for device, use in self._series["memory_bytes"].copy():
            if use in (_RESERVE, _FOREIGN):
                self._drop("memory_bytes", (device, use))
        for device, (reserve, foreign) in devices.items():
            self.memory(device, _RESERVE, reserve)
            self.memory(device, _FOREIGN, foreign)

    def device(self, device: str, values: Mapping[str, float | None]) -> None:
        """By metric, of an accelerator; None where nothing is told."""
        for name, value in values.items():
            if value is None:
                self._drop(name, (device,))
            else:
                self._set(name, (device,), value)

    def memory_held(self, model: str, generation: int, bytes_: int) -> None:
        self._set("memory_held_bytes", (model, str(generation)), bytes_)

    def working_surplus(self, model: str, generation: int, bytes_: int) -> None:
        self._set("working_memory_surplus_bytes", (model, str(generation)), bytes_)

    def reclaimed(self, model: str, expected_bytes: int, returned_bytes: int) -> None:
        self._set("reclaim_shortfall_bytes", (model,), max(0, expected_bytes - returned_bytes))

    def engine_stats(self, model: str, generation: int, stats: EngineSnapshot) -> None:
        """Takes a snapshot. The counters here stay monotone over generations and restarts."""
        held = (model, str(generation))
        for name, both, long in (
            ("requests_running", stats.running, stats.running_long),
            ("requests_waiting", stats.waiting, stats.waiting_long),
        ):
            self._set(name, (*held, _SHORT_LANE), both - long)
            self._set(name, (*held, _LONG_LANE), long)
        gaps = self._gaps.setdefault((model, generation), deque(maxlen=_GAPS_KEPT))
        gaps.append(stats.largest_gap_s)
        self._set("largest_gap_seconds", held, max(gaps))
        self._cache(held, stats)
        self._count(model, generation, "preemptions", stats.preemptions)
        self._count(model, generation, "prompt_tokens", stats.prompt_tokens)
        self._count(model, generation, "generated_tokens", stats.generated_tokens)
        self._count(model, generation, "prefix_cache_queries", stats.prefix_query_tokens)
        self._count(model, generation, "prefix_cache_hits", stats.prefix_hit_tokens)
        for reason, blocks in stats.evictions.items():
            self._count(model, generation, "evictions", blocks, reason)
        for seconds in stats.queue_s:
            self._observe("queue_seconds", (model,), seconds)
        for kind, seconds in stats.step_s:
            self._observe("step_seconds", (model, kind), seconds)

    def _cache(self, held: tuple[str, str], stats: EngineSnapshot) -> None:
        states = {
            "held": stats.blocks_used - stats.blocks_pinned,
            "pinned": stats.blocks_pinned,
            "cached": stats.blocks_cached,
            "free": stats.blocks_total - stats.blocks_used - stats.blocks_cached,
        }
        for state, blocks in states.items():
            self._set("cache_blocks", (*held, state), blocks)
        self._set("cache_usage", held, stats.blocks_used / stats.blocks_total if stats.blocks_total else 0.0)
        self._set("cache_reserved_blocks", held, stats.blocks_reserved)
        self._set("cache_fragmentation", (*held, "internal"), stats.internal_fragmentation)
        self._set("cache_fragmentation", (*held, "external"), stats.external_fragmentation)

    def forget_generation(self, model: str, generation: int) -> None:
        """Removes what is said of one generation; the model's own counters stay."""
        for row in METRICS:
            if row.labels[:2] == GENERATION:
                self._drop(row.name, (model, str(generation)))
        self._counted = {key: value for key, value in self._counted.items() if key[:2] != (model, generation)}
        self._gaps.pop((model, generation), None)

    def forget(self, model: str) -> None:
        """Removes every series of a model that is gone from the document and from memory."""
        for row in METRICS:
            if row.labels[:1] == MODEL:
                self._drop(row.name, (model,))
        self._counted = {key: value for key, value in self._counted.items() if key[0] != model}
        self._gaps = {key: value for key, value in self._gaps.items() if key[0] != model}
        self._forgotten.add(model)

    # --- access -------------------------------------------------------------------------------

    def access_refused(self, scope: str, reason: str) -> None:
        """`reason` is the error's code."""
        self._add("access_refused", (scope, reason), 1)

    def certificates(self, not_after: Mapping[str, float]) -> None:
        """Epoch seconds by listener; those that are not named have none."""
        self._drop("tls_certificate_expiry_timestamp_seconds", ())
        for listener, at in not_after.items():
            self._set("tls_certificate_expiry_timestamp_seconds", (listener,), at)

    # --- output -------------------------------------------------------------------------------

    def render(self) -> bytes:
        """Prometheus text format, for CONTENT_TYPE."""
        return exposition(self._registry, as_vllm if self.is_vllm_too else None)

    # --- the three ways to write --------------------------------------------------------------

    def _set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        metric = self._touch(name, labels)
        if isinstance(metric, Gauge):
            metric.set(value)

    def _add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        metric = self._touch(name, labels)
        if isinstance(metric, Counter):
            metric.inc(value)

    def _observe(self, name: str, labels: tuple[str, ...], value: float) -> None:
        metric = self._touch(name, labels)
        if isinstance(metric, Histogram):
            metric.observe(value)

    def _touch(self, name: str, labels: tuple[str, ...]) -> Counter | Gauge | Histogram | None:
        if (series := self._series[name].get(labels)) is not None:
            return series
        if self._rows[name].labels[:1] == MODEL and labels[0] in self._forgotten:
            return None
        self._series[name][labels] = made = self._made[name].labels(*labels) if labels else self._made[name]
        return made

    def _count(self, model: str, generation: int, name: str, value: int, kind: str = "") -> None:
        """`kind` is the label behind `model`, of counters that have one."""
        before = self._counted.get((model, generation, name, kind), 0)
        self._counted[model, generation, name, kind] = value
        labels = (model, kind) if kind else (model,)
        self._add(name, labels, value - before if value >= before else value)  # less: it started anew

    def _drop(self, name: str, prefix: tuple[str, ...]) -> None:
        for labels in [each for each in self._series[name] if each[: len(prefix)] == prefix]:
            self._made[name].remove(*labels)
            del self._series[name][labels]


def _make(row: MetricRow, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name = f"halogen_{row.name}"
    if row.kind == "counter":
        return Counter(name, row.help, row.labels, registry=registry)
    if row.kind == "gauge":
        return Gauge(name, row.help, row.labels, registry=registry)
    return Histogram(name, row.help, row.labels, registry=registry, buckets=row.buckets)
