"""Every route answers, whole and streamed, and says what it was told."""

import asyncio
from typing import Any

import pytest
from starlette.routing import Route
from support.http_world import ROUTES, World, chat, completion, events_of, text_of
from support.scripted_router import CHAT, ScriptedRouter, deltas, failed, finished

from halogend.api.services import Patience
from halogend.control.requests import RequestError, SamplingChoice, ServedModel
from halogend.wire.requests import ChatMessage, ChatPrompt, TextPrompt, TokenPrompt


def usage(cached: int = 0) -> dict[str, Any]:
    counts = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    return {**counts, "prompt_tokens_details": {"cached_tokens": cached}}


async def test_p8_no_route_of_the_own_list_answers_500() -> None:
    world = World(ScriptedRouter())
    seen = 0
    async with world.client() as client:
        for route in world.app.routes:
            assert isinstance(route, Route)
            path = route.path.replace("{name:path}", "chat")
            for method in route.methods or ():
                for body in (b"", b"{}", b"[1]", b"\xff"):
                    answer = await client.request(method, path, content=body)
                    assert answer.status_code < 500, (method, path, body, answer.text)
                    seen += 1
    assert seen > 30


async def test_chat_whole() -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        answer = await client.post("/v1/chat/completions", json=chat(model="tiny"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == "chatcmpl-0001"
    assert answer.json() == {
        "id": "chatcmpl-0001",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": "chat",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello, wörld 😀", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage(),
    }
    assert (await world.router.answers.get()).closed.is_set()


async def test_completion_whole() -> None:
    world = World(ScriptedRouter(script=lambda _: [*deltas(" upon"), finished("length")]))
    async with world.client() as client:
        answer = await client.post("/v1/completions", json=completion())
    body = answer.json()
    assert (body["object"], body["id"]) == ("text_completion", "cmpl-0001")
    assert body["choices"] == [{"index": 0, "text": " upon", "logprobs": None, "finish_reason": "length"}]


@pytest.mark.parametrize("path", ROUTES)
async def test_p7_a_stream_put_together_is_the_whole_body(path: str) -> None:
    texts = ("", "  two", "\n\n", "wörld 😀", "", " end \n")
    world = World(ScriptedRouter(script=lambda _: [*deltas(*texts), finished("length")]))
    async with world.client() as client:
        whole = (await client.post(path, json=ROUTES[path]())).json()
        stream = await client.post(path, json=ROUTES[path](stream=True))
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = events_of(stream.text)
    choice = whole["choices"][0]
    assert text_of(events) == "".join(texts) == (choice["text"] if "text" in choice else choice["message"]["content"])
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == choice["finish_reason"] == "length"
    assert all(event["choices"][0]["finish_reason"] is None for event in events[:-2])


async def test_p6_first_chunk_has_the_role_and_all_chunks_one_identity() -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        stream = await client.post("/v1/chat/completions", json=chat(stream=True))
    chunks = events_of(stream.text)[:-1]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {(c["id"], c["created"], c["model"], c["object"]) for c in chunks} == {
        ("chatcmpl-0001", 1_750_000_000, "chat", "chat.completion.chunk")
    }
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("path", ROUTES)
async def test_usage_chunk_comes_last_when_asked(path: str) -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        body = ROUTES[path](stream=True, stream_options={"include_usage": True})
        *chunks, last, done = events_of((await client.post(path, json=body)).text)
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"] == usage()
    assert all(chunk["usage"] is None for chunk in chunks)


@pytest.mark.parametrize("path", ROUTES)
async def test_what_of_a_prompt_was_reused_is_told_in_both_forms(path: str) -> None:
    world = World(ScriptedRouter(script=lambda _: [*deltas("a"), finished(cached=4)]))
    async with world.client() as client:
        whole = await client.post(path, json=ROUTES[path]())
        body = ROUTES[path](stream=True, stream_options={"include_usage": True})
        *_, last, _done = events_of((await client.post(path, json=body)).text)
    assert whole.json()["usage"] == last["usage"] == usage(cached=4)


@pytest.mark.parametrize("path", ROUTES)
async def test_an_answer_of_no_token_is_whole_in_both_forms(path: str) -> None:
    world = World(ScriptedRouter(script=lambda _: [finished(completion=0)]))
    async with world.client() as client:
        whole = await client.post(path, json=ROUTES[path]())
        stream = await client.post(path, json=ROUTES[path](stream=True))
    assert whole.json()["choices"][0]["finish_reason"] == "stop"
    events = events_of(stream.text)
    assert text_of(events) == ""
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
async def test_an_early_failure_keeps_its_status(path: str, stream: bool) -> None:
    world = World(ScriptedRouter(script=lambda _: [failed("prompt_too_long", "40 tokens over", "messages")]))
    async with world.client() as client:
        answer = await client.post(path, json=ROUTES[path](stream=stream))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["message"], error["param"]) == (
        "context_length_exceeded",
        "40 tokens over",
        "messages",
    )
    assert (error["type"], error["explain"]) == ("invalid_request_error", "HAP-1005")


@pytest.mark.parametrize("path", ROUTES)
async def test_a6_a_failure_after_the_first_byte_is_an_event_and_the_end(path: str) -> None:
    world = World(ScriptedRouter(script=lambda _: [*deltas("Hel"), failed("engine_died", "gone")]))
    async with world.client() as client:
        stream = await client.post(path, json=ROUTES[path](stream=True))
        whole = await client.post(path, json=ROUTES[path]())
    assert stream.status_code == 200
    events = events_of(stream.text)
    assert events[-1]["error"]["code"] == "engine_died"
    assert "[DONE]" not in events
    assert (whole.status_code, whole.headers["retry-after"]) == (503, "2")


async def test_a_failure_after_a_silent_start_is_an_event() -> None:
    router = ScriptedRouter(gate=asyncio.Event(), refusal=RequestError("queue_timeout", "waited"))
    world = World(router, Patience(keep_alive_s=0.01))
    async with world.client() as client:
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=chat(stream=True)))
        await router.submitting.wait()
        assert router.gate is not None
        asyncio.get_running_loop().call_later(0.05, router.gate.set)
        answer = await asking
    assert answer.status_code == 200
    assert answer.text.startswith(": keep-alive\n\n")
    assert events_of(answer.text)[-1]["error"]["code"] == "queue_timeout"


