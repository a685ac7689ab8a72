"""The document that a run edits: what stays, and the three things that change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture.prompts import MODEL


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`kind` names those that are as fast as each other, `kv` is a pool that the load fills."""

    path: Path
    kind: str
    precision: str
    kv: str

    @property
    def is_exact(self) -> bool:
        """Is every greedy token the same whatever else is computed beside it? In bf16 the last bit of attention
        may differ, and with it the choice between two tokens that are as likely: `odd` tells that from a fault."""
        return self.precision == "fp32"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the document asks for. `policy` turns fields that are changed in place."""

    checkpoint: Checkpoint
    port: int
    policy: int = 0

    def text(self, **fields: Any) -> str:
        """JSON, a YAML that every reader takes. `fields` are put into the model, whatever they are."""
        policy = self.policy
        model: Mapping[str, Any] = {
            "name": MODEL,
            "model": str(self.checkpoint.path),
            "precision": self.checkpoint.precision,
            "kv_cache_bytes": self.checkpoint.kv,
            "max_model_len": 256,
            "aliases": [f"policy-{policy % 3}"],
            "max_batch": 24 + policy // 4 % 4,
            "max_queue": 8192,
            "queue_timeout_ms": 120_000 + policy,
            "request_timeout_ms": 600_000 if policy % 2 else 0,
            "sampling": {"top_p": 0.8 + policy % 5 / 50},
            **fields,
        }
        whole = {
            "apiVersion": "halogen.dev/v1alpha1",
            "server": {"host": "127.0.0.1", "port": self.port},
            "reload": {"drain_timeout_s": 120},
            "models": [model],
        }
        return json.dumps(whole, indent=1)
