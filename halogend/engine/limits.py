"""From the limits that the daemon sends to those of the scheduler and the pool."""

from __future__ import annotations

from halogend.engine.interface import Loaded
from halogend.sched.limits import EvictionPolicy, LongLane, SchedLimits, SessionClass, Watermarks
from halogend.sched.request import Caller
from halogend.wire import policy as wire
from halogend.wire.failure import Failure
from halogend.wire.specs import EngineLimits

# What one step computes of a request when the chunk size is left to us: long enough for full matrix
# products, short enough that running streams hardly notice on a CPU.
AUTO_STEP_TOKENS = 256
# What one step computes in all where its time is bounded besides (max_gap_ms): prompts of several requests
# beside a full batch, so that no first token waits for want of rows.
PACED_STEP_TOKENS = 512
LIVE_UPDATE_REFUSED = "HRT-1015"
_WORTH = 8  # memory goes back at rest when it is at least this part of what the pool takes


def sched_limits(limits: EngineLimits) -> SchedLimits:
    """Raises ValueError for values that would let nothing run."""
    policy = limits.policy
    chunk = limits.prefill_chunk_tokens or AUTO_STEP_TOKENS
    return SchedLimits(
        max_batch=limits.max_batch,
        max_queue=limits.max_queue,
        queue_timeout_s=limits.queue_timeout_s,
        request_timeout_s=limits.request_timeout_s,
        prefill_chunk_tokens=chunk,
        step_tokens=max(PACED_STEP_TOKENS if policy.max_gap_s else AUTO_STEP_TOKENS, chunk),
        max_queue_tokens=policy.max_queue_tokens,
        prefill_timeout_s=policy.prefill_timeout_s,
        max_gap_s=policy.max_gap_s,
        long=LongLane(policy.long_threshold_tokens, policy.long_concurrent) if policy.long_threshold_tokens else None,
        watermarks=Watermarks(policy.soft, policy.hard) if policy.hard else None,
        min_free_ratio=policy.min_free_ratio,
        eviction=EvictionPolicy(policy.eviction, tuple(map(_session_class, policy.classes))),
    )


def _session_class(each: wire.SessionClass) -> SessionClass:
    return SessionClass(each.name, each.priority, each.pin_quota, each.ttl_s)


def sched_caller(caller: wire.Caller, policy: wire.EnginePolicy) -> Caller:
    """Who asks, in the scheduler's words. What one key has cached is found by that key alone unless the scope is
    shared when it asks; two keys that call a conversation the same have two. Raises ValueError for a weight that is
    no share."""
    return Caller(
        scope=b"" if policy.cache_scope == "shared" else caller.key.encode(),
        key=caller.key,
        weight=caller.weight,
        klass=caller.klass,
        session=f"{caller.key}\n{caller.session}" if caller.session else "",
    )


def pool_blocks(limits: EngineLimits, loaded: Loaded) -> int:
    """The pool's limit in blocks, the reserved block 0 included."""
    return limits.pool_bytes // loaded.block_bytes


def least_blocks(limits: EngineLimits, loaded: Loaded, tokens: int) -> int:
    """A pool of fewer may not hold a request of `tokens` computed positions; block 0 is included."""
    return loaded.layout.blocks_for_request(tokens, sched_limits(limits).request_step_tokens) + 1


def blocks_at_rest(limits: EngineLimits, loaded: Loaded, kept: int) -> int | None:
    """To how many blocks a pool at rest is cut for a while, so that what lies behind `kept` ones and its floor goes
    back. None where that is too little: for little nothing is moved, a request that comes meanwhile would wait."""
    policy, block_bytes = limits.policy, loaded.block_bytes
    blocks = max(1 + kept, 1 + loaded.layout.tables, policy.min_pool_bytes // block_bytes)
    touched = loaded.runner.touched_bytes
    is_little = blocks >= pool_blocks(limits, loaded) or touched - blocks * block_bytes < touched // _WORTH
    return None if is_little or not policy.autoscale else blocks


def check_limits(limits: EngineLimits, loaded: Loaded, context_tokens: int, promised_tokens: int) -> Failure | None:
    """Why these limits cannot be taken live, or None. `context_tokens` is what the checkpoint was made
    for, `promised_tokens` the most positions that a request taken already may compute."""
    reason = _obstacle(limits, loaded, context_tokens, promised_tokens)
    return None if reason is None else Failure(code=LIVE_UPDATE_REFUSED, message=reason)


def _obstacle(limits: EngineLimits, loaded: Loaded, context_tokens: int, promised_tokens: int) -> str | None:
    try:
        sched_limits(limits)
    except ValueError as error:
        return f"the engine cannot run with this: {error}"
    longest = limits.max_model_len
    if not 1 <= longest <= context_tokens:
        return f"max_model_len {longest} is not from 1 to the model's own {context_tokens} tokens"
    blocks, block_bytes = pool_blocks(limits, loaded), loaded.block_bytes
    pool = f"a KV pool of {limits.pool_bytes} bytes"
    if blocks > loaded.reserve_blocks:
        reserved = loaded.reserve_blocks * block_bytes
        return f"{pool} is more than the {reserved} bytes that were reserved at the start; it needs a new generation"
    least = least_blocks(limits, loaded, longest - 1)  # the last token is never computed
    if blocks < least:
        return (
            f"{pool} does not hold one request of {longest} tokens ({least * block_bytes} bytes);"
            " raise it or lower max_model_len"
        )
    promised = least_blocks(limits, loaded, promised_tokens)
    if blocks < promised:
        return (
            f"{pool} does not hold a request that was accepted already and may need"
            f" {promised * block_bytes} bytes; try again when it has ended"
        )
    return None
