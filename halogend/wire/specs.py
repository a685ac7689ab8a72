"""What a worker is to be, frozen before its process starts; of it the limits may change while it runs."""

from __future__ import annotations

from halogend.wire.base import Part
from halogend.wire.policy import EnginePolicy


class Limits(Part, frozen=True, kw_only=True):
    """Token limits a text process checks; `max_model_len` bounds prompt plus completion."""

    max_prompt_len: int
    max_decode_len: int
    max_model_len: int


class EngineLimits(Part, frozen=True, kw_only=True):
    """What the scheduler may be told while it runs. `max_model_len` bounds prompt plus completion
    of a request, `pool_bytes` is the KV pool's limit: it must hold one such request."""

    max_model_len: int
    max_batch: int
    max_queue: int
    queue_timeout_s: float
    request_timeout_s: float  # 0 is off
    prefill_chunk_tokens: int  # 0 is auto
    pool_bytes: int
    policy: EnginePolicy = EnginePolicy()


class EngineSpec(Part, frozen=True, kw_only=True):
    """A generation's engine, frozen before its process starts. `max_model_len` is the checkpoint's own
    context, the most that `limits.max_model_len` can be.

    `pool_reserve_bytes` is the address range reserved for the KV pool: `limits.pool_bytes` may be
    raised up to it without a restart. `pool_floor_bytes` of it are touched before the engine is ready,
    the rest as it is used. `threads` are intra-operator threads. The scheduler is audited when the engine rests and
    at its end, and after every `audit_steps` steps where that is not 0. Of the weights of a v2 checkpoint that are
    used as they lie up to `mmap_threshold` stay mapped; with `verify` full its bytes are compared with their digests.
    """

    path: str
    load_format: str  # auto | v2 | gguf | safetensors
    precision: str  # of the weights: fp32 | bf16 | fp16 | int8 | fp8 | int4
    compute_dtype: str  # of products: fp32 | bf16 | fp16
    stretched: bool  # rotary angles for requests past the original context, where there are two kinds
    kv_cache_dtype: str  # fp32 | bf16 | fp16 | fp8 | int8
    flash_attention: bool
    backend: str  # cpu | reference | triton
    max_model_len: int
    pool_reserve_bytes: int
    threads: int
    load_threads: int  # 0 is auto
    limits: EngineLimits
    loader_niceness: int = 0  # of the threads that load: above 0 where others serve on these cores
    pool_floor_bytes: int = 0
    audit_steps: int = 0
    mmap_threshold: float = 0.9
    verify: str = "header"  # header | full
    device: str = "cpu:0"  # cuda:N or rocm:N: whose memory holds weights and pool; any processor is cpu:0
    may_compile: bool = True  # kernels that `kernel_cache` lacks
    kernel_cache: str = ""  # a folder; empty: there is no place for one


class TextSpec(Part, frozen=True, kw_only=True):
    """A generation's text process. `chat_template` is Jinja source, or None for the model's own."""

    path: str
    load_format: str
    chat_template: str | None
    limits: Limits
    loader_niceness: int = 0  # as an engine's
