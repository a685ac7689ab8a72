"""What the processes and the router of one model are told: the document's entry, its limits and its
sampling, made concrete by the facts.

Pure. How much memory there is for it is `desired`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass

from halogend.config.schema import ModelConfig
from halogend.control.facts import AUTO_STEP_TOKENS, Resolved
from halogend.control.machine import Machine
from halogend.control.process import Host
from halogend.control.replica_spec import ReplicaSpec, environ_of
from halogend.control.route import RouteSettings
from halogend.wire.policy import EnginePolicy, SessionClass
from halogend.wire.requests import Sampling
from halogend.wire.specs import EngineLimits, EngineSpec, Limits, TextSpec

_DEFAULT_TEMPERATURE, _DEFAULT_TOP_P = 0.6, 0.85


@dataclass(frozen=True, slots=True)
class Pool:
    """A KV pool's bytes: touched at the start, granted, and reserved as address space."""

    floor_bytes: int
    kv_bytes: int
    reserve_bytes: int


def replica_spec(resolved: Resolved, index: int, limits: Limits, pool: Pool, machine: Machine) -> ReplicaSpec:
    """Of the replica on the model's device with this index."""
    device, config = resolved.devices[index], resolved.config
    text = TextSpec(path=config.model, load_format=config.load_format, chat_template=resolved.template, limits=limits)
    return ReplicaSpec(
        model=config.name,
        text=text,
        engine=_engine_spec(resolved, limits, pool, device, machine),
        progress_timeout_s=config.load.progress_timeout_s,
        warmup_prompt=config.warmup.prompt,
        cores=machine.pins(device),
        device=device,
        weight=config.device[index].weight,
        environ=tuple(machine.environ_of(device).items()),
    )


def engine_environ(config: ModelConfig, device: str, machine: Machine, host: Host) -> dict[str, str]:
    """What the engine of that replica will find: known before any file of the model was looked at."""
    there = machine.runs_on(device)
    sees = machine.environ_of(device).items()
    return environ_of(host, machine.cores_of(device), _backend(config, there), there, sees)


def token_limits(resolved: Resolved) -> Limits:
    """The document's where it states them, within what the checkpoint allows."""
    config = resolved.config
    longest = config.request_tokens(resolved.geometry.context_length)
    return Limits(
        max_prompt_len=min(config.max_prompt_len or longest, longest),
        max_decode_len=min(config.max_decode_len or longest, longest),
        max_model_len=longest,
    )


def _engine_spec(resolved: Resolved, limits: Limits, pool: Pool, device: str, machine: Machine) -> EngineSpec:
    config, there = resolved.config, machine.runs_on(device)
    return EngineSpec(
        path=config.model,
        load_format=config.load_format,
        precision=resolved.load.precision,
        compute_dtype=resolved.compute_dtype,
        stretched=resolved.geometry.is_stretched(limits.max_model_len),
        kv_cache_dtype=resolved.kv_dtype,
        flash_attention=config.kernels.flash_attention,
        backend=_backend(config, there),
        device=there,
        may_compile=config.kernels.compile == "auto",
        kernel_cache=config.kernels.cache_dir or machine.kernel_cache,
        max_model_len=resolved.geometry.context_length,
        pool_reserve_bytes=pool.reserve_bytes,
        pool_floor_bytes=pool.floor_bytes,
        threads=machine.cores_of(device),
        load_threads=0 if config.load_thread_num == "auto" else config.load_thread_num,
        mmap_threshold=config.mmap_threshold,
        verify=config.load.verify,
        limits=EngineLimits(
            max_model_len=limits.max_model_len,
            max_batch=config.max_batch,
            max_queue=config.max_queue,
            queue_timeout_s=config.queue_timeout_ms / 1000,
            request_timeout_s=config.request_timeout_ms / 1000,
            prefill_chunk_tokens=0 if resolved.kv.step_tokens == AUTO_STEP_TOKENS else resolved.kv.step_tokens,
            pool_bytes=pool.kv_bytes,
            policy=_policy(config, pool),
        ),
    )


def _backend(config: ModelConfig, device: str) -> str:
    if config.kernels.backend != "auto":
        return config.kernels.backend
    return "cpu" if device.startswith("cpu:") else "triton"


def _policy(config: ModelConfig, pool: Pool) -> EnginePolicy:
    """What is switched off is 0."""
    lane, marks = config.long_prompt, config.watermarks
    return EnginePolicy(
        max_queue_tokens=config.max_queue_tokens,
        prefill_timeout_s=config.prefill_timeout_ms / 1000,
        max_gap_s=config.max_gap_ms / 1000,
        long_threshold_tokens=0 if lane is None else lane.threshold,
        long_concurrent=0 if lane is None else lane.max_concurrent,
        soft=0.0 if marks is None else marks.soft,
        hard=0.0 if marks is None else marks.hard,
        min_free_ratio=config.kv_block_pool.min_free_ratio,
        eviction=config.eviction.policy,
        classes=tuple(
            SessionClass(name=each.klass, priority=each.priority, pin_quota=each.pin_quota, ttl_s=each.ttl_s)
            for each in config.eviction.sessions
        ),
        cache_scope=config.cache_scope,
        autoscale=config.kv_block_pool.autoscale is not False,
        min_pool_bytes=pool.floor_bytes,
    )


def route_settings(resolved: Resolved, limits: Limits) -> RouteSettings:
    """What the router needs of the entry."""
    config = resolved.config
    return RouteSettings(
        aliases=config.names[1:],
        weight=config.weight,
        sampling=_sampling(resolved),
        limits=limits,
        max_queue=config.max_queue,
        queue_timeout_s=config.queue_timeout_ms / 1000,
        classes=config.eviction.class_names,
    )


def _sampling(resolved: Resolved) -> Sampling:
    """The document's value, else the checkpoint's own, else ours."""
    asked, own = resolved.config.sampling, resolved.sampling

    def pick(name: str, neutral: float) -> float:
        stated = getattr(asked, name)
        return float(own.get(name, neutral) if stated is None else stated)

    return Sampling(
        temperature=pick("temperature", _DEFAULT_TEMPERATURE),
        top_p=pick("top_p", _DEFAULT_TOP_P),
        top_k=int(pick("top_k", 0)),
        min_p=pick("min_p", 0.0),
        repetition_penalty=pick("repetition_penalty", 1.0),
        presence_penalty=pick("presence_penalty", 0.0),
        frequency_penalty=pick("frequency_penalty", 0.0),
        seed=0,
    )
