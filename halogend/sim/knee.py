"""Batch sizes side by side under clients that always ask: from where on more places only make all slower."""

from __future__ import annotations

import argparse
from typing import Any

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sim.job import Shape
from halogend.sim.loads import ClosedLoop, mixed
from halogend.sim.measures import Measures, quantile
from halogend.sim.policies import Machine
from halogend.sim.report import Bar, Report
from halogend.sim.simulation import Simulation
from halogend.sim.timing import StepTimes

KNEE = 0.95  # of the best throughput
EXCESS_BAR = 0.9  # the largest batch beside the best: what is too much waits, and harms nobody


def add(kinds: Any) -> None:
    parser = kinds.add_parser("knee", help=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128, 256])
    parser.add_argument("--requests", type=int, default=600, help="measured at each batch size")
    parser.add_argument("--prompt", type=int, default=200, help="tokens")
    parser.add_argument("--answer", type=int, default=100, help="tokens")
    parser.add_argument("--pool-tokens", type=int, default=65536)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, times: StepTimes) -> Report:
    clients = 2 * max(args.batches)
    report = Report(f"{clients} clients, {args.prompt}/{args.answer} tokens, pool {args.pool_tokens} tokens")
    for batch in sorted(args.batches):
        machine = Machine(args.pool_tokens // BLOCK_TOKENS, batch)
        shape = Shape("request", args.prompt, args.answer, spread=0.5)
        measures = Measures(first=clients, count=args.requests)
        load = ClosedLoop(clients, mixed(((shape, 1.0),), args.seed))
        Simulation(machine.scheduler(machine.lanes(clients, long=None)), times, load, measures).run()
        report.rows[f"{batch}"] = _figures(measures)
    rates = {name: row["tokens/s"] for name, row in report.rows.items()}
    best = max(rates.values())
    knee = next(name for name, rate in rates.items() if rate >= KNEE * best)
    report.notes.append(f"knee: max_batch {knee} gives {KNEE:.0%} of the best throughput; beyond it requests wait")
    largest = list(rates.values())[-1]
    report.bars.append(Bar("tokens/s of the largest batch / the best", largest / best, EXCESS_BAR, least=True))
    return report


def _figures(measures: Measures) -> dict[str, float]:
    between = [
        (record.last_s - record.first_s) / (record.generated - 1)
        for record in measures.done
        if record.first_s is not None and record.generated > 1
    ]
    return {
        "tokens/s": measures.tokens_per_s,
        "between tokens p50": quantile(between, 0.5),
        "between tokens p99": quantile(between, 0.99),
        "first p50": measures.first_token_s("request", 0.5),
        "first p99": measures.first_token_s("request", 0.99),
        "gap": measures.largest_gap_s,
        "preempted": measures.preemptions,
    }