@pytest.mark.parametrize("stream", [False, True])
async def test_a9_a_bug_of_ours_fails_one_request_alone(stream: bool) -> None:
    router = ScriptedRouter(manual=True)
    world = World(router)
    async with world.client() as client:
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=chat(stream=stream)))
        answer = await router.answers.get()
        answer.broken = True
        answer.push(finished())
        response = await asking
        router.manual = False
        fine = await client.post("/v1/chat/completions", json=chat())
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "ZeroDivision" not in response.text
    assert answer.closed.is_set()
    assert fine.status_code == 200


async def test_everything_a_request_says_reaches_the_router() -> None:
    world = World(ScriptedRouter())
    body = chat(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "name": "ann", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "", "refusal": None, "tool_calls": None, "annotations": []},
        ],
        max_completion_tokens=7,
        stop=["\n", "END"],
        temperature=1,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.1,
        seed=2**63,
        n=1,
        logprobs=False,
        user="u",
        tools=[],
        response_format={"type": "text"},
        store=False,
    )
    async with world.client() as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    (request,) = world.router.requests
    assert request.prompt == ChatPrompt(
        messages=(
            ChatMessage(role="system", content="Be brief."),
            ChatMessage(role="user", content="ab", name="ann"),
            ChatMessage(role="assistant", content=""),
        )
    )
    assert (request.max_tokens, request.stop) == (7, ("\n", "END"))
    assert request.sampling == SamplingChoice(
        temperature=1.0,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        seed=2**63,
    )


