"""What a generation takes beside weights and KV memory: an estimate, before anything runs.

both processes     interpreters, torch, tokenizer, activations of a step
gathered context   K and V of one layer, of a group of sequences or of the longest one alone
masks              of a prompt chunk, for each table of layers
logits             of every request of a step
"""

from __future__ import annotations

from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.sizes import VALUE_BYTES
from halogend.config.schema import ModelConfig

PROCESSES_BYTES = 704 << 20
_GROUP_VALUES = 8 << 20  # gathered at once of several sequences; one alone may need more
_WIDE_BYTES = 4  # soft-capped scores and their context are float32


def working_bytes(geometry: Geometry, model: ModelConfig, kv_dtype: str, step_tokens: int) -> int:
    """`step_tokens` is the most positions of one request that a step computes."""
    longest = model.request_tokens(geometry.context_length)
    reach = max(longest if window is None else min(longest, window + step_tokens) for window in geometry.windows)
    values = max(_GROUP_VALUES, reach * 2 * geometry.kv_heads * geometry.head_dim)
    value_bytes = VALUE_BYTES[kv_dtype] + (_WIDE_BYTES if geometry.attention_softcap else 0)
    masks = len(set(geometry.windows)) * step_tokens * reach * VALUE_BYTES[kv_dtype]
    logits = model.max_batch * geometry.vocab * _WIDE_BYTES
    return PROCESSES_BYTES + values * value_bytes + masks + logits
