"""Short and long requests from many clients: first come, first served beside lanes, in two loads.

*saturated*: each client asks again at once. *near capacity*: clients think in between, and what waits comes of
bursts. Beside lanes stands first come, first served with steps as large and as long as theirs, so that the policy
alone differs: the bars are of these two. First come, first served with small steps is shown, too.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.limits import LongLane, SchedLimits
from halogend.sim.job import Shape
from halogend.sim.loads import ClosedLoop, mixed
from halogend.sim.measures import Measures
from halogend.sim.policies import Machine, in_order
from halogend.sim.report import Bar, Report
from halogend.sim.simulation import Simulation
from halogend.sim.timing import StepTimes

SHORT, LONG = "short", "long"
SHORT_TOKENS, LONG_TOKENS = (200, 100), (1800, 512)
SHORT_WEIGHT, LONG_WEIGHT = 7, 3
SMALL_STEPS, FIRST_COME, LANES = "first come, small steps", "first come", "lanes"
SATURATED, NEAR = "saturated", "near capacity"
LOADS = {"both": (SATURATED, NEAR), "saturated": (SATURATED,), "near": (NEAR,)}
BARS = {SHORT: 0.5, LONG: 1.5}  # p99 time to first token beside first come, first served
THROUGHPUT_BAR = 0.98
THINKING = 0.9  # of the clients, at capacity
_WARM_UP = 3  # requests of each client that thinks, before one is measured


def add(kinds: Any) -> None:
    parser = kinds.add_parser("mixed", help=__doc__)
    parser.add_argument("--requests", type=int, default=3000, help="measured in each arm, short and long")
    parser.add_argument("--clients", type=int, default=150)
    parser.add_argument("--loads", choices=LOADS, default="both")
    thinking = f"{THINKING} x clients / requests a second of first come, saturated"
    parser.add_argument("--think", type=float, help=f"seconds before the next request, near capacity ({thinking})")
    before = f"requests before the measured ones (each client's first; near capacity its first {_WARM_UP})"
    parser.add_argument("--warm-up", type=int, help=before)
    parser.add_argument("--divide", type=int, default=1, help="lengths by this (8: an eighth)")
    parser.add_argument("--spread", type=float, default=0.0, help="lengths vary by this share either way")
    parser.add_argument("--max-batch", type=int, default=160, help="of all arms: more than there are clients")
    parser.add_argument("--pool-tokens", type=int, default=262144, help="of all arms: most clients fit")
    parser.add_argument("--step-tokens", type=int, default=256, help="the most of one request, and of a small step")
    parser.add_argument("--paced-tokens", type=int, default=512, help="the most of a step whose time is bounded")
    parser.add_argument("--max-gap", type=float, default=0.25, help="seconds of a step, unless steps are small")
    parser.add_argument("--long-concurrent", type=int, default=1, help="of the lanes' arm")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, times: StepTimes) -> Report:
    short = Shape(SHORT, SHORT_TOKENS[0] // args.divide, SHORT_TOKENS[1] // args.divide, spread=args.spread)
    long = Shape(LONG, LONG_TOKENS[0] // args.divide, LONG_TOKENS[1] // args.divide, spread=args.spread)
    report = Report(
        f"{args.clients} clients, {args.requests} requests: {SHORT} {short.prompt_tokens}/{short.answer_tokens}"
        f" and {LONG} {long.prompt_tokens}/{long.answer_tokens} tokens, {SHORT_WEIGHT} : {LONG_WEIGHT};"
        f" max_batch {args.max_batch}, pool {args.pool_tokens} tokens"
    )
    load = _Load(args, times, (short, long))
    think_s = args.think
    if SATURATED in LOADS[args.loads] or think_s is None:
        first_come = load.measure(FIRST_COME, 0.0)
        capacity = first_come.requests_per_s
        think_s = THINKING * args.clients / capacity if think_s is None else think_s
        report.notes.append(f"first come, saturated: {capacity:.4g} requests/s, the capacity")
    if SATURATED in LOADS[args.loads]:
        rest = {name: load.measure(name, 0.0) for name in (SMALL_STEPS, LANES)}
        _judge(report, SATURATED, {FIRST_COME: first_come, **rest})
        report.notes.append(f"{SATURATED}: with as many running and as many requests/s, the mean wait is the same")
    if NEAR in LOADS[args.loads]:
        _judge(report, NEAR, {name: load.measure(name, think_s) for name in (FIRST_COME, SMALL_STEPS, LANES)})
        report.notes.append(f"{NEAR}: clients think for {think_s:.3g} s on average")
    return report


class _Load:
    """The same requests for every arm."""

    def __init__(self, args: argparse.Namespace, times: StepTimes, shapes: tuple[Shape, Shape]) -> None:
        self._args = args
        self._times = times
        self._shapes = shapes
        blocks = args.pool_tokens // BLOCK_TOKENS
        self._machine = Machine(blocks, args.max_batch, args.step_tokens, args.paced_tokens)

    def limits(self, arm: str) -> SchedLimits:
        args, machine = self._args, self._machine
        if arm == SMALL_STEPS:
            return machine.first_come(args.clients)
        threshold = sum(shape.prompt_tokens for shape in self._shapes) // 2
        lanes = replace(machine.lanes(args.clients, LongLane(threshold, args.long_concurrent)), max_gap_s=args.max_gap)
        return in_order(lanes) if arm == FIRST_COME else lanes

    def measure(self, arm: str, think_s: float) -> Measures:
        args = self._args
        draw = mixed(tuple(zip(self._shapes, (SHORT_WEIGHT, LONG_WEIGHT), strict=True)), args.seed)
        warm_up = args.clients * (_WARM_UP if think_s else 1) if args.warm_up is None else args.warm_up
        measures = Measures(first=warm_up, count=args.requests)
        load = ClosedLoop(args.clients, draw, think_s, args.seed)
        Simulation(self._machine.scheduler(self.limits(arm)), self._times, load, measures).run()
        return measures


def _judge(report: Report, load: str, arms: dict[str, Measures]) -> None:
    for name, measures in arms.items():
        report.rows[f"{load}: {name}"] = figures(measures) | {"mean wait": measures.mean_first_s}
    first_come, lanes = arms[FIRST_COME], arms[LANES]
    for kind, limit in BARS.items():
        ratio = lanes.first_token_s(kind, 0.99) / first_come.first_token_s(kind, 0.99)
        report.bars.append(Bar(f"{load}: {kind} p99 time to first token, {LANES} / {FIRST_COME}", ratio, limit))
    ratio = lanes.tokens_per_s / first_come.tokens_per_s
    name = f"{load}: generated tokens/s, {LANES} / {FIRST_COME}"
    report.bars.append(Bar(name, ratio, THROUGHPUT_BAR, least=True))


def figures(measures: Measures) -> dict[str, float]:
    """Times in seconds."""
    row: dict[str, float] = {}
    for kind in measures.kinds():
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            row[f"{kind} {name}"] = measures.first_token_s(kind, share)
    return row | {
        "tokens/s": measures.tokens_per_s,
        "requests/s": measures.requests_per_s,
        "gap": measures.largest_gap_s,
        "step": measures.longest_step_s,
        "preempted": measures.preemptions,
        "simulated": measures.ended_s,
    }
