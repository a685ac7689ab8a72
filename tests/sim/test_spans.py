"""Spans of decode steps: the same, to the last bit, as one step after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halogend.sched.blocks import BlockPool
from halogend.sched.layout import KvLayout
from halogend.sched.limits import EvictionPolicy, LongLane, SessionClass
from halogend.sched.request import Caller, Request
from halogend.sched.scheduler import Scheduler
from halogend.sched.spans import SpanStep
from halogend.sched.step import StepResult
from halogend.sim.conversations import Conversations, Talk, zipf
from halogend.sim.job import Shape
from halogend.sim.loads import ClosedLoop, OpenLoop, mixed, poisson
from halogend.sim.measures import Measures
from halogend.sim.policies import FULL, Machine
from halogend.sim.simulation import Simulation
from halogend.sim.timing import SMOLLM2

SHORT, LONG = Shape("short", 30, 20, spread=0.5), Shape("long", 150, 100, max_tokens=160, spread=0.5)
TALK = Talk(system_tokens=64, opening_tokens=96, question_tokens=20, answer_tokens=20, turns=5)


def draws():
    return mixed(((SHORT, 0.7), (LONG, 0.3)), seed=5)


LOADS = {
    "closed": lambda: ClosedLoop(24, draws(), think_s=1.0, seed=5),
    "open": lambda: OpenLoop(poisson(1.2, draws(), seed=4)),
    "sessions": lambda: ClosedLoop(12, Conversations(TALK, 8, zipf(8, 1.0, seed=1)).draw, think_s=4.0, seed=1),
}


class Counted(Scheduler):
    """Counts the steps that were taken in spans."""

    spanned = 0

    def apply_span(self, steps, tokens):
        self.spanned += len(steps)
        super().apply_span(steps, tokens)


def run(limits, load, blocks, spans):
    scheduler = Counted(limits, BlockPool(blocks + 1, blocks + 1), FULL)
    measures = Measures(first=5, count=50)
    Simulation(scheduler, SMOLLM2, load(), measures, spans=spans).run()
    scheduler.audit()
    records = [(r.asked_s, r.first_s, r.last_s, r.ended_s, r.generated, r.reused) for r in measures.done]
    figures = (measures.generated, measures.largest_gap_s, measures.longest_step_s, measures.steps)
    return records, figures, scheduler


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("blocks", [800, 240])
@pytest.mark.parametrize("lanes", [True, False])
def test_spans_change_nothing(load, blocks, lanes):
    machine = Machine(blocks, max_batch=16)
    limits = machine.lanes(64, LongLane(100)) if lanes else machine.first_come(64)
    records, figures, stepwise = run(limits, LOADS[load], blocks, spans=False)
    again, same, spanned = run(limits, LOADS[load], blocks, spans=True)
    assert again == records
    assert same == figures
    assert spanned.stats == stepwise.stats
    assert stepwise.spanned == 0
    assert spanned.spanned > 0.2 * figures[-1]


def decoding(scheduler, *requests):
    """All of them with their prompts computed."""
    for request in requests:
        assert scheduler.add(request, 0.0) is None
    while any(s.ahead != 1 for s in scheduler.running) or not list(scheduler.running):
        plan = scheduler.schedule(0.0)
        scheduler.apply(StepResult(plan.number, tuple((i.id, 3) for i in plan.items if i.samples), seconds=0.1))
    return scheduler


def ask(number, prompt=20, most=50, klass=""):
    return Request(number, (number,) * prompt, most, caller=Caller(klass=klass))


def test_a_span_ends_before_somebody_does_and_where_it_is_told():
    machine = Machine(100, max_batch=2)
    scheduler = decoding(machine.scheduler(machine.lanes(8, None)), ask(1, most=9), ask(2))
    assert scheduler.span(100) == 9 - 1 - 1
    assert scheduler.span(3) == 3
    scheduler.apply_span([SpanStep(1.0, 0.1), SpanStep(1.1, 0.1)], {1: (5, 6), 2: (7, 8)})
    assert [s.tokens[-2:] for s in scheduler.running] == [[5, 6], [7, 8]]
    assert scheduler.span(100) == 9 - 3 - 1
    assert scheduler.stats.generated_tokens == 2 * 3
    scheduler.audit()


def test_a_span_ends_before_blocks_run_out():
    machine = Machine(8, max_batch=2)
    scheduler = decoding(machine.scheduler(machine.first_come(8)), ask(1, most=60), ask(2, most=60))
    most = scheduler.span(100)
    assert 10 < most < 50  # to the end it would be 58 steps, for which they need ten blocks
    scheduler.apply_span([SpanStep(1.0 + n, 1.0) for n in range(most)], {1: (3,) * most, 2: (3,) * most})
    scheduler.audit()


@pytest.mark.parametrize("change", ["a place is free", "a higher priority waits", "a time limit", "in flight", "none"])
def test_there_is_no_span_where_something_may_be_decided(change):
    machine = Machine(100, max_batch=1)
    limits = replace(machine.lanes(8, None), eviction=EvictionPolicy("lru", (SessionClass("high", 3),)))
    scheduler = decoding(machine.scheduler(limits), ask(1))
    scheduler.add(ask(2, klass="high" if change == "a higher priority waits" else ""), 0.0)
    if change == "a place is free":
        scheduler.update(Machine(100, max_batch=2).lanes(8, None))
    if change == "a time limit":
        scheduler.update(replace(limits, request_timeout_s=5.0))
    if change == "in flight":
        scheduler.schedule(1.0)
    assert (scheduler.span(10) > 0) == (change == "none")


def test_there_is_no_span_with_windows():
    machine = Machine(100, max_batch=1)
    scheduler = Scheduler(machine.lanes(8, None), BlockPool(101, 101), KvLayout((None, 32)))
    assert decoding(scheduler, ask(1)).span(10) == 0
