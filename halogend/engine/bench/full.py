"""`halogend bench full`: a pool that is full all the time, under real load, for as long as is asked for.

More requests than the pool holds, with beginnings that many share, some of a class that comes first and whose
blocks are pinned; some are given up early, and every half minute the limits change live: watermarks off and on,
a pool a quarter smaller and back. Full is what is referenced or pinned, while watermarks are off; what
is cached could be evicted. Steps are as long as they need to be: no stream is to go on smoothly. The engine
audits its scheduler every few steps, at rest and at its end: an audit that fails ends it with another status
than 0. Prints how full the pool was, what gave way, and whether every request had exactly one end; exits with 1
when something that is asked was missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from halogend.engine.bench.driven import GREEDY, PATIENCE_S, DrivenEngine, EngineLostError, Prompts, make_spec
from halogend.engine.bench.judged import Report, judge, parser, patient_limits
from halogend.sched.blocks import BLOCK_TOKENS
from halogend.wire.policy import Caller, EnginePolicy, SessionClass
from halogend.wire.requests import Generate, StepOutput
from halogend.wire.specs import EngineLimits
from halogend.wire.stats import EngineStats

_SECONDS = 600.0
_CLIENTS = 96
_MAX_BATCH = 64
_POOL_TOKENS = 8192
_LONGEST_TOKENS = 1024
_ANSWER_TOKENS = 200
_CHANGE_EVERY_S = 30.0
_GIVE_UP_SHARE = 0.05
_AUDIT_STEPS = 16
_SHARED_BEGINNINGS = 6
_TICK_S = 0.5
_SETTLED_S = 10.0  # after a change of limits the pool is as full as they let it be
_MOST_LEFT = _LONGEST_TOKENS // BLOCK_TOKENS  # blocks, in a full pool: fewer than the longest request may need
_FULL_SHARE_BAR = 0.9  # of the snapshots without watermarks
_GOLD_SHARE = 0.1  # of the requests
_GOLD = SessionClass(name="gold", priority=10, pin_quota=0.2, ttl_s=20.0)


@dataclass(slots=True)
class Load:
    """Closed-loop clients of one engine. `open` maps a request to how many of its tokens came and after how many
    its client goes away (None: it stays)."""

    engine: DrivenEngine
    rng: random.Random
    prompts: Prompts
    beginnings: list[tuple[int, ...]]
    open: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    sent: int = 0
    ended: int = 0
    given_up: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    tokens: int = 0

    def send(self) -> None:
        ids = self.rng.choice(self.beginnings) if self.rng.random() < 0.5 else ()
        own = self.prompts.make(self.rng.randrange(1 << 30), self.rng.randint(1, 500))
        most = self.rng.randint(1, min(_ANSWER_TOKENS, _LONGEST_TOKENS - len(ids) - len(own)))
        leaves = self.rng.randrange(most) if self.rng.random() < _GIVE_UP_SHARE else None
        klass = _GOLD.name if self.rng.random() < _GOLD_SHARE else ""
        caller = Caller(key=f"team-{self.sent % 3}", session=f"talk-{self.sent % 20}", klass=klass)
        self.engine.submit(
            Generate(id=self.sent, prompt_ids=ids + own, max_tokens=most, sampling=GREEDY, stop_ids=(), caller=caller)
        )
        self.open[self.sent] = (0, leaves)
        self.sent += 1

    def take(self, frame: StepOutput) -> int:
        """How many clients are free for another request. Raises EngineLostError for an end of nobody."""
        free = 0
        for sampled in frame.sampled:
            self.tokens += 1
            if sampled.id not in self.open:
                continue  # it was given up while this was on its way
            count, leaves = self.open[sampled.id]
            self.open[sampled.id] = (count + 1, leaves)
            if leaves is not None and count + 1 > leaves:
                self.engine.abort(sampled.id)
                del self.open[sampled.id]
                self.given_up += 1
                free += 1
        for end in frame.ended:
            if end.id not in self.open:
                if end.id >= self.sent:
                    raise EngineLostError(f"request {end.id} ended and was never sent")
                continue
            del self.open[end.id]
            self.ended += 1
            free += 1
            if end.failure is not None:
                self.failures[end.failure.code] = self.failures.get(end.failure.code, 0) + 1
        return free


def main(arguments: Sequence[str] | None = None) -> int:
    return judge("full", _parser().parse_args(arguments), _run, _table)


def _parser() -> argparse.ArgumentParser:
    made = parser("full", __doc__)
    made.add_argument("--seconds", type=float, default=_SECONDS, help="of load (default 600)")
    made.add_argument("--clients", type=int, default=_CLIENTS, help="that always wait for an answer (default 96)")
    made.add_argument("--pool-tokens", type=int, default=_POOL_TOKENS, help="that the pool holds (default 8192)")
    made.add_argument("--seed", type=int, default=0)
    return made


def _run(args: argparse.Namespace) -> Report:
    limits = patient_limits(args.model, _LONGEST_TOKENS, args.pool_tokens, (_MAX_BATCH, args.clients), _policy())
    spec = msgspec.structs.replace(make_spec(args.model, limits, args.threads), audit_steps=_AUDIT_STEPS)
    rng = random.Random(args.seed)  # noqa: S311 (a load, not a secret)
    prompts = Prompts(args.model)
    beginnings = [prompts.make(-1 - number, rng.randint(40, 300)) for number in range(_SHARED_BEGINNINGS)]
    with DrivenEngine(spec) as engine:
        load = Load(engine, rng, prompts, beginnings)
        seen = _drive(load, limits, args)
        _drain(load)
        last = engine.stats
        status = engine.stop()
    if last is None:
        raise EngineLostError("the engine said nothing about itself")
    return _report(load, seen, last, status)


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot of the engine's; `open_s`: for how long there had been no watermarks (0: there were)."""

    stats: EngineStats
    open_s: float

    @property
    def used(self) -> float:
        return self.stats.blocks_used / self.stats.blocks_total

    @property
    def is_full(self) -> bool:
        return self.stats.blocks_total - self.stats.blocks_used < _MOST_LEFT


