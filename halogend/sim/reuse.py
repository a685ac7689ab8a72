"""Conversations with one system prompt and room for fewer: prompt tokens found, beside the optimum."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from halogend.sched.blocks import blocks_for
from halogend.sim.conversations import ORDERS, Conversations, Talk
from halogend.sim.job import Job
from halogend.sim.loads import ClosedLoop
from halogend.sim.measures import Measures
from halogend.sim.optimum import optimum, plain_lru
from halogend.sim.policies import Machine
from halogend.sim.report import Bar, Report
from halogend.sim.simulation import Simulation
from halogend.sim.timing import StepTimes

BARS = {"zipf": 0.9, "round robin": 0.6}  # of the optimum's token hits


def add(kinds: Any) -> None:
    parser = kinds.add_parser("reuse", help=__doc__)
    parser.add_argument("--requests", type=int, default=400, help="turns in all, of each order of arrival")
    parser.add_argument("--conversations", type=int, default=4)
    parser.add_argument("--room", type=int, default=3, help="how many of them the pool holds")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, times: StepTimes) -> Report:
    talk = Talk()
    report = Report(
        f"{args.conversations} conversations with one system prompt of {talk.system_tokens} tokens, room for"
        f" {args.room}; {args.requests} turns, one after the other; prompt tokens found"
    )
    kinds = {"growing": talk, "steady": replace(talk, turns=0)}
    for order, bar in BARS.items():
        for kind, each in kinds.items():
            row = _measure(args, each, order, times)
            report.rows[f"{order}, {kind}"] = row
            report.bars.append(Bar(f"{order}, {kind}: found / the optimum", row["of optimum"], bar, least=True))
    return report


def _measure(args: argparse.Namespace, talk: Talk, order: str, times: StepTimes) -> dict[str, float]:
    conversations = Conversations(talk, args.conversations, ORDERS[order](args.conversations, args.seed))
    jobs = [conversations.draw(number) for number in range(args.requests)]
    turn = talk.question_tokens + talk.answer_tokens
    blocks = blocks_for(talk.system_tokens) + args.room * blocks_for(talk.own_tokens) + blocks_for(turn)
    blocks = max(blocks, max(blocks_for(len(job.prompt) + len(job.answer)) for job in jobs) + 1)
    found = _found(jobs, blocks, times)
    best, lru = optimum(jobs, blocks), plain_lru(jobs, blocks)
    asked = sum(len(job.prompt) for job in jobs)
    return {
        "blocks": blocks,
        "asked": asked,
        "found": found,
        "plain LRU": lru,
        "optimum": best,
        "of optimum": found / best,
        "LRU of optimum": lru / best,
    }


def _found(jobs: list[Job], blocks: int, times: StepTimes) -> int:
    """Tokens that the scheduler itself did not compute again."""
    machine = Machine(blocks, max_batch=4)
    measures = Measures(first=0, count=len(jobs))
    scheduler = machine.scheduler(machine.lanes(max_queue=4, long=None))
    Simulation(scheduler, times, ClosedLoop(1, jobs.__getitem__), measures).run()
    return measures.hit_tokens
