"""What must be known beyond the document's own text to judge it, as plain values.

Filled in by the control package, which may open files and ask devices; read by the rules, which
may not. A value that could not be learnt is None and its rules are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an input cannot be used: a code (HCK for checkpoints), a sentence and a remedy."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model's files as they lie on disk.

    `fault` set: the checkpoint cannot be used, and the other values may all be None. `format` is
    what the magic bytes say (gguf, safetensors, v2, ...). `kv_bytes_per_token` is for the model's
    kv_cache_dtype on its device. `working_bytes` is what a generation takes beside weights and KV.
    """

    fault: Fault | None = None
    format: str | None = None
    architecture: str | None = None
    context_length: int | None = None
    has_chat_template: bool | None = None
    template_fault: Fault | None = None
    weight_bytes: int | None = None
    working_bytes: int = 0
    kv_bytes_per_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A device that is there. `memory_bytes` is what the machine has (a document may allow less),
    `reserve_bytes` what is kept free when the document does not say, `foreign_bytes` what others used
    at start, `aliases` other ids of the same device (`ai_max_395:0` for `rocm:0`)."""

    id: str
    memory_bytes: int
    reserve_bytes: int = 0
    foreign_bytes: int = 0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`models` by model name. `devices` holds every device of the machine; None: not asked."""

    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    devices: tuple[DeviceFacts, ...] | None = None