def _drive(load: Load, limits: EngineLimits, args: argparse.Namespace) -> list[Seen]:
    """The engine's snapshots, one a second. The limits change every half minute, or five times in a shorter run."""
    started = time.monotonic()
    every_s = min(_CHANGE_EVERY_S, args.seconds / 6)
    changes = 0
    seen: list[Seen] = []
    last = None
    for _ in range(args.clients):
        load.send()
    while (elapsed := time.monotonic() - started) < args.seconds:
        for _, frame in load.engine.turn(_TICK_S):
            for _ in range(load.take(frame)):
                load.send()
        if (stats := load.engine.stats) is not None and stats is not last:
            last = stats
            seen.append(Seen(stats, elapsed - changes * every_s if changes % 2 else 0.0))
        if elapsed > (changes + 1) * every_s:
            changes += 1
            load.engine.change(_changed(limits, changes))
    return seen


def _changed(limits: EngineLimits, number: int) -> EngineLimits:
    """Watermarks are off and nothing is kept free every other time; the pool is smaller in the last of every four."""
    pool_bytes = limits.pool_bytes * 3 // 4 if number % 4 == 3 else limits.pool_bytes
    policy = msgspec.structs.replace(_policy(), soft=0, hard=0, min_free_ratio=0) if number % 2 else _policy()
    return msgspec.structs.replace(limits, pool_bytes=pool_bytes, policy=policy)


def _policy() -> EnginePolicy:
    return EnginePolicy(eviction="priority_lru", classes=(_GOLD,), max_gap_s=0)


def _drain(load: Load) -> None:
    """Until every request has ended and the engine has said so. Raises EngineLostError if one never does."""
    moved = time.monotonic()
    while load.open or load.engine.stats is None or load.engine.stats.running + load.engine.stats.waiting:
        for now, frame in load.engine.turn(_TICK_S):
            moved = now
            load.take(frame)
        if time.monotonic() > moved + PATIENCE_S:
            raise EngineLostError(f"{len(load.open)} requests never ended")


def _report(load: Load, seen: Sequence[Seen], last: EngineStats, status: int) -> Report:
    settled_s = max((each.open_s for each in seen), default=0.0) / 3
    full = [each for each in seen if each.open_s > min(_SETTLED_S, settled_s)]
    full_share = statistics.mean(each.is_full for each in full) if full else 0.0
    held = [(each.stats.blocks_used + each.stats.blocks_cached) / each.stats.blocks_total for each in seen]
    sound = status == 0 and not load.open and not load.failures and last.blocks_used == last.blocks_pinned
    return {
        "requests": load.sent,
        "ended": load.ended,
        "given_up": load.given_up,
        "open": len(load.open),
        "failures": load.failures,
        "tokens": load.tokens,
        "snapshots": len(seen),
        "snapshots without watermarks": len(full),
        "used without watermarks": statistics.mean(each.used for each in full) if full else 0.0,
        "full_share": full_share,
        "used_and_cached": statistics.mean(held) if held else 0.0,
        "pinned_max": max((each.stats.blocks_pinned for each in seen), default=0),
        "preemptions": last.preemptions,
        "evictions": last.evictions,
        "prefix_hit_tokens": last.prefix_hit_tokens,
        "blocks_used_at_end": last.blocks_used,
        "blocks_pinned_at_end": last.blocks_pinned,
        "status": status,
        "sound": sound,
        "met": sound and full_share >= _FULL_SHARE_BAR and last.preemptions > 0,
    }


def _table(report: Report) -> str:
    lines = [f"{name:28} {_shown(value)}" for name, value in report.items() if name not in ("sound", "met")]
    sound = "no crash, audits clean, every request ended, nothing but pins held at the end"
    full = f"fewer than {_MOST_LEFT} blocks left in {_FULL_SHARE_BAR:.0%} of the snapshots without watermarks"
    lines.append(f"bar: {sound}: {'met' if report['sound'] else 'missed'}")
    return "\n".join([*lines, f"bar: these, {full}, and somebody preempted: {'met' if report['met'] else 'missed'}"])


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
