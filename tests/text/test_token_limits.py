"""Every refusal names the limit and by how much."""

from __future__ import annotations

import pytest

from halogend.text.failures import MAX_TOKENS_TOO_LARGE, PROMPT_TOO_LONG, RequestFailedError
from halogend.text.limits import check_least, fit
from halogend.wire.specs import Limits

LIMITS = Limits(max_prompt_len=100, max_decode_len=50, max_model_len=120)


@pytest.mark.parametrize(
    ("prompt", "asked", "given"),
    [(1, None, 50), (100, None, 20), (70, 50, 50), (100, 20, 20), (1, 1, 1), (71, None, 49)],
)
def test_what_fits(prompt: int, asked: int | None, given: int):
    assert fit(LIMITS, prompt, asked, "prompt") == given


@pytest.mark.parametrize(
    ("prompt", "asked", "code", "param", "words"),
    [
        (101, None, PROMPT_TOO_LONG, "prompt", ("101 tokens", "1 more than max_prompt_len", "(100)")),
        (10, 51, MAX_TOKENS_TOO_LARGE, "max_tokens", ("is 51", "1 more than max_decode_len", "(50)")),
        (100, 21, MAX_TOKENS_TOO_LARGE, "max_tokens", ("together 1 over max_model_len (120)", "at most 20")),
    ],
)
def test_what_does_not(prompt: int, asked: int | None, code: str, param: str, words: tuple[str, ...]):
    with pytest.raises(RequestFailedError) as caught:
        fit(LIMITS, prompt, asked, "prompt")
    failure = caught.value.failure
    assert (failure.code, failure.param) == (code, param)
    for word in words:
        assert word in failure.message


def test_a_prompt_that_leaves_no_room_for_an_answer():
    tight = Limits(max_prompt_len=200, max_decode_len=50, max_model_len=120)
    assert fit(tight, 119, None, "messages") == 1
    with pytest.raises(RequestFailedError) as caught:
        fit(tight, 120, 1, "messages")
    assert (caught.value.failure.code, caught.value.failure.param) == (PROMPT_TOO_LONG, "messages")
    assert "1 over max_model_len (120)" in caught.value.failure.message


def test_a_prompt_too_long_by_its_bytes_alone():
    check_least(LIMITS, 100, "prompt")
    with pytest.raises(RequestFailedError, match=r"at least 1 more than max_prompt_len allows \(100\)"):
        check_least(LIMITS, 101, "prompt")
    tight = Limits(max_prompt_len=200, max_decode_len=50, max_model_len=120)
    check_least(tight, 119, "prompt")
    with pytest.raises(RequestFailedError, match=r"max_model_len allows \(120\)"):
        check_least(tight, 120, "prompt")
