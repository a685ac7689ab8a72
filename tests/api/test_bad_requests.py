"""What a request may get wrong, each with its own status, code and field."""

# ruff: noqa: E501  # a case is a line, or nobody reads the table

import ast
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http_world import World, chat, completion
from support.scripted_router import ScriptedRouter, failed

import halogend
from halogend.api import bodies, errors
from halogend.api.bodies import parse_object
from halogend.api.errors import body_of
from halogend.api.schemas import ChatBody, read
from halogend.control.requests import RequestError
from halogend.text.failures import REQUEST_CODES

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "x"}


def messages(*turns: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": list(turns)}


def says(content: Any) -> dict[str, Any]:
    return messages({"role": "user", "content": content})


# path, body, code, param, part of the message
CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    (CHAT, {"messages": [USER]}, "missing_field", "model", "required"),
    (CHAT, {"model": "chat"}, "missing_field", "messages", "required"),
    (COMPLETION, {"model": "chat"}, "missing_field", "prompt", "required"),
    (CHAT, chat(model=3), "invalid_value", "model", "string"),
    (CHAT, chat(model=""), "invalid_value", "model", "1 character"),
    (CHAT, chat(temprature=1), "unknown_field", "temprature", "did you mean `temperature`"),
    (CHAT, chat(respons_format=1), "unknown_field", "respons_format", "`response_format`"),
    (CHAT, chat(zzz=1), "unknown_field", "zzz", "not a field"),
    (CHAT, messages({**USER, "nam": "x"}), "unknown_field", "messages[0].nam", "`name`"),
    (CHAT, chat(stream=True, stream_options={"includ_usage": True}), "unknown_field", "stream_options.includ_usage", "`include_usage`"),
    (COMPLETION, completion(messages=[]), "unknown_field", "messages", "not a field"),
    (CHAT, chat(prompt="x"), "unknown_field", "prompt", "not a field"),
    (CHAT, chat(temperature=2.1), "invalid_value", "temperature", "less than or equal to 2"),
    (CHAT, chat(temperature="1"), "invalid_value", "temperature", "valid number"),
    (CHAT, chat(temperature=True), "invalid_value", "temperature", "valid number"),
    (CHAT, chat(top_p=0), "invalid_value", "top_p", "greater than 0"),
    (CHAT, chat(top_k=-2), "invalid_value", "top_k", "-1"),
    (CHAT, chat(min_p=1.5), "invalid_value", "min_p", "1"),
    (CHAT, chat(presence_penalty=3), "invalid_value", "presence_penalty", "2"),
    (CHAT, chat(frequency_penalty=-3), "invalid_value", "frequency_penalty", "-2"),
    (CHAT, chat(repetition_penalty=0), "invalid_value", "repetition_penalty", "greater than or equal to 0.01"),
    (CHAT, chat(seed=2**64), "invalid_value", "seed", "less than"),
    (CHAT, chat(seed=1.5), "invalid_value", "seed", "integer"),
    (CHAT, chat(max_tokens=0), "invalid_value", "max_tokens", "1"),
    (CHAT, chat(max_tokens=1, max_completion_tokens=2), "invalid_value", "max_completion_tokens", "disagree"),
    (COMPLETION, completion(max_completion_tokens=2), "unknown_field", "max_completion_tokens", "not a field"),
    (CHAT, chat(stop=""), "invalid_value", "stop", "1 to 1000"),
    (CHAT, chat(stop=["a", ""]), "invalid_value", "stop", "1 to 1000"),
    (CHAT, chat(stop=["a"] * 17), "invalid_value", "stop", "16"),
    (CHAT, chat(stop=[1]), "invalid_value", "stop", "string"),
    (CHAT, chat(stream="yes"), "invalid_value", "stream", "boolean"),
    (CHAT, chat(stream_options={"include_usage": True}), "invalid_value", "stream_options", "stream: true"),
    (CHAT, chat(stream=True, stream_options={"include_obfuscation": True}), "unsupported_field", "stream_options.include_obfuscation", "not available"),
    (CHAT, messages(), "invalid_value", "messages", "at least 1"),
    (CHAT, {"model": "chat", "messages": "x"}, "invalid_value", "messages", "list"),
    (CHAT, messages("x"), "invalid_value", "messages[0]", "object"),
    (CHAT, messages({"content": "x"}), "missing_field", "messages[0].role", "required"),
    (CHAT, messages({"role": "narrator", "content": "x"}), "invalid_value", "messages[0].role", "assistant"),
    (CHAT, messages(USER, {"role": "tool", "content": "x"}), "unsupported_field", "messages[1].role", "tool"),
    (CHAT, messages({"role": "tool", "tool_call_id": "1", "content": "x"}), "unsupported_field", "messages[0].tool_call_id", "not available"),
    (CHAT, messages({"role": "assistant", "tool_calls": [{"id": "1"}]}), "unsupported_field", "messages[0].tool_calls", "not available"),
    (CHAT, messages({"role": "assistant"}), "invalid_value", "messages[0].content", "null"),
    (CHAT, says(None), "invalid_value", "messages[0].content", "null"),
    (CHAT, says(5), "invalid_value", "messages[0].content", "string or a list"),
    (CHAT, says([]), "invalid_value", "messages[0].content", "empty"),
    (CHAT, says(["x"]), "invalid_value", "messages[0].content[0]", "object"),
    (CHAT, says([{"text": "x"}]), "missing_field", "messages[0].content[0].type", "required"),
    (CHAT, says([{"type": "text"}]), "invalid_value", "messages[0].content[0].text", "string"),
    (CHAT, says([{"type": "image_url", "image_url": {"url": "x"}}]), "unsupported_field", "messages[0].content[0].type", "image_url"),
    (CHAT, says([{"type": "text", "text": "x", "cache": 1}]), "unknown_field", "messages[0].content[0].cache", "text part"),
    (CHAT, chat(n=2), "unsupported_field", "n", "only 1"),
    (CHAT, chat(n=True), "unsupported_field", "n", "only 1"),
    (CHAT, chat(logprobs=True), "unsupported_field", "logprobs", "not available"),
    (CHAT, chat(top_logprobs=3), "unsupported_field", "top_logprobs", "not available"),
    (CHAT, chat(response_format={"type": "json_object"}), "unsupported_field", "response_format", "not available"),
    (CHAT, chat(tools=[{"type": "function"}]), "unsupported_field", "tools", "not available"),
    (CHAT, chat(tool_choice="required"), "unsupported_field", "tool_choice", "not available"),
    (CHAT, chat(logit_bias={"5": 1}), "unsupported_field", "logit_bias", "not available"),
    (CHAT, chat(store=True), "unsupported_field", "store", "nothing is stored"),
    (CHAT, chat(metadata={"a": "b"}), "unsupported_field", "metadata", "not stored"),
    (CHAT, chat(user=5), "unsupported_field", "user", "string"),
    (CHAT, chat(modalities=["text", "audio"]), "unsupported_field", "modalities", "only text"),
    (CHAT, chat(service_tier="priority"), "unsupported_field", "service_tier", "not available"),
    (COMPLETION, completion(best_of=2), "unsupported_field", "best_of", "only 1"),
    (COMPLETION, completion(echo=True), "unsupported_field", "echo", "not available"),
    (COMPLETION, completion(suffix="x"), "unsupported_field", "suffix", "not available"),
    (COMPLETION, completion(logprobs=0), "unsupported_field", "logprobs", "not available"),
    (COMPLETION, completion(prompt=["a", "b"]), "unsupported_field", "prompt", "limit is 1"),
    (COMPLETION, completion(prompt=[[1], [2]]), "unsupported_field", "prompt", "limit is 1"),
    (COMPLETION, completion(prompt=[]), "empty_prompt", "prompt", "empty"),
    (COMPLETION, completion(prompt=[[]]), "empty_prompt", "prompt", "no token"),
    (COMPLETION, completion(prompt=5), "invalid_value", "prompt", "string or a list"),
    (COMPLETION, completion(prompt=None), "invalid_value", "prompt", "string or a list"),
    (COMPLETION, completion(prompt=[1, "a"]), "invalid_value", "prompt[1]", "neither"),
    (COMPLETION, completion(prompt=[True]), "invalid_value", "prompt[0]", "neither"),
    (COMPLETION, completion(prompt=[3, -1]), "bad_token", "prompt[1]", "-1"),
    (COMPLETION, completion(prompt=[2**31]), "bad_token", "prompt[0]", "no token id"),
]  # fmt: skip


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    router = ScriptedRouter()
    async with World(router).client() as client:
        yield client
    assert router.requests == []  # nothing of this may reach a generation


