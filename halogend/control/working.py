"""What a replica takes beside weights and KV memory: an estimate, before anything runs.

Once it is loaded it was measured, and that counts. What is held at rest was measured with torch 2.13 on
models without weights to speak of; the rest is what the largest steps compute.

    engine             interpreter and torch
    text process       interpreter and tokenizer, by the size of the vocabulary
    renderer           of a chat template, in a process of its own
    gathered context   K and V of one layer, of a group of sequences or of the longest one alone
    masks              of a prompt chunk, for each kind of window
    logits             of every request of a step
    recordings         of decode steps on a device: what each of them writes to lies where it was recorded
    products           what oneDNN keeps of packed products (wire.environment says how many at most)
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.sizes import KV_VALUE_BYTES
from halogend.config.facts import BLOCK_TOKENS
from halogend.config.schema import ModelConfig

ENGINE_BYTES = 172 << 20
TEXT_BYTES = 25 << 20
TEXT_TOKEN_BYTES = 480  # a token of the vocabulary, with its merges
RENDERER_BYTES = 16 << 20
# By what products are in: measured at Ready, five products, each with 32 numbers of rows.
PRODUCTS_BYTES = MappingProxyType({"bf16": 56 << 20, "fp32": 32 << 20})
CONTEXT_BYTES = 640 << 20  # on a device: its context, the libraries' own scratch memory, the launches of recordings
DRIVER_BYTES = 320 << 20  # of the host: what a device's runtime holds in a process
STAGING_BYTES = 128 << 20  # of the host: pinned buffers that weights go through
_GROUP_VALUES = 8 << 20  # gathered at once of several sequences; one alone may need more
_NUMBER_BYTES = 4  # of a block, in a table
_WIDE_BYTES = 4  # soft-capped scores and their context are float32


@dataclass(frozen=True, slots=True)
class Work:
    """`kv_dtype` is that of the pool, `step_tokens` the most positions of one request that a step computes.
    `products` is what packed products are in: bf16 or fp32; None where weights are quantised and nothing is packed."""

    kv_dtype: str
    step_tokens: int
    has_template: bool
    products: str | None


def working_bytes(geometry: Geometry, model: ModelConfig, work: Work) -> int:
    products = 0 if work.products is None else PRODUCTS_BYTES[work.products]
    return _processes(geometry.vocab, work) + products + _steps(geometry, model, work)


@dataclass(frozen=True, slots=True)
class Split:
    """Working memory of a replica on an accelerator: there, and of the host."""

    device_bytes: int
    host_bytes: int


def working_on_device(geometry: Geometry, model: ModelConfig, work: Work) -> Split:
    """On a device with memory of its own. Contexts are read where they lie, so a step takes its rows' values and
    the logits, in float32 and as they were computed. The constants were not measured on a device."""
    rows = work.step_tokens + model.max_batch
    steps = rows * _row_bytes(geometry) + 2 * model.max_batch * geometry.vocab * _WIDE_BYTES
    device_bytes = CONTEXT_BYTES + steps + _recordings(geometry, model)
    return Split(device_bytes, _processes(geometry.vocab, work) + DRIVER_BYTES + STAGING_BYTES)


def recorded_sizes(max_batch: int) -> list[int]:
    """Rows of the decode steps that are recorded on a device: the powers of two up to the first that holds all."""
    return [1 << power for power in range((max_batch - 1).bit_length() + 1)]


def _recordings(geometry: Geometry, model: ModelConfig) -> int:
    """Each has logits and tables of blocks of its own; the values on the way all share, which are as many as the
    largest has, and none of those that other steps have."""
    sizes = recorded_sizes(model.max_batch)
    blocks = -(-model.request_tokens(geometry.context_length) // BLOCK_TOKENS)
    own = geometry.vocab * _WIDE_BYTES + len(set(geometry.windows)) * blocks * _NUMBER_BYTES
    return sum(sizes) * own + sizes[-1] * (_row_bytes(geometry) + geometry.vocab * _WIDE_BYTES)


def _row_bytes(geometry: Geometry) -> int:
    """The values of one row on their way through a layer."""
    widest = 2 * geometry.ffn if geometry.experts is None else 2 * geometry.experts.used * geometry.experts.ffn
    row = 4 * geometry.hidden + (geometry.heads + 2 * geometry.kv_heads) * geometry.head_dim + widest
    return row * _WIDE_BYTES


def _processes(vocab: int, work: Work) -> int:
    renderer = RENDERER_BYTES if work.has_template else 0
    return ENGINE_BYTES + TEXT_BYTES + vocab * TEXT_TOKEN_BYTES + renderer


def _steps(geometry: Geometry, model: ModelConfig, work: Work) -> int:
    longest = model.request_tokens(geometry.context_length)
    reaches = [
        longest if window is None else min(longest, window + work.step_tokens) for window in set(geometry.windows)
    ]
    width = 2 * geometry.kv_heads * geometry.head_dim
    alone = max(reaches) * width
    values = max(alone, min(_GROUP_VALUES, alone * model.max_batch))
    value_bytes = KV_VALUE_BYTES[work.kv_dtype] + (_WIDE_BYTES if geometry.attention_softcap else 0)
    masks = sum(work.step_tokens * reach * KV_VALUE_BYTES[work.kv_dtype] for reach in reaches)
    return values * value_bytes + masks + model.max_batch * geometry.vocab * _WIDE_BYTES
