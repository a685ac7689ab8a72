"""From the limits that the daemon sends to those of the scheduler and the pool."""

from __future__ import annotations

from halogend.engine.interface import Loaded
from halogend.sched.blocks import blocks_for
from halogend.sched.limits import SchedLimits
from halogend.wire.messages import EngineLimits, Failure

# What one step computes when the chunk size is left to us: long enough for full matrix products,
# short enough that running streams hardly notice on a CPU.
AUTO_STEP_TOKENS = 256
LIVE_UPDATE_REFUSED = "HRT-1015"


def sched_limits(limits: EngineLimits) -> SchedLimits:
    """Raises ValueError for values that would let nothing run."""
    return SchedLimits(
        max_batch=limits.max_batch,
        max_queue=limits.max_queue,
        queue_timeout_s=limits.queue_timeout_s,
        request_timeout_s=limits.request_timeout_s,
        prefill_chunk_tokens=limits.prefill_chunk_tokens,
        step_tokens=max(AUTO_STEP_TOKENS, limits.prefill_chunk_tokens),
    )


def pool_blocks(limits: EngineLimits, loaded: Loaded) -> int:
    """The pool's limit in blocks, the reserved block 0 included."""
    return limits.pool_bytes // loaded.block_bytes


def check_limits(limits: EngineLimits, loaded: Loaded, max_model_len: int) -> Failure | None:
    """Why these limits cannot be taken live, or None."""
    try:
        sched_limits(limits)
    except ValueError as error:
        return Failure(code=LIVE_UPDATE_REFUSED, message=f"the engine cannot run with this: {error}")
    blocks = pool_blocks(limits, loaded)
    if blocks > loaded.reserve_blocks:
        return Failure(
            code=LIVE_UPDATE_REFUSED,
            message=f"a KV pool of {limits.pool_bytes} bytes is more than the"
            f" {loaded.reserve_blocks * loaded.block_bytes} bytes that were reserved at the start;"
            " it needs a new generation",
        )
    least = blocks_for(max_model_len - 1) + 1  # the last token is never computed; block 0 is padding
    if blocks < least:
        return Failure(
            code=LIVE_UPDATE_REFUSED,
            message=f"a KV pool of {limits.pool_bytes} bytes does not hold one request of {max_model_len} tokens"
            f" ({least * loaded.block_bytes} bytes); raise it or lower max_model_len",
        )
    return None