@pytest.mark.parametrize(("path", "body", "code", "param", "part"), CASES)
async def test_a_bad_field_is_a_400_that_names_it(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], code: str, param: str, part: str
) -> None:
    answer = await client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param), error
    assert part in error["message"]


async def test_all_faults_are_told_at_once(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json=chat(temperature=9, sead=1, seed="x"))
    message = answer.json()["error"]["message"]
    assert all(f"`{name}`" in message for name in ("temperature", "sead", "seed"))


BAD_JSON: list[tuple[bytes, str]] = [
    (b"", "line 1, column 1"),
    (b'{"model": "chat",\n "prompt" "x"}', "line 2, column 11"),
    (b'{"model": "chat", "prompt": "x",}', "column"),
    (b"[]", "must be an object"),
    (b'"x"', "must be an object"),
    (b'{"a": 1, "b": 2, "a": 3}', 'key "a" is given twice'),
    (b'{"x": {"a": 1, "a": 1}}', 'key "a" is given twice'),
    (b'{"a": NaN}', "NaN"),
    (b'{"a": -Infinity}', "-Infinity"),
    (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    (b'{"a": "\\ud800"}', "surrogate"),
    (b'{"\\udfff": 1}', "surrogate"),
    (b"[" * 200_000, "nested too deeply"),
    (b'{"a":' * 200_000, "nested too deeply"),
    (b'{"a":' + b"9" * 5000 + b"}", "4300 digits"),
    (b'{"a": 1} trailing', "Extra data"),
    (b'{"a": "line\nbreak"}', "control character"),
    ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
]


@pytest.mark.parametrize(("body", "part"), BAD_JSON)
async def test_bad_json_is_a_400_with_the_place(client: httpx.AsyncClient, body: bytes, part: str) -> None:
    answer = await client.post(COMPLETION, content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "bad_json"), error
    assert part in error["message"]


async def test_an_infinite_number_is_refused(client: httpx.AsyncClient) -> None:
    body = b'{"model": "chat", "prompt": "x", "repetition_penalty": 1e999}'
    answer = await client.post(COMPLETION, content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "repetition_penalty")


def test_a_whole_surrogate_pair_is_text() -> None:
    assert parse_object(b'{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(-9, 9), st.lists, max_leaves=5)))
def test_json_comes_back_as_it_went(value: dict[str, Any]) -> None:
    try:
        body = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        body = json.dumps(value).encode()
        with pytest.raises(RequestError):
            parse_object(body)
        return
    assert parse_object(body) == value


async def test_the_content_type_is_not_looked_at() -> None:
    async with World(ScriptedRouter()).client() as client:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await client.post(COMPLETION, content=json.dumps(completion()), headers=headers)
    assert answer.status_code == 200


async def test_a_packed_body_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post(COMPLETION, content=b"x", headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "bad_encoding")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain", "origin": "https://elsewhere.example"}, 415),
        ({"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "cross-site"}, 415),
        ({"origin": "null"}, 415),
        ({"content-type": "Application/JSON; charset=utf-8", "origin": "https://elsewhere.example"}, 200),
        ({"content-type": "application/x-www-form-urlencoded"}, 200),
        ({}, 200),
    ],
)
async def test_a_page_may_not_send_what_no_browser_asks_for_first(headers: dict[str, str], status: int) -> None:
    """Whatever site it is of: nobody asks this server whether a form or text may be sent to it."""
    router = ScriptedRouter()
    async with World(router).client() as client:
        answer = await client.post(COMPLETION, content=json.dumps(completion()).encode(), headers=headers)
    assert len(router.requests) == (status == 200)
    assert answer.status_code == status
    if status == 415:
        assert answer.json()["error"]["param"] == "Content-Type"


async def test_a_page_of_another_site_is_not_allowed_to_send_json(client: httpx.AsyncClient) -> None:
    asks = {"origin": "https://elsewhere.example", "access-control-request-method": "POST"}
    answer = await client.options(COMPLETION, headers={**asks, "access-control-request-headers": "content-type"})
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_a_413(client: httpx.AsyncClient, declared: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * (1 << 20)

    content: Any = b" " * (11 << 20) if declared else pieces()
    answer = await client.post(COMPLETION, content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_body_at_the_limit_is_read() -> None:
    world = World(ScriptedRouter())
    frame = len(json.dumps(completion(prompt="")))
    body = json.dumps(completion(prompt="x" * (bodies.MAX_BODY_BYTES - frame)))
    assert len(body) == 10 << 20
    async with world.client() as client:
        answer = await client.post(COMPLETION, content=body)
    assert answer.status_code == 200


@pytest.mark.parametrize("code", sorted(errors.ERRORS))
async def test_every_row_of_the_table_comes_through(code: str) -> None:
    world = World(ScriptedRouter(script=lambda _: [failed(code)]))
    row = errors.ERRORS[code]
    async with world.client() as client:
        answer = await client.post(COMPLETION, json=completion())
    error = answer.json()["error"]
    assert answer.status_code == row.status
    assert (error["code"], error["type"], error["explain"]) == (row.shown or code, row.type, row.explain.value)
    assert ("retry-after" in answer.headers) == (row.retry_after_s is not None)
    assert (answer.headers.get("x-should-retry") == "false") == (row.status >= 500 and not row.retry)


async def test_the_router_may_say_when_to_come_back() -> None:
    world = World(ScriptedRouter(refusal=RequestError("queue_full", "full", retry_after_s=17)))
    async with world.client() as client:
        answer = await client.post(COMPLETION, json=completion())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "17")


async def test_a_code_without_a_row_is_our_own_bug() -> None:
    world = World(ScriptedRouter(script=lambda _: [failed("never_heard_of")]))
    async with world.client() as client:
        answer = await client.post(COMPLETION, json=completion())
    assert answer.status_code == 500


def _codes_said() -> set[str]:
    """Codes that the source gives to requests, as literals."""
    said: set[str] = set()
    for file in Path(halogend.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in {"RequestError", "Failure", "failed"}:
                given = [*node.args[:2], *(word.value for word in node.keywords if word.arg == "code")]
                said |= {each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return {code for code in said if code.isidentifier()}


def test_every_code_the_source_gives_has_a_row() -> None:
    said = _codes_said() | set(REQUEST_CODES)
    assert len(said) > 15
    assert said <= set(errors.ERRORS)


@pytest.mark.parametrize("where", ["body", "message"])
def test_a_hundred_thousand_strange_keys_are_one_quick_refusal(where):
    """Each would otherwise be compared with every known name, on the event loop."""
    crowd = {f"k{number}": 1 for number in range(100_000)}
    raw = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    raw = {**crowd, **raw} if where == "body" else {**raw, "messages": [{**crowd, "role": "user", "content": "Hi"}]}
    with pytest.raises(RequestError) as refused:
        read(ChatBody, raw, {})
    assert refused.value.code == "unknown_field"
    assert refused.value.param.endswith("k0")
    assert len(refused.value.message) < 200


def test_what_came_from_outside_is_not_handed_back_by_the_megabyte():
    body = body_of(RequestError("invalid_value", "x" * 5_000_000))
    assert len(body["error"]["message"]) < 3000
