"""Of an answer that was not learned: was each of its tokens as likely as the likeliest? Near-ties and faults apart."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.alone import Alone
from support.company import Forced, _likely, _mixed
from support.tiny_models import tiny_llama
from torture.document import Checkpoint, Wish
from torture.evidence import Evidence
from torture.judge import Asked, judge
from torture.messages import NEAR_TIE_NATS, Case, End, Judged
from torture.messages import Asked as Answer
from torture.odd import ask, better, odd_answers
from torture.odd import judge as judge_odd
from torture.prompts import PROMPTS

ROOT = Path(__file__).parents[2]
END = 0
PIECES = (b"", b"a", b"b", b"ab", b"\xc3", b"\xa4", b"c")


class Table:
    """A model that says of the tokens of an answer which come next: {tokens: {token: below the likeliest}}."""

    end_ids = frozenset({END})

    def __init__(self, table):
        self.table = table
        self.asked = []

    def encode(self, prompt):
        return [len(prompt)]

    def piece(self, token):
        return PIECES[token]

    def log_probs(self, prompt, answer):
        self.asked.append(tuple(answer))
        below = np.full(len(PIECES), 50.0)
        for token, nats in self.table.get(tuple(answer), {END: 0.0}).items():
            below[token] = nats
        return -1.0 - below


def of(table, text, most_tokens=9, near=0.1):
    return judge(Table(table), Asked("p", most_tokens, text), near)


def right(gap, at=0):
    return Judged(gap_nats=pytest.approx(gap), at_chars=at)


def test_what_the_model_says_itself_has_no_gap():
    table = {(): {1: 0.0, 2: 0.3}, (1,): {2: 0.0}}
    assert of(table, "ab") == right(0.0)
    assert of(table, "ab", most_tokens=2) == right(0.0)


def test_a_near_tie_is_told_from_a_wrong_token():
    table = {(): {1: 0.0}, (1,): {2: 0.0, 6: 0.09}}
    assert of(table, "ac") == right(0.09, at=1)
    assert of(table, "ac", near=0.08) == right(0.09, at=1), "how far it would have to be"
    assert not Judged(gap_nats=NEAR_TIE_NATS * 1.01, at_chars=1).is_right
    assert Judged(gap_nats=NEAR_TIE_NATS, at_chars=1).is_right


def test_the_whole_answer_is_judged_behind_a_near_tie_too():
    table = {(): {1: 0.0, 2: 0.05}, (2,): {6: 0.0, 1: 0.02, 2: 3.0}}
    assert of(table, "bc") == right(0.05)
    assert of(table, "ba") == right(0.05), "the largest of both"
    assert of(table, "bb") == right(3.0, at=1)


def test_an_answer_that_ends_too_early_or_goes_on_is_wrong():
    table = {(): {1: 0.0}, (1,): {2: 0.0, END: 2.0}, (1, 2): {END: 0.0, 6: 4.0}}
    assert of(table, "a") == right(2.0, at=1)
    assert of(table, "abc") == right(4.0, at=2)
    assert of(table, "ab", most_tokens=1) == Judged(gap_nats=None, at_chars=-1)


def test_of_all_tokens_that_show_the_text_those_count_that_lead_on():
    """`ab` is likelier than `a`, and what follows it here is not."""
    table = {(): {3: 0.0, 1: 0.04}, (3,): {END: 0.0}, (1,): {2: 0.0}, (1, 2): {6: 0.0}}
    assert of(table, "ab") == right(0.0)
    assert of(table, "abc") == right(0.04)


def test_a_character_of_several_tokens_is_followed():
    table = {(): {4: 0.0}, (4,): {5: 0.0, 1: 0.01}, (4, 5): {1: 0.0}}
    assert of(table, "äa") == right(0.0)
    assert of(table, "�a") == right(0.01)
    assert of(table, "�", most_tokens=1) == right(0.0)


def test_the_better_of_two_models_counts():
    wrong, farther, near = (Judged(gap_nats=gap, at_chars=at) for gap, at in ((9.0, 2), (9.0, 5), (0.0, 0)))
    assert better(None, wrong) == wrong
    assert better(wrong, farther) == better(farther, wrong) == farther
    assert better(farther, near) == better(near, farther) == near


# --- with an engine ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wish(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    tiny_llama(path, layers=4, hidden=128, ffn=256, context=1024, seed=3)
    return Wish(Checkpoint(path, "tiny", "bf16", "2MiB"), 20_000)


@pytest.fixture(scope="module")
def alone(wish):
    return Alone(wish.text())


def written(alone, number, forced=()):
    """The tokens of a greedy answer that begins with the tokens that are given, and its text."""
    text, most = PROMPTS[number]
    prompt, answer = alone.encode(text), list(forced)
    while len(answer) < most and (token := int(alone.log_probs(prompt, answer).argmax())) not in alone.end_ids:
        answer.append(token)
    return answer, b"".join(map(alone.piece, answer)).decode("utf-8", "replace")


def swerved(alone, number, place):
    """The answer with the second likeliest token at that place, and by how much less likely that is."""
    answer, _ = written(alone, number)
    log_probs = alone.log_probs(alone.encode(PROMPTS[number][0]), answer[:place])
    second = int(np.argsort(-log_probs)[1])
    return written(alone, number, [*answer[:place], second])[1], float(log_probs.max() - log_probs[second])


def test_what_was_computed_before_changes_nothing(alone):
    prompt = alone.encode(PROMPTS[3][0])
    answer, _ = written(alone, 3)
    whole = [alone.log_probs(prompt, answer[:place]) for place in range(len(answer))]
    written(alone, 5)
    assert all(np.array_equal(alone.log_probs(prompt, answer[:place]), whole[place]) for place in (20, 3, 0, 21, 20))


def test_answers_of_an_engine_are_right_and_swerves_are_measured(alone):
    for number in range(len(PROMPTS)):
        _, text = written(alone, number)
        assert judge(alone, Asked(*PROMPTS[number], text)) == Judged(gap_nats=0.0, at_chars=0)
    for place in (0, 5, 11):
        text, gap = swerved(alone, 1, place)
        asked = Asked(*PROMPTS[1], text)
        assert judge(alone, asked, gap * 1.001).gap_nats == pytest.approx(gap)
        assert judge(alone, asked, gap * 0.999).gap_nats >= gap * 0.999


def test_the_answer_to_another_prompt_is_wrong(alone):
    _, text = written(alone, 2)
    assert not judge(alone, Asked(*PROMPTS[0], text)).is_right


def test_every_position_is_compared_in_company(alone):
    requests = [
        Forced(tuple(alone.encode(text)), tuple(written(alone, number)[0])) for number, (text, _) in enumerate(PROMPTS)
    ]
    likely = [_likely(alone, request) for request in requests]
    seen = [(number, place) for number, place, _ in _mixed(alone, requests, 2.0, random.Random(1))]
    assert sorted(seen) == [(number, place) for number, each in enumerate(likely) for place in range(len(each))]


@pytest.fixture
def judges(monkeypatch):
    """Processes that are started find what they import."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / each) for each in ("tools", "tests")))


