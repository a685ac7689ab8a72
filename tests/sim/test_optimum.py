"""The offline optimum of reuse: against every possible choice of what to keep, and beside plain LRU."""

from __future__ import annotations

import itertools
import random

import pytest

from halogend.sched.blocks import BLOCK_TOKENS, blocks_for
from halogend.sim.conversations import ORDERS, Conversations, Talk
from halogend.sim.job import Job
from halogend.sim.optimum import optimum, plain_lru

TALK = Talk(system_tokens=32, opening_tokens=48, question_tokens=8, answer_tokens=8, turns=4)


def path(*blocks):
    """A job whose prompt has these full blocks and one token more."""
    return Job("turn", (*itertools.chain.from_iterable((code,) * BLOCK_TOKENS for code in blocks), 99), (1,))


def best_by_trial(jobs, blocks):
    """Keeps every subset that fits, after every job: blocks without one before them help nothing."""
    states = {frozenset(): 0}
    for job in jobs:
        nodes = [job.prompt[: end * BLOCK_TOKENS] for end in range(1, len(job.prompt) // BLOCK_TOKENS + 1)]
        room = blocks - blocks_for(len(job.prompt) + len(job.answer) - 1)
        following = {}
        for kept, saved in states.items():
            found = sum(1 for _ in itertools.takewhile(kept.__contains__, nodes))
            others = kept - set(nodes)
            for count in range(min(room, len(others)) + 1):
                for chosen in itertools.combinations(others, count):
                    state = frozenset((*chosen, *nodes))
                    following[state] = max(following.get(state, 0), saved + found * BLOCK_TOKENS)
        states = following
    return max(states.values())


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_of_what_to_keep_saves_more(seed):
    draw = random.Random(seed)
    stems = [(1,), (1, 2), (3,)]
    jobs = [path(*draw.choice(stems), *draw.sample((4, 5), draw.randint(0, 2))) for _ in range(9)]
    blocks = draw.randint(5, 7)
    assert optimum(jobs, blocks) == best_by_trial(jobs, blocks)


def test_lru_finds_nothing_but_the_system_prompt_in_a_round_of_one_too_many():
    jobs = [path(1, 10 + number % 4, 20 + number % 4) for number in range(40)]
    blocks = 1 + 3 * 2 + 1  # the shared block, three branches of two, the last block of who runs
    assert plain_lru(jobs, blocks) == 39 * BLOCK_TOKENS
    assert optimum(jobs, blocks) > 2 * plain_lru(jobs, blocks)


def test_with_room_for_all_everything_asked_before_is_found():
    jobs = [path(1, 2 + number % 3) for number in range(9)]
    assert optimum(jobs, 50) == plain_lru(jobs, 50) == (2 * 1 + 6 * 2) * BLOCK_TOKENS


def test_an_answer_is_found_in_the_next_turn_and_the_last_token_is_always_computed():
    first = Job("turn", (1,) * 16, (2,) * 17)
    assert optimum([first, Job("turn", (*first.prompt, *first.answer[:16]), (3,))], 9) == 31


def test_what_does_not_fit_alone_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        optimum([path(1, 2, 3)], 3)


@pytest.mark.parametrize("order", ORDERS)
def test_conversations_go_on_with_what_was_said_until_they_are_over(order):
    conversations = Conversations(TALK, 3, ORDERS[order](3, 1))
    jobs = [conversations.draw(number) for number in range(60)]
    sessions = {job.caller.session: [] for job in jobs}
    for job in jobs:
        sessions[job.caller.session].append(job)
    assert len(sessions) > 6
    for turns in sessions.values():
        assert len(turns) <= TALK.turns
        for before, after in itertools.pairwise(turns):
            assert after.prompt[: len(before.prompt) + len(before.answer)] == before.prompt + before.answer
    shared = {job.prompt[: TALK.system_tokens] for job in jobs}
    assert len(shared) == 1
    assert len({job.prompt for job in jobs}) == len(jobs)


def test_turns_come_by_zipf_or_one_after_the_other():
    zipf = list(itertools.islice(ORDERS["zipf"](4, 5), 4000))
    counts = [zipf.count(place) for place in range(4)]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.15)
    assert counts[0] / counts[3] == pytest.approx(4, rel=0.2)
    assert list(itertools.islice(ORDERS["round robin"](3, 0), 5)) == [0, 1, 2, 0, 1]
