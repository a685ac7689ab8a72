"""Every metric in one table: its name, kind, meaning and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_LATENCY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_GAP_S = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
_PHASE_S = (0.01, 0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """`name` is written with the prefix `halogen_`; a counter's without `_total`, which is added."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


MODEL = ("model",)
GENERATION = ("model", "generation")
DEVICE = ("device",)

METRICS = (
    MetricRow("build_info", "gauge", "Always 1; the version is in the label.", ("version",)),
    MetricRow("config_last_reload_successful", "gauge", "1 when the last change was applied or changed nothing."),
    MetricRow("config_last_reload_success_timestamp_seconds", "gauge", "When a change was last applied or unchanged."),
    MetricRow("config_info", "gauge", "Always 1; the active document's revision is in the label.", ("revision",)),
    MetricRow("access_refused", "counter", "Requests without a key that opens the listener.", ("scope", "reason")),
    MetricRow(
        "tls_certificate_expiry_timestamp_seconds", "gauge", "When a listener's certificate ends.", ("listener",)
    ),
    MetricRow("reloads", "counter", "Changes that ended.", ("outcome", "trigger")),
    MetricRow("reload_phase_seconds", "histogram", "How long a phase of a change took.", ("phase",), _PHASE_S),
    MetricRow("generation_state", "gauge", "1 for the state a generation is in.", (*GENERATION, "state")),
    MetricRow("engine_up", "gauge", "1 while the generation's engine process is alive and ready.", GENERATION),
    MetricRow("replicas", "gauge", "Replicas of a generation that serves: up, or down.", (*GENERATION, "state")),
    MetricRow(
        "memory_bytes",
        "gauge",
        "Bytes on a device by use, reserve, foreign and the spare worker too.",
        ("device", "use"),
    ),
    MetricRow("spare_worker", "gauge", "1 while an engine process stands by for the next load."),
    MetricRow("spare_worker_loads", "counter", "Loads that took the engine process which stood by."),
    MetricRow("device_temperature_celsius", "gauge", "Temperature of an accelerator as its driver tells it.", DEVICE),
    MetricRow("device_temperature_limit_celsius", "gauge", "Temperature over which its engines rest.", DEVICE),
    MetricRow("device_rest_ratio", "gauge", "Share of the time that its engines rest so that it cools.", DEVICE),
    MetricRow("device_clock_hertz", "gauge", "Clock of an accelerator's processors.", DEVICE),
    MetricRow("device_power_watts", "gauge", "What an accelerator draws.", DEVICE),
    MetricRow("device_memory_used_bytes", "gauge", "Memory of an accelerator that is in use, by anybody.", DEVICE),
    MetricRow("memory_held_bytes", "gauge", "Anonymous and shared memory of a generation's processes.", GENERATION),
    MetricRow(
        "working_memory_surplus_bytes",
        "gauge",
        "Working memory of a generation as measured, less the estimate that it was loaded with.",
        GENERATION,
    ),
    MetricRow(
        "reclaim_shortfall_bytes",
        "gauge",
        "How much less came back than was expected when a generation of the model ended last; 0 when all did.",
        MODEL,
    ),
    MetricRow("cache_usage", "gauge", "Share of the KV pool that is used: held by requests or pinned.", GENERATION),
    MetricRow(
        "cache_blocks",
        "gauge",
        "Blocks of the KV pool (16 tokens each): held by requests, pinned, cached and evictable, free.",
        (*GENERATION, "state"),
    ),
    MetricRow(
        "cache_reserved_blocks",
        "gauge",
        "Blocks that running requests will probably take besides; no part of the usage.",
        GENERATION,
    ),
    MetricRow(
        "cache_fragmentation",
        "gauge",
        "internal: unwritten share of held blocks; external: share of long requests outside of long runs.",
        (*GENERATION, "kind"),
    ),
    MetricRow("evictions", "counter", "Cached blocks that were dropped, by reason.", (*MODEL, "reason")),
    MetricRow("prefix_cache_queries", "counter", "Tokens of prompts that were looked up in the cache.", MODEL),
    MetricRow("prefix_cache_hits", "counter", "Tokens of prompts that were found in the cache.", MODEL),
    MetricRow("preemptions", "counter", "Requests that gave their blocks back and were computed anew.", MODEL),
    MetricRow("requests_running", "gauge", "Requests that take part in steps, by lane.", (*GENERATION, "lane")),
    MetricRow(
        "requests_waiting",
        "gauge",
        "Requests that wait, in an engine's lanes short and long or (lane router) for a generation.",
        (*GENERATION, "lane"),
    ),
    MetricRow(
        "requests",
        "counter",
        "Requests that ended; outcome is stop, length, cancelled or the error's code.",
        (*MODEL, "outcome"),
    ),
    MetricRow("time_to_first_token_seconds", "histogram", "From arrival to the first token.", MODEL, _LATENCY_S),
    MetricRow("inter_token_seconds", "histogram", "Gap between two tokens of one request.", MODEL, _GAP_S),
    MetricRow(
        "largest_gap_seconds",
        "gauge",
        "Largest gap between two tokens of one request in the engine, over its last 60 snapshots (a second each).",
        GENERATION,
    ),
    MetricRow("request_seconds", "histogram", "From arrival to the end of a request's answer.", MODEL, _LATENCY_S),
    MetricRow("queue_seconds", "histogram", "How long a request waited in the engine's queue.", MODEL, _LATENCY_S),
    MetricRow("prompt_tokens", "counter", "Prompt tokens computed.", MODEL),
    MetricRow("generated_tokens", "counter", "Tokens sampled.", MODEL),
    MetricRow("step_seconds", "histogram", "How long an engine step took, by what it held.", (*MODEL, "kind"), _GAP_S),
)
