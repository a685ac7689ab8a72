"""Simulated time: what is asked when, what a step takes, and what is measured of it."""

from __future__ import annotations

import itertools
import json

import pytest

from halogend.sched.errors import InvariantError
from halogend.sim.job import STOP, Job, Shape, answer
from halogend.sim.loads import ClosedLoop, OpenLoop, bursts, merged, mixed, poisson
from halogend.sim.measures import Measures, quantile
from halogend.sim.policies import Machine
from halogend.sim.simulation import Simulation
from halogend.sim.timing import SMOLLM2, StepTimes, StepWork, read_times, work_of

TIMES = StepTimes(base_s=1.0, decode_row_s=0.1, decode_context_s=0.0, prompt_token_s=0.01, prompt_context_s=0.0)
SHAPE = Shape("short", 30, 20, spread=0.5)


def simulate(load, *, count=1, first=0, machine=None, times=TIMES, limits=None):
    machine = machine or Machine(blocks=200, max_batch=4, step_tokens=64)
    measures = Measures(first, count)
    scheduler = machine.scheduler(limits or machine.first_come(max_queue=64))
    simulation = Simulation(scheduler, times, load, measures)
    simulation.run(lambda _: scheduler.audit())
    return measures, simulation


def jobs(*pairs):
    return OpenLoop(iter(pairs))


def job(prompt_tokens, answer_tokens, max_tokens=0, kind="short", number=1000):
    return Job(kind, (number,) * prompt_tokens, answer(answer_tokens, max_tokens), max_tokens)


def test_a_lone_request_takes_what_its_steps_take():
    measures, simulation = simulate(jobs((2.0, job(20, 3))))
    (record,) = measures.done
    assert record.first_s - record.asked_s == pytest.approx(1.2)  # a step of 20 prompt tokens
    assert record.ended_s - record.first_s == pytest.approx(2 * 1.1)  # two of one row each
    assert measures.largest_gap_s == pytest.approx(1.1)
    assert simulation.now == record.ended_s
    assert measures.steps == 3


def test_what_comes_during_a_step_is_taken_in_when_it_has_ended():
    measures, _ = simulate(jobs((0.0, job(20, 1)), (0.5, job(20, 1, number=7))), count=2)
    first, second = measures.done
    assert first.first_s == pytest.approx(1.2)
    assert second.first_s - second.asked_s == pytest.approx(1.2 - 0.5 + 1.2)


def test_a_stream_waits_for_the_prompt_beside_it():
    measures, _ = simulate(jobs((0.0, job(20, 4)), (1.0, job(40, 1, number=7))), count=2)
    assert measures.largest_gap_s == pytest.approx(1.0 + 0.1 + 0.4)
    assert measures.longest_step_s == pytest.approx(1.5)


def test_an_answer_may_stop_before_its_most():
    measures, _ = simulate(jobs((0.0, job(20, 5, max_tokens=50))))
    assert measures.done[0].generated == 5
    assert measures.done[0].job.answer[-1] == STOP
    assert measures.done[0].code is None


def test_who_is_refused_comes_back_later_and_is_counted():
    machine = Machine(blocks=200, max_batch=1, step_tokens=64)
    load = ClosedLoop(3, mixed(((SHAPE, 1.0),), seed=1))
    measures, _ = simulate(load, count=40, machine=machine, limits=machine.first_come(max_queue=1))
    assert 0 < measures.refused < 40
    assert {record.code for record in measures.done} == {None, "queue_full"}


def test_the_same_seed_is_the_same_trace_and_another_is_not():
    def measured(seed):
        return simulate(ClosedLoop(6, mixed(((SHAPE, 1.0),), seed), think_s=2.0, seed=seed), count=60, first=6)[0]

    one, again, other = measured(1), measured(1), measured(2)
    assert [(r.asked_s, r.ended_s) for r in one.done] == [(r.asked_s, r.ended_s) for r in again.done]
    assert [(r.asked_s, r.ended_s) for r in one.done] != [(r.asked_s, r.ended_s) for r in other.done]


def test_clients_ask_again_at_once_or_after_they_have_thought():
    busy = simulate(ClosedLoop(3, mixed(((SHAPE, 1.0),), 1)), count=50)[0]
    idle = simulate(ClosedLoop(3, mixed(((SHAPE, 1.0),), 1), think_s=60.0), count=50)[0]
    assert busy.requests_per_s > 2 * idle.requests_per_s


def test_only_the_measured_requests_count_and_the_load_lasts_until_they_ended():
    measures, _ = simulate(ClosedLoop(4, mixed(((SHAPE, 1.0),), 1)), count=10, first=5)
    assert len(measures.done) == 10
    assert measures.asked > 15  # others went on beside the last
    assert measures.began_s > 0


def test_arrivals_have_their_rate_and_their_order():
    draw = mixed(((SHAPE, 1.0),), 1)
    times = [at for at, _ in itertools.islice(poisson(4.0, draw, 3), 2000)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(500, rel=0.1)
    together = [at for at, _ in itertools.islice(merged(poisson(4.0, draw, 3), bursts(5.0, 3, draw)), 100)]
    assert together == sorted(together)
    assert together.count(5.0) == 3


def test_work_that_is_never_taken_up_is_our_own_bug():
    machine = Machine(blocks=200, max_batch=4)
    scheduler = machine.scheduler(machine.first_come(8))
    scheduler.schedule = lambda _: None
    simulation = Simulation(scheduler, TIMES, jobs((0.0, job(5, 5))), Measures(0, 1))
    with pytest.raises(InvariantError, match="stands still"):
        simulation.run()


def test_the_work_of_a_step_is_what_its_rows_see():
    machine = Machine(blocks=200, max_batch=4, step_tokens=64)
    scheduler = machine.scheduler(machine.first_come(8))
    scheduler.add(job(40, 9).request(0), 0.0)
    assert work_of(scheduler.schedule(0.0)) == StepWork(0, 0, 40, 40 * 41 // 2)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_the_least_value_that_so_many_do_not_exceed(share):
    values = [0.5, 3.0, 1.0, 9.0, 2.0, 2.0, 7.0]
    found = quantile(values, share)
    assert sum(v <= found for v in values) >= share * len(values)
    assert sum(v < found for v in values) < share * len(values)


def test_constants_come_from_a_file_or_are_refused(tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"times": {name: getattr(SMOLLM2, name) for name in StepTimes.__slots__}}))
    assert read_times(path) == SMOLLM2
    for bad in ('{"times": {"base_s": 1}}', "[]", '{"times": 3}'):
        path.write_text(bad)
        with pytest.raises(ValueError, match="expected"):
            read_times(path)
    with pytest.raises(ValueError, match="such times"):
        StepTimes(0.0, 0.1, 0.1, 0.1, 0.1)
