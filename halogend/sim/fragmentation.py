"""Both kinds of fragmentation in a pool that is kept full, with reuse: runs beside two plain allocators."""

from __future__ import annotations

import argparse
import math
from typing import Any

from halogend.sched.blocks import BLOCK_TOKENS, BlockPool
from halogend.sched.fragmentation import LONG_TOKENS, RUN_TOKENS, Held, scattered, unwritten
from halogend.sched.scheduler import Scheduler
from halogend.sim.baselines import FreeListPool
from halogend.sim.blend import Blend
from halogend.sim.held import unwritten_in_fixed
from halogend.sim.loads import HoldUse
from halogend.sim.measures import Measures, quantile
from halogend.sim.policies import FULL, Machine
from halogend.sim.report import Bar, Report
from halogend.sim.simulation import Simulation
from halogend.sim.timing import StepTimes

INTERNAL_BAR, EXTERNAL_BAR = 0.032, 0.10
PLAIN = ("free list of 16", "blocks of 128")  # each of which must miss a bar, or nobody needs runs
_SAMPLE_STEPS = 25
_USE_SLACK = 0.02  # a sample counts when the use is this near


def add(kinds: Any) -> None:
    parser = kinds.add_parser("fragmentation", help=__doc__)
    parser.add_argument("--requests", type=int, default=3000, help="in each arm")
    parser.add_argument("--use", type=float, default=0.85, help="share of the pool that is referenced")
    parser.add_argument("--pool-tokens", type=int, default=65536)
    parser.set_defaults(run=run)


class Samples:
    """Taken every so many steps, once the pool is as full as it is to be. Single writer: the simulation."""

    def __init__(self, scheduler: Scheduler, pool: BlockPool, use: float) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._use = use
        self._steps = 0
        self.uses: list[float] = []
        self.internal: list[float] = []
        self.external: list[float] = []
        self.fixed: list[float] = []

    def look(self, _: float) -> None:
        self._steps += 1
        use = self._pool.referenced_count / self._pool.capacity
        if self._steps % _SAMPLE_STEPS or abs(use - self._use) > _USE_SLACK:
            return
        held: list[Held] = [(sequence.blocks[0], sequence.computed) for sequence in self._scheduler.running]
        self.uses.append(use)
        self.internal.append(unwritten(held))
        self.external.append(scattered(held))
        self.fixed.append(unwritten_in_fixed(held, RUN_TOKENS))


def run(args: argparse.Namespace, times: StepTimes) -> Report:
    blocks = args.pool_tokens // BLOCK_TOKENS
    report = Report(
        f"pool of {args.pool_tokens} tokens, {args.use:.0%} referenced, reuse on; {args.requests} requests an arm;"
        f" external: of requests with {LONG_TOKENS} tokens and more"
    )
    machine = Machine(blocks, max_batch=512, step_tokens=1024)
    ours = _measure(args, machine, machine.pool(), times)
    report.rows["buddy runs"] = _row(ours, ours.internal, ours.external)
    plain = _measure(args, machine, FreeListPool(blocks + 1), times)
    report.rows["free list of 16"] = _row(plain, plain.internal, plain.external)
    # A block is a run: whatever is in one lies in a row.
    report.rows["blocks of 128"] = _row(ours, ours.fixed, [0.0] * len(ours.fixed))
    report.notes.append("blocks of 128: what the sequences of the first row would hold; late: the last quarter")
    report.notes += [f"{name}: {_verdict(report.rows[name])}" for name in PLAIN]
    row = report.rows["buddy runs"]
    report.bars.append(Bar("internal, mean", row["internal"], INTERNAL_BAR))
    report.bars.append(Bar("external, mean", row["external"], EXTERNAL_BAR))
    for name in PLAIN:
        worst = max(report.rows[name]["internal"] / INTERNAL_BAR, report.rows[name]["external"] / EXTERNAL_BAR)
        report.bars.append(Bar(f"{name}: the worse of its figures beside what is asked", worst, 1.0, least=True))
    return report


def _measure(args: argparse.Namespace, machine: Machine, pool: BlockPool, times: StepTimes) -> Samples:
    limits = machine.first_come(machine.max_batch)  # the load alone says how full it is
    scheduler = Scheduler(limits, pool, FULL)
    samples = Samples(scheduler, pool, args.use)
    blend = Blend(args.seed)
    load = HoldUse(
        args.use,
        blend.draw,
        blend.over,
        held=lambda: pool.referenced_count / pool.capacity,
        waits=lambda: scheduler.stats.waiting,
    )
    Simulation(scheduler, times, load, Measures(first=0, count=args.requests)).run(samples.look)
    return samples


def _row(samples: Samples, internal: list[float], external: list[float]) -> dict[str, float]:
    return {
        "samples": len(samples.uses),
        "use": _mean(samples.uses),
        "internal": _mean(internal),
        "internal p95": quantile(internal, 0.95),
        "internal late": _mean(_late(internal)),
        "external": _mean(external),
        "external p95": quantile(external, 0.95),
        "external late": _mean(_late(external)),
    }


def _verdict(row: dict[str, float]) -> str:
    """Which bars a baseline misses."""
    limits = (("internal", INTERNAL_BAR), ("external", EXTERNAL_BAR))
    missed = [f"{kind} {row[kind]:.3f} is over {limit:g}" for kind, limit in limits if row[kind] > limit]
    return ", ".join(missed) or "within both bars"


def _late(values: list[float]) -> list[float]:
    return values[len(values) * 3 // 4 :]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
