"""Short and long requests from clients in a closed loop: first come, first served beside lanes."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.limits import LongLane, SchedLimits
from halogend.sim.job import Shape
from halogend.sim.loads import ClosedLoop, mixed
from halogend.sim.measures import Measures
from halogend.sim.policies import Machine
from halogend.sim.report import Bar, Report
from halogend.sim.simulation import Simulation
from halogend.sim.timing import StepTimes

SHORT, LONG = "short", "long"
SHORT_TOKENS, LONG_TOKENS = (200, 100), (1800, 512)
SHORT_WEIGHT, LONG_WEIGHT = 7, 3
BARS = {SHORT: 0.5, LONG: 1.5}  # p99 time to first token beside first come, first served
THROUGHPUT_BAR = 0.98


def add(kinds: Any) -> None:
    parser = kinds.add_parser("mixed", help=__doc__)
    parser.add_argument("--requests", type=int, default=3000, help="measured in each arm, short and long")
    parser.add_argument("--clients", type=int, default=150)
    parser.add_argument("--think", type=float, default=0.0, help="seconds from an answer to the next request")
    parser.add_argument("--divide", type=int, default=1, help="lengths by this (8: an eighth)")
    parser.add_argument("--spread", type=float, default=0.0, help="lengths vary by this share either way")
    parser.add_argument("--max-batch", type=int, default=160, help="of both arms: more than there are clients")
    parser.add_argument("--pool-tokens", type=int, default=262144, help="of both arms: most clients fit")
    parser.add_argument("--step-tokens", type=int, default=256, help="the most of one request, and of an unpaced step")
    parser.add_argument("--paced-tokens", type=int, default=1024, help="the most of a step whose time is bounded")
    parser.add_argument("--max-gap", type=float, default=2.0, help="seconds, of the lanes' arm")
    parser.add_argument("--long-concurrent", type=int, default=4, help="of the lanes' arm")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, times: StepTimes) -> Report:
    short = Shape(SHORT, SHORT_TOKENS[0] // args.divide, SHORT_TOKENS[1] // args.divide, spread=args.spread)
    long = Shape(LONG, LONG_TOKENS[0] // args.divide, LONG_TOKENS[1] // args.divide, spread=args.spread)
    machine = Machine(args.pool_tokens // BLOCK_TOKENS, args.max_batch, args.step_tokens, args.paced_tokens)
    lane = LongLane((short.prompt_tokens + long.prompt_tokens) // 2, args.long_concurrent)
    report = Report(
        f"{args.clients} clients, {args.requests} requests: {SHORT} {short.prompt_tokens}/{short.answer_tokens}"
        f" and {LONG} {long.prompt_tokens}/{long.answer_tokens} tokens, {SHORT_WEIGHT} : {LONG_WEIGHT};"
        f" max_batch {args.max_batch}, pool {args.pool_tokens} tokens"
    )
    lanes_limits = replace(machine.lanes(args.clients, lane), max_gap_s=args.max_gap)
    arms = {"first come": machine.first_come(args.clients), "lanes": lanes_limits}
    measured = {name: _measure(args, machine, limits, (short, long), times) for name, limits in arms.items()}
    report.rows = {name: figures(measures) for name, measures in measured.items()}
    first_come, lanes = measured["first come"], measured["lanes"]
    for kind, limit in BARS.items():
        ratio = lanes.first_token_s(kind, 0.99) / first_come.first_token_s(kind, 0.99)
        report.bars.append(Bar(f"{kind} p99 time to first token, lanes / first come", ratio, limit))
    ratio = lanes.tokens_per_s / first_come.tokens_per_s
    report.bars.append(Bar("generated tokens/s, lanes / first come", ratio, THROUGHPUT_BAR, least=True))
    return report


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


def _measure(
    args: argparse.Namespace, machine: Machine, limits: SchedLimits, shapes: tuple[Shape, Shape], times: StepTimes
) -> Measures:
    draw = mixed(tuple(zip(shapes, (SHORT_WEIGHT, LONG_WEIGHT), strict=True)), args.seed)
    measures = Measures(first=args.clients, count=args.requests)
    load = ClosedLoop(args.clients, draw, args.think, args.seed)
    Simulation(machine.scheduler(limits), times, load, measures).run()
    return measures