@pytest.mark.usefixtures("judges")
async def test_odd_answers_are_judged_by_the_models_that_may_have_given_them(alone, wish, tmp_path):
    """In processes of their own, as a run does it; a file that is no model leaves a fault, and the answers unjudged."""
    _, own = written(alone, 0)
    swerve, gap = swerved(alone, 0, 3)
    learned = "what was learned"
    texts = [learned, own, swerve, "nonsense"]
    times = {"sent_at": 0, "tokens_at": (1.0,), "ended_at": 2}
    asked = [Answer(prompt=0, end=End.ANSWERED, code="", moved=0, text=text, **times) for text in [*texts, *texts]]
    evidence = Evidence(asked=asked, answers={0: {learned}})
    assert odd_answers(evidence) == tuple(sorted((0, text) for text in (own, swerve, "nonsense")))
    other = tmp_path / "other.gguf"
    tiny_llama(other, layers=4, hidden=128, ffn=256, context=1024, seed=4)
    broken = tmp_path / "broken.gguf"
    shutil.copy(__file__, broken)
    served = [Wish(Checkpoint(path, "tiny", "bf16", "2MiB"), 1) for path in (other, wish.checkpoint.path, broken)]
    said = []
    await judge_odd(evidence, served, said.append)
    assert evidence.judged[0, own].gap_nats == 0.0
    assert evidence.judged[0, swerve].gap_nats == pytest.approx(gap)
    assert evidence.judged[0, swerve].is_right == (gap <= NEAR_TIE_NATS)
    assert not evidence.judged[0, "nonsense"].is_right
    assert (len(evidence.judged), len(evidence.faults), len(said)) == (3, 1, 3)
    assert "answers of broken.gguf were not judged" in evidence.faults[0]


@pytest.mark.usefixtures("judges")
async def test_nobody_is_asked_where_nothing_is_odd(wish):
    said, evidence = [], Evidence(answers={0: {"what was learned"}})
    await judge_odd(evidence, [wish], said.append)
    assert (said, evidence.judged) == ([], {})
    assert ask(Case(document=wish.text(), answers=())) == []
