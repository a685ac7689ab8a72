"""What the scheduler may be told while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from halogend.sched.blocks import BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class LongLane:
    """Prompts of `threshold` tokens or more: at most `max_concurrent` of them are computed at a time, beside
    the short ones. Raises ValueError for a lane that nobody could pass."""

    threshold: int = 4096
    max_concurrent: int = 1

    def __post_init__(self) -> None:
        if self.threshold < 1 or self.max_concurrent < 1:
            raise ValueError(
                f"a long lane needs a threshold and a place, not {self.threshold} and {self.max_concurrent}"
            )


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Shares of the pool that referenced and pinned blocks may take: above `soft` admission is choosy, above
    `hard` nobody new comes in unless nobody runs. Raises ValueError unless 0 < soft < hard <= 1."""

    soft: float = 0.75
    hard: float = 0.90

    def __post_init__(self) -> None:
        if not 0 < self.soft < self.hard <= 1:
            raise ValueError(f"watermarks must be 0 < soft < hard <= 1, not {self.soft} and {self.hard}")


@dataclass(frozen=True, slots=True)
class SessionClass:
    """Requests of higher `priority` come in first and give way last, and their cached blocks go later; up to
    `pin_quota` of the pool stays for `ttl_s` after its last use. Raises ValueError for values outside their range."""

    name: str
    priority: int = 0
    pin_quota: float = 0.0
    ttl_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.pin_quota <= 1 or not self.ttl_s >= 0:
            raise ValueError(f"class {self.name!r} cannot pin {self.pin_quota} of the pool for {self.ttl_s} s")


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """`policy` is lru or priority_lru; only the latter heeds the classes in what it evicts. Raises ValueError for
    another."""

    policy: str = "lru"
    classes: tuple[SessionClass, ...] = ()

    def __post_init__(self) -> None:
        if self.policy not in ("lru", "priority_lru"):
            raise ValueError(f"there is no eviction policy {self.policy!r}")

    def priority_of(self, klass: str) -> int:
        """Of a class that is not known: 0, as of none."""
        return next((each.priority for each in self.classes if each.name == klass), 0)


@dataclass(frozen=True, slots=True)
class SchedLimits:
    """`step_tokens` is the budget of one step over all requests, `prefill_chunk_tokens` the most
    one request takes of it (0: as much as is left). A time limit of 0 is off, and so are
    `max_queue_tokens` 0 and the lane and the watermarks that are None. Raises ValueError for values
    that would let nothing run."""

    max_batch: int
    max_queue: int
    queue_timeout_s: float
    request_timeout_s: float
    prefill_chunk_tokens: int
    step_tokens: int
    max_queue_tokens: int = 0
    prefill_timeout_s: float = 3.0
    max_gap_s: float = 0.25
    long: LongLane | None = field(default_factory=LongLane)
    watermarks: Watermarks | None = field(default_factory=Watermarks)
    min_free_ratio: float = 0.03
    eviction: EvictionPolicy = field(default_factory=EvictionPolicy)

    def __post_init__(self) -> None:
        for name, least in (
            ("max_batch", 1),
            ("step_tokens", 1),
            ("max_queue", 0),
            ("prefill_chunk_tokens", 0),
            ("max_queue_tokens", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("queue_timeout_s", "request_timeout_s", "prefill_timeout_s", "max_gap_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
        if not 0 <= self.min_free_ratio < 1:
            raise ValueError(f"min_free_ratio must be from 0 to below 1, not {self.min_free_ratio}")

    @property
    def request_step_tokens(self) -> int:
        """The most positions of one request that a step computes. Beside decodes that fill the budget a
        prompt still moves by a block."""
        most = max(self.step_tokens, BLOCK_TOKENS)
        return min(most, self.prefill_chunk_tokens or most)