async def test_silence_in_a_request_leaves_the_model_its_defaults() -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        await client.post("/v1/completions", json=completion(temperature=None, stop=None, max_tokens=None))
    (request,) = world.router.requests
    assert request.sampling == SamplingChoice()
    assert (request.max_tokens, request.stop) == (None, ())


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", TextPrompt(text="text")),
        ("", TextPrompt(text="")),
        (["text"], TextPrompt(text="text")),
        ([0, 5, 7], TokenPrompt(ids=(0, 5, 7))),
        ([[5, 7]], TokenPrompt(ids=(5, 7))),
    ],
)
async def test_forms_of_a_prompt(prompt: Any, expected: Any) -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        assert (await client.post("/v1/completions", json=completion(prompt=prompt))).status_code == 200
    assert world.router.requests[0].prompt == expected


async def test_models_are_listed_and_found_by_alias() -> None:
    loading = ServedModel("next", (), 0, "waiting", 0, has_chat_template=False)
    world = World(ScriptedRouter(models=(CHAT, loading)))
    async with world.client() as client:
        listed = (await client.get("/v1/models")).json()
        one = await client.get("/v1/models/org/tiny")
        none = await client.get("/v1/models/other")
    assert [(m["id"], m["state"], m["generation"]) for m in listed["data"]] == [
        ("chat", "serving", 3),
        ("next", "waiting", 0),
    ]
    assert one.json() == listed["data"][0]
    assert one.json()["capabilities"] == {"completions": True, "chat": True}
    assert (one.json()["max_model_len"], listed["data"][1]["max_model_len"]) == (2048, None)
    assert none.status_code == 404
    assert none.json()["error"]["code"] == "model_not_found"
    assert "`chat`, `next`" in none.json()["error"]["message"]


async def test_p14_every_probe_flips() -> None:
    router = ScriptedRouter()
    world = World(router)
    async with world.client() as client:
        assert (await client.get("/livez")).status_code == 200
        for flag in (True, False):
            router.is_ready = router.healthy = flag
            ready, health = await client.get("/readyz?model=tiny"), await client.get("/healthz")
            assert ready.status_code == health.status_code == (200 if flag else 503)
            assert ready.json() == {"ready": flag, "models": {"chat": "serving"}}
            assert health.json()["healthy"] is flag
        assert (await client.get("/readyz?model=other")).status_code == 404


async def test_paths_that_are_not_here_say_what_is() -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        missing = await client.post("/v1/embeddings", json={})
        slash = await client.get("/v1/models/")
        method = await client.get("/v1/completions")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert "POST /v1/chat/completions" in missing.json()["error"]["message"]
    assert slash.status_code == 404
    assert (method.status_code, method.headers["allow"]) == (405, "POST")
    assert method.json()["error"]["code"] == "method_not_allowed"


async def test_requests_are_measured() -> None:
    world = World(ScriptedRouter())
    async with world.client() as client:
        await client.post("/v1/chat/completions", json=chat(model="tiny"))
        await client.post("/v1/completions", json=completion(model="nope"))
        await client.post("/v1/completions", json=completion(model="tiny", n=2))
        scrape = (await client.get("/metrics")).text
    assert world.sample("requests_total", model="chat", outcome="stop") == 1
    assert world.sample("requests_total", model="", outcome="model_not_found") == 1
    assert world.sample("requests_total", model="chat", outcome="unsupported_field") == 1
    assert world.sample("time_to_first_token_seconds_count", model="chat") == 1
    assert world.sample("inter_token_seconds_count", model="chat") == 3
    assert world.sample("request_seconds_count", model="chat") == 2
    assert [name for name, _ in world.router.durations] == ["chat"]  # complete answers alone
    assert "nope" not in scrape
    assert 'halogen_build_info{version="1.2.3"} 1.0' in scrape
