"""Our values under vLLM's names, for dashboards and gateways that were made for it.

Owns the table of what is called how there, and how series that are told apart here (generations, lanes) become one
of a model. Pure: families in, families out; must never know where a value comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

_BLOCK_TOKENS = 16
_ENDS = {"stop": "stop", "length": "length", "cancelled": "abort"}


@dataclass(frozen=True, slots=True)
class NameRow:
    """`name` is written with the prefix `vllm:`, `source` with `halogen_`; a counter's without `_total`. Series of a
    model are added up; with `is_newest` only those of its newest generation."""

    name: str
    source: str
    help: str
    is_newest: bool = False


NAMES = (
    NameRow("num_requests_running", "requests_running", "Requests that take part in steps."),
    NameRow("num_requests_waiting", "requests_waiting", "Requests that wait."),
    NameRow("kv_cache_usage_perc", "cache_usage", "Share of the KV pool that is used; 1 is all of it.", True),
    NameRow("num_preemptions", "preemptions", "Requests that gave their blocks back and were computed anew."),
    NameRow("prefix_cache_queries", "prefix_cache_queries", "Tokens of prompts that were looked up in the cache."),
    NameRow("prefix_cache_hits", "prefix_cache_hits", "Tokens of prompts that were found in the cache."),
    NameRow("prompt_tokens", "prompt_tokens", "Prompt tokens computed."),
    NameRow("generation_tokens", "generated_tokens", "Tokens sampled."),
    NameRow("time_to_first_token_seconds", "time_to_first_token_seconds", "From arrival to the first token."),
    NameRow("inter_token_latency_seconds", "inter_token_seconds", "Gap between two tokens of one request."),
    NameRow("e2e_request_latency_seconds", "request_seconds", "From arrival to the end of a request's answer."),
    NameRow("request_queue_time_seconds", "queue_seconds", "How long a request waited in the engine's queue."),
)


def as_vllm(families: Iterable[Family]) -> Iterator[Family]:
    """`families` are the registry's. Every series is labelled with `model_name`; what names no model is left out."""
    ours = {family.name: family for family in families}
    for row in NAMES:
        source = ours[f"halogen_{row.source}"]
        yield _renamed(row, source)
    yield _ended(ours["halogen_requests"])
    yield _cache_config(ours["halogen_cache_blocks"])


def _renamed(row: NameRow, source: Family) -> Family:
    sums: dict[tuple[str, str, str], float] = {}
    samples = _of_models(source)
    for sample in _newest(samples) if row.is_newest else samples:
        key = sample.name.removeprefix(source.name), sample.labels["model"], sample.labels.get("le", "")
        sums[key] = sums.get(key, 0.0) + sample.value
    made = Family(f"vllm:{row.name}", row.help, source.type)
    for (suffix, model, bound), value in sums.items():
        made.add_sample(f"{made.name}{suffix}", {"model_name": model} | ({"le": bound} if bound else {}), value)
    return made


def _ended(requests: Family) -> Family:
    made = Family("vllm:request_success", "Requests that ended, by why.", "counter")
    for sample in _of_models(requests):
        if end := _ENDS.get(sample.labels["outcome"]):
            labels = {"model_name": sample.labels["model"], "finished_reason": end}
            made.add_sample(f"{made.name}_total", labels, sample.value)
    return made


def _cache_config(blocks: Family) -> Family:
    made = Family("vllm:cache_config_info", "Always 1; what the KV pool is, in the labels.", "gauge")
    totals: dict[str, float] = {}
    for sample in _newest(_of_models(blocks)):
        totals[sample.labels["model"]] = totals.get(sample.labels["model"], 0.0) + sample.value
    for model, total in totals.items():
        labels = {"model_name": model, "block_size": str(_BLOCK_TOKENS), "num_gpu_blocks": str(int(total))}
        made.add_sample(made.name, labels, 1.0)
    return made


def _of_models(family: Family) -> list[Sample]:
    return [each for each in family.samples if each.labels.get("model") and not each.name.endswith("_created")]


def _newest(samples: list[Sample]) -> list[Sample]:
    newest: dict[str, int] = {}
    for each in samples:
        model, generation = each.labels["model"], int(each.labels["generation"])
        newest[model] = max(newest.get(model, generation), generation)
    return [each for each in samples if int(each.labels["generation"]) == newest[each.labels["model"]]]
