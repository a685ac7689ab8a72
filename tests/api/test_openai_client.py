"""The `openai` package against a real listener."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from support.http_world import World, served
from support.scripted_router import ScriptedRouter, deltas, failed, finished

from halogend.control.requests import RequestError

TURNS: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def router() -> ScriptedRouter:
    return ScriptedRouter()


@pytest.fixture
async def client(router: ScriptedRouter) -> AsyncIterator[openai.AsyncOpenAI]:
    async with served(World(router)) as (_, port):
        base = f"http://127.0.0.1:{port}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            yield client


async def test_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="tiny", messages=TURNS, max_completion_tokens=9)
    assert answer.model == "chat"
    assert answer.choices[0].message.content == "Hello, wörld 😀"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 3, 8)


async def test_chat_streamed(client: openai.AsyncOpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = await client.chat.completions.create(model="chat", messages=TURNS, stream=True, stream_options=options)
    chunks = [chunk async for chunk in stream]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == "Hello, wörld 😀"
    assert choices[-1].finish_reason == "stop"
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.total_tokens == 8


async def test_a_conversation_goes_on_with_what_the_client_was_given(client: openai.AsyncOpenAI) -> None:
    first = await client.chat.completions.create(model="chat", messages=TURNS)
    turns: Any = [*TURNS, first.choices[0].message, {"role": "user", "content": "More"}]
    second = await client.chat.completions.create(model="chat", messages=turns)
    assert second.choices[0].finish_reason == "stop"


async def test_completions(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model="chat", prompt=[1, 2, 3], extra_body={"top_k": 5, "min_p": 0.1})
    stream = await client.completions.create(model="chat", prompt="x", stream=True)
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert whole.choices[0].text == text == "Hello, wörld 😀"


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["chat"]
    assert (await client.models.retrieve("tiny")).id == "chat"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("prompt_too_long", openai.BadRequestError),
        ("model_not_found", openai.NotFoundError),
        ("template_timeout", openai.UnprocessableEntityError),
        ("engine_died", openai.InternalServerError),
        ("queue_full", openai.InternalServerError),
    ],
)
async def test_errors_are_typed(
    router: ScriptedRouter, client: openai.AsyncOpenAI, code: str, kind: type[openai.APIStatusError], stream: bool
) -> None:
    router.script = lambda _: [failed(code, "because")]
    with pytest.raises(kind, match="because") as caught:
        await client.chat.completions.create(model="chat", messages=TURNS, stream=stream)
    assert caught.value.code in {code, "context_length_exceeded"}


async def test_an_error_in_a_stream_is_raised(router: ScriptedRouter, client: openai.AsyncOpenAI) -> None:
    router.script = lambda _: [*deltas("a"), failed("engine_died", "the engine went away")]
    stream = await client.chat.completions.create(model="chat", messages=TURNS, stream=True)
    with pytest.raises(openai.APIError, match="went away"):
        _ = [chunk async for chunk in stream]


async def test_an_unknown_field_is_a_bad_request(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="chat", messages=TURNS, extra_body={"topk": 3})
    assert (caught.value.code, caught.value.param) == ("unknown_field", "topk")
    assert "`top_k`" in caught.value.message


async def test_what_cannot_succeed_is_not_repeated(router: ScriptedRouter, client: openai.AsyncOpenAI) -> None:
    """The client repeats 5xx by itself; a request that would fail again says so."""
    router.script = lambda _: [failed("numeric_error")]
    with pytest.raises(openai.InternalServerError):
        await client.with_options(max_retries=2).chat.completions.create(model="chat", messages=TURNS)
    assert len(router.requests) == 1


async def test_what_passes_is_repeated(router: ScriptedRouter, client: openai.AsyncOpenAI) -> None:
    router.refusal = RequestError("queue_full", "full", retry_after_s=1)
    asking = asyncio.create_task(
        client.with_options(max_retries=1).chat.completions.create(model="chat", messages=TURNS)
    )
    await router.submitting.wait()
    router.refusal = None
    router.script = lambda _: [*deltas("b"), finished()]
    assert (await asking).choices[0].message.content == "b"
    assert len(router.requests) == 2
