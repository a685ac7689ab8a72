"""What of a request's end is told about the generation that answered it."""

import time

import pytest
from support.scripted_router import ScriptedRouter, failed, hello

from halogend.api.exchange import Exchange
from halogend.control.requests import InferenceRequest, RequestError
from halogend.obs.metrics import Metrics
from halogend.wire.requests import TextPrompt


async def _ends(script):
    router = ScriptedRouter(script=lambda _: script)
    request = InferenceRequest(model="chat", prompt=TextPrompt(text="hi"))
    exchange = Exchange(router, Metrics("1"), request, time.monotonic, time.monotonic())
    code = None
    try:
        async for _ in exchange.events():
            pass
    except RequestError as error:
        code = error.code
    return code, [is_error for _, _, is_error in router.ends]


@pytest.mark.parametrize("code", ["engine_error", "internal_error", "engine_died", "queue_timeout", "request_timeout"])
async def test_a_5xx_is_held_against_the_generation(code):
    assert await _ends([failed(code)]) == (code, [True])


@pytest.mark.parametrize("code", ["prompt_too_long", "kv_too_small", "draining", "shutting_down"])
async def test_what_the_caller_asked_for_and_an_end_that_was_meant_are_not_counted(code):
    assert await _ends([failed(code)]) == (code, [])


async def test_a_whole_answer_counts_for_it():
    assert await _ends(hello()) == (None, [False])
