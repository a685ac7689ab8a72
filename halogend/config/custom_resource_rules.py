"""What the API server refuses of a HalogenModel beyond types and ranges: rules in CEL, and what lists are.

Every rule says again what the document's rules or the classes of the spec say, so that `kubectl apply` tells it
at once; none says more. What a rule would cost too much for, or facts are needed for, is told by the operator in
the status. A rule that takes an absent value for its default has the default from the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from halogend.config.model import ModelConfig
from halogend.config.policy import LongPromptConfig, WatermarkConfig

ROOT = ""
MOST_NAME_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Rule:
    """`rule` is CEL, `self` the value at the rule's place; `message` is what the user reads where it is false."""

    rule: str
    message: str


def _or_default(model: type[Any], field: str, around: str = "self") -> str:
    """The field's value in CEL, or what the daemon takes where it is absent."""
    default = model.model_fields[field].default
    text = f"{default:.6g}" if isinstance(default, float) else str(default)
    shown = f"{text}.0" if isinstance(default, float) and "." not in text else text
    return f"(has({around}.{field}) ? {around}.{field} : {shown})"


def _strategy_is(*strategies: str) -> str:
    listed = ", ".join(f"'{each}'" for each in strategies)
    return f"(has(self.reload) && has(self.reload.strategy) && self.reload.strategy in [{listed}])"


_QUEUE = _or_default(ModelConfig, "queue_timeout_ms")
_BATCH = _or_default(ModelConfig, "max_batch")
_SOFT, _HARD = (_or_default(WatermarkConfig, name) for name in ("soft", "hard"))
_LONG = _or_default(LongPromptConfig, "max_concurrent", "self.long_prompt")
_IS_DATA_PARALLEL = "(has(self.exec_mode) && self.exec_mode == 'data_parallel')"
_IS_ROLLING, _IS_SHRINK = _strategy_is("rolling"), _strategy_is("shrink")
_ENDS_FIRST = _strategy_is("replace", "rolling")

_MODEL_RULES = (
    Rule(
        "!has(self.kv_cache_ratio) || !has(self.kv_cache_bytes)",
        "kv_cache_ratio and kv_cache_bytes are both set; keep one of them",
    ),
    Rule(
        "!has(self.max_model_len) || !has(self.max_prompt_len) || self.max_prompt_len + "
        "(has(self.max_decode_len) ? self.max_decode_len : 1) <= self.max_model_len",
        "max_prompt_len and max_decode_len (or one token of answer) are more than max_model_len",
    ),
    Rule(
        "!has(self.max_model_len) || !has(self.max_decode_len) || self.max_decode_len < self.max_model_len",
        "max_decode_len leaves no room for a prompt in max_model_len",
    ),
    Rule(
        f"!has(self.request_timeout_ms) || self.request_timeout_ms == 0 || self.request_timeout_ms > {_QUEUE}",
        "request_timeout_ms must be longer than queue_timeout_ms, or 0 for no limit",
    ),
    Rule(
        "!has(self.long_prompt) || (has(self.long_prompt.enabled) && !self.long_prompt.enabled) || "
        f"{_LONG} <= {_BATCH}",
        "long_prompt.max_concurrent is more than max_batch",
    ),
    Rule(
        f"!has(self.device) || size(self.device) < 2 || {_IS_DATA_PARALLEL}",
        "several devices need exec_mode: data_parallel",
    ),
    Rule(
        f"!{_IS_DATA_PARALLEL} || (has(self.device) && !self.device.exists(each, each == 'auto'))",
        "exec_mode data_parallel needs to be told its devices",
    ),
    Rule(
        "!has(self.device) || size(self.device) < 2 || "
        "!self.device.exists(each, each == 'auto' || each.startsWith('cpu'))",
        "a list of several devices is of accelerators",
    ),
    Rule(
        f"{_IS_DATA_PARALLEL} || !{_IS_ROLLING}",
        "reload.strategy rolling goes from replica to replica, and exec_mode single has one in a pod",
    ),
    Rule(
        f"!{_IS_DATA_PARALLEL} || !{_IS_SHRINK}",
        "reload.strategy shrink gives way in one pool, and exec_mode data_parallel has one on each device",
    ),
    Rule(
        f"!has(self.probation) || !{_ENDS_FIRST}",
        "probation needs the generation before, and reload.strategy replace or rolling ends it first",
    ),
)

RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType(
    {
        ROOT: (
            Rule(
                f"size(self.metadata.name) <= {MOST_NAME_LENGTH} && "
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                f"the name must be 1 to {MOST_NAME_LENGTH} small letters, digits or dashes and start with a letter: "
                "its Service is called the same",
            ),
        ),
        "spec": _MODEL_RULES,
        "spec.watermarks": (
            Rule(
                f"(has(self.enabled) && !self.enabled) || {_SOFT} < {_HARD}",
                f"soft must be below hard (absent: {WatermarkConfig().soft:g} and {WatermarkConfig().hard:g})",
            ),
        ),
        "spec.eviction": (
            Rule(
                "!has(self.sessions) || size(self.sessions) == 0 || "
                "(has(self.policy) && self.policy == 'priority_lru')",
                "sessions has classes, which policy: priority_lru alone heeds",
            ),
        ),
        "spec.kv_block_pool": (
            Rule(
                "!has(self.min_tokens) || !has(self.max_tokens) || self.min_tokens <= self.max_tokens",
                "min_tokens is more than max_tokens",
            ),
        ),
        "spec.auth": (
            Rule(
                "has(self.none) != has(self.keys)",
                "write none: true to state that open access is meant, or keys; one of them",
            ),
        ),
        "spec.volumes": (
            Rule(
                "self.all(each, self.exists_one(other, other.mountPath == each.mountPath))",
                "each volume needs a mountPath of its own",
            ),
        ),
        "spec.volumes[]": (
            Rule(
                "has(self.persistentVolumeClaim) != has(self.image)",
                "a volume is a persistentVolumeClaim or an image, one of them",
            ),
        ),
    }
)

LISTS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        path: {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
        for path, key in (
            ("spec.imagePullSecrets", "name"),
            ("spec.volumes", "name"),
            ("spec.auth.keys", "name"),
            ("spec.eviction.sessions", "class"),
            ("status.pods", "name"),
            ("status.conditions", "type"),
        )
    }
    | {path: {"x-kubernetes-list-type": "set"} for path in ("spec.device", "spec.aliases", "spec.auth.keys[].classes")}
)
"""Lists whose entries are told apart by a key, or are each there once. The others are taken as a whole."""
