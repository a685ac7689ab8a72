"""What goes over control channels: lifecycle, progress, live changes.

    daemon <--control--> text, engine

What an engine counts is in `stats`. All times are seconds, all sizes bytes unless the name says `_tokens` or `_blocks`.
"""

from __future__ import annotations

from halogend.wire.base import Message
from halogend.wire.failure import Failure
from halogend.wire.specs import EngineLimits, EngineSpec, Limits, TextSpec


class Hello(Message, frozen=True, kw_only=True):
    """Of a process, once, on its control socket: it has imported what it needs and takes orders. What was said to it
    before lies in the socket and is read then.

    Only Progress and StartFailed may come before. Whoever hears them cannot know yet which version they are of, so
    these three are of one form in every version: fields may be added that have a default, and none be changed.
    """

    version: int
    role: str  # text | engine
    pid: int


class StartEngine(Message, frozen=True, kw_only=True):
    spec: EngineSpec


class StartText(Message, frozen=True, kw_only=True):
    spec: TextSpec


class Progress(Message, frozen=True, kw_only=True):
    """Sent at least once a second by a thread of its own. `counter` moves with every layer run,
    tensor loaded or kernel compiled; the daemon judges health by it. `busy` says work is pending:
    a busy process whose counter rests is wedged. `done`/`total` are bytes while loading."""

    stage: str  # importing | starting | compiling | loading | warming | serving
    counter: int
    busy: bool
    done: int = 0
    total: int = 0


class EngineReady(Message, frozen=True, kw_only=True):
    """`mapped_bytes` of `weights_bytes` lie in mapped files. `pool_bytes` is the KV pool's limit, `pool_touched_bytes`
    what it takes of the device now.
    `transient_bytes`: how far the process rose above what it holds now in the largest steps; None where
    that cannot be learnt."""

    weights_bytes: int
    pool_bytes: int
    block_bytes: int
    block_count: int
    load_s: float
    warmup_s: float
    kernels: dict[str, str]  # operator -> implementation that was chosen
    pool_touched_bytes: int = 0
    transient_bytes: int | None = None
    mapped_bytes: int = 0


class TextReady(Message, frozen=True, kw_only=True):
    vocab_size: int
    has_chat_template: bool
    load_s: float


class StartFailed(Message, frozen=True, kw_only=True):
    """Before Hello: not even the imports could be done."""

    failure: Failure


class PrepareEngine(Message, frozen=True, kw_only=True):
    """First half of a live update: check and hold. Answered by Prepared."""

    update: int
    limits: EngineLimits


class PrepareText(Message, frozen=True, kw_only=True):
    update: int
    limits: Limits
    chat_template: str | None


class Prepared(Message, frozen=True, kw_only=True):
    update: int
    failure: Failure | None = None


class Commit(Message, frozen=True, kw_only=True):
    """Second half: take what was prepared under this number. Takes effect between two steps."""

    update: int


class PoolResized(Message, frozen=True, kw_only=True):
    """An engine's answer to Commit: what is behind the pool's limit was given back, and the daemon may
    count it as free. `pool_bytes` is the limit, `touched_bytes` what the pool takes now."""

    update: int
    pool_bytes: int
    touched_bytes: int


class Discard(Message, frozen=True, kw_only=True):
    update: int


class SetThreads(Message, frozen=True, kw_only=True):
    """How many intra-operator threads an engine may use from the next step on: cores are shared
    out anew whenever generations come or go."""

    threads: int


class SetRest(Message, frozen=True, kw_only=True):
    """The share of the time that an engine computes nothing from the next step on, below 1: its device is too hot."""

    share: float


class Stop(Message, frozen=True, kw_only=True):
    """End now: whatever still runs is lost. Draining is the daemon's business and is over."""
