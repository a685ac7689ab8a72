"""Many callers, one of which floods: what the others notice, with and without fair shares."""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.request import ANYBODY, Caller
from halogend.sim.job import Job, Shape
from halogend.sim.loads import Draw, OpenLoop, bursts, merged, of_shape, poisson
from halogend.sim.measures import Measures
from halogend.sim.mixed import figures
from halogend.sim.policies import Machine
from halogend.sim.report import Bar, Report
from halogend.sim.simulation import Simulation
from halogend.sim.timing import StepTimes

OTHERS, FLOOD = "others", "flood"
OTHER_KEYS = 9
CPU_BAR_S = 300.0
FAIR_BAR = 0.6  # the others' p99 time to first token beside first come, first served


def add(kinds: Any) -> None:
    parser = kinds.add_parser("flood", help=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="in each arm")
    parser.add_argument("--rate", type=float, default=0.5, help="of the others, requests a second")
    parser.add_argument("--burst", type=int, default=200, help="requests that the flooding key sends at once")
    parser.add_argument("--every", type=float, default=400.0, help="seconds from burst to burst")
    parser.add_argument("--prompt", type=int, default=200, help="tokens")
    parser.add_argument("--answer", type=int, default=100, help="tokens")
    parser.add_argument("--max-batch", type=int, default=64)
    parser.add_argument("--pool-tokens", type=int, default=65536)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, times: StepTimes) -> Report:
    machine = Machine(args.pool_tokens // BLOCK_TOKENS, args.max_batch)
    report = Report(
        f"{args.requests} requests an arm, {args.prompt}/{args.answer} tokens: {OTHER_KEYS} keys with {args.rate}"
        f" requests/s in all, one with {args.burst} at once every {args.every:.0f} s; max_batch {args.max_batch}"
    )
    queue = 2 * args.burst + args.max_batch
    arms = {"first come": machine.first_come(queue), "fair shares": machine.lanes(queue, long=None)}
    first_p99 = {}
    for name, limits in arms.items():
        measures = Measures(first=0, count=args.requests)
        load = OpenLoop(itertools.islice(_arrivals(args, keyed=name != "first come"), args.requests))
        wall_s, cpu_s = -time.perf_counter(), -time.process_time()
        Simulation(machine.scheduler(limits), times, load, measures).run()
        wall_s, cpu_s = wall_s + time.perf_counter(), cpu_s + time.process_time()
        report.rows[name] = figures(measures) | {"wall": wall_s, "cpu": cpu_s}
        # What else the machine does is no matter of ours.
        what = f"{name}: processor time for {args.requests} requests in seconds (wall time is in the table)"
        report.bars.append(Bar(what, cpu_s, CPU_BAR_S))
        first_p99[name] = measures.first_token_s(OTHERS, 0.99)
    ratio = first_p99["fair shares"] / first_p99["first come"]
    report.bars.append(Bar("the others' p99 time to first token, fair shares / first come", ratio, FAIR_BAR))
    return report


def _arrivals(args: argparse.Namespace, keyed: bool) -> Iterator[tuple[float, Job]]:
    """Without keys everybody is one caller."""
    others = _draw(args, OTHERS, [Caller(key=f"key {n}") if keyed else ANYBODY for n in range(OTHER_KEYS)])
    flood = _draw(args, FLOOD, [Caller(key=FLOOD) if keyed else ANYBODY])
    return merged(poisson(args.rate, others, args.seed), bursts(args.every, args.burst, flood))


def _draw(args: argparse.Namespace, kind: str, callers: list[Caller]) -> Draw:
    draws = random.Random(f"{kind} {args.seed}")  # noqa: S311 (a trace, not a secret)
    shape = Shape(kind, args.prompt, args.answer, spread=0.5)
    stride = 0 if kind == OTHERS else 1  # no prompt of one is the other's

    def draw(number: int) -> Job:
        return of_shape(shape, 2 * number + stride, draws, draws.choice(callers))

    return draw
