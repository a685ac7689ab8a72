"""One terminal event a request, always last; counts as documented."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halogend.text.answers import Answers
from halogend.wire.failure import Failure
from halogend.wire.requests import Delta, Ended, Finished, Sampled, StepOutput, TextEvent, Usage

END = 0
PIECES = [b"", b"a", b"b", b"ab", "é".encode()[:1], "é".encode()[1:], b"STOP", b"ST", b"OP"]


def answers(*requests: tuple[int, tuple[str, ...]]) -> Answers:
    made = Answers(PIECES.__getitem__, frozenset({END}))
    for request, stops in requests:
        made.begin(request, 7, stops)
    return made


def step(answers: Answers, *tokens: tuple[int, int], ended: tuple[Ended, ...] = ()) -> tuple[TextEvent, ...]:
    return answers.step(
        StepOutput(sampled=tuple(Sampled(id=request, token=token) for request, token in tokens), ended=ended)
    ).events


def done(request: int, reason: str, tokens: int, failure: Failure | None = None) -> Finished:
    usage = Usage(prompt_tokens=7, completion_tokens=tokens)
    return Finished(id=request, reason=reason, usage=usage, failure=failure)


def test_tokens_of_a_batch_in_one_step():
    batch = answers((1, ()), (2, ()))
    assert step(batch, (1, 1), (2, 2)) == (Delta(id=1, text="a", tokens=1), Delta(id=2, text="b", tokens=1))
    assert step(batch, (2, 4)) == (Delta(id=2, text="", tokens=1),)
    assert step(batch, (2, 5)) == (Delta(id=2, text="é", tokens=1),)


def test_what_of_a_prompt_was_there_already_is_in_its_usage():
    batch = answers((1, ()), (2, ()))
    batch.step(StepOutput(sampled=(), ended=(), reused=((1, 6), (9, 3))))
    ended = step(batch, ended=(Ended(id=1, reason="stop"), Ended(id=2, reason="stop")))
    assert [event.usage.cached_tokens for event in ended if isinstance(event, Finished)] == [6, 0]


def test_a_stop_id_is_neither_shown_nor_counted():
    batch = answers((1, ()))
    step(batch, (1, 1))
    assert step(batch, (1, END), ended=(Ended(id=1, reason="stop"),)) == (done(1, "stop", 1),)
    assert len(batch) == 0


def test_length_shows_what_was_held_back():
    batch = answers((1, ("STOPPED",)))
    assert step(batch, (1, 6)) == (Delta(id=1, text="", tokens=1),)
    assert step(batch, ended=(Ended(id=1, reason="length"),)) == (
        Delta(id=1, text="STOP", tokens=0),
        done(1, "length", 1),
    )


def test_a_stop_string_ends_the_request_here_and_tells_the_engine():
    batch = answers((1, ("STOP",)), (2, ()))
    step(batch, (1, 1), (1, 7))
    output = batch.step(StepOutput(sampled=(Sampled(id=1, token=8), Sampled(id=2, token=1)), ended=()))
    assert output.events == (
        Delta(id=1, text="", tokens=1),
        done(1, "stop", 3),
        Delta(id=2, text="a", tokens=1),
    )
    assert output.stopped == (1,)
    assert step(batch, (1, 1), ended=(Ended(id=1, reason="length"),)) == ()


def test_an_error_of_the_engine_is_passed_on():
    why = Failure(code="numeric_error", message="logits were not finite")
    assert step(answers((1, ())), ended=(Ended(id=1, reason="error", failure=why),)) == (done(1, "error", 0, why),)
    (event,) = step(answers((1, ())), ended=(Ended(id=1, reason="error"),))
    assert isinstance(event, Finished)
    assert event.failure is not None
    assert event.failure.code == "internal_error"


def test_dropped_requests_are_silent():
    batch = answers((1, ()))
    assert batch.drop(1)
    assert not batch.drop(1)
    assert step(batch, (1, 1), ended=(Ended(id=1, reason="length"),)) == ()


def test_the_engines_end_ends_everybody_once():
    batch = answers((1, ()), (2, ()))
    step(batch, (1, 1))
    why = Failure(code="engine_died", message="gone")
    assert batch.fail_all(why) == (done(1, "error", 1, why), done(2, "error", 0, why))
    assert batch.fail_all(why) == ()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, len(PIECES) - 1), st.booleans()), max_size=60))
def test_every_request_ends_once_and_nothing_follows(script: list[tuple[int, int, bool]]):
    batch = answers((1, ()), (2, ("ab",)), (3, ("STOP", "b")))
    finished: dict[int, Finished] = {}
    counted = dict.fromkeys((1, 2, 3), 0)
    for request, token, ends in script:
        reason = "stop" if token == END else "length"
        for event in step(batch, (request, token), ended=(Ended(id=request, reason=reason),) if ends else ()):
            assert event.id not in finished
            if isinstance(event, Finished):
                finished[event.id] = event
            elif isinstance(event, Delta):
                counted[event.id] += event.tokens
    for request, event in finished.items():
        assert event.usage.completion_tokens == counted[request]
    assert len(batch) == 3 - len(finished)
