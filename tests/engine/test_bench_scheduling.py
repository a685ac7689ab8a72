"""The benchmarks of scheduling: their load, their arithmetic, and a short run of each on a tiny model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.tiny_models import tiny_gemma3, tiny_llama

from halogend.engine.bench import full, gap, mixed
from halogend.engine.bench.closed_loop import Asked, ClosedLoop, Kind, requests
from halogend.engine.bench.http_stream import AnswerError, stream
from halogend.engine.bench.quantiles import quantile
from halogend.engine.bench.steps import fit

SHORT, LONG = Kind("short", 5, 3, 7), Kind("long", 50, 9, 3)


def test_quantiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert quantile([3.0], 0.99) == 3.0
    with pytest.raises(ValueError, match="nothing"):
        quantile([], 0.5)


def test_every_arm_is_given_the_same_requests_and_no_two_begin_alike() -> None:
    first, second = requests((SHORT, LONG), 3), requests((SHORT, LONG), 3)
    asked = [first(number) for number in range(400)]
    assert asked == [second(number) for number in range(400)]
    assert len({request.ids[:4] for request in asked}) == 400
    assert {len(request.ids) for request in asked} == {5, 50}
    assert 0.6 < sum(request.kind == SHORT for request in asked) / 400 < 0.8
    assert requests((SHORT, LONG), 4)(0).ids != asked[0].ids


async def test_a_closed_loop_measures_what_came_after_the_first_burst() -> None:
    """Every client has one request open until the last measured one has ended."""
    open_now: set[int] = set()
    most = 0

    async def ask(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        nonlocal most
        open_now.add(asked.number)
        most = max(most, len(open_now))
        for token in range(asked.kind.answer_tokens):
            await asyncio.sleep(0)
            yield asyncio.get_running_loop().time() + token, 1
        open_now.discard(asked.number)

    loop = ClosedLoop(requests((SHORT, LONG), 0), 8, SHORT, 20)
    measured = await loop.run(ask)
    assert most == 8
    assert len(measured.waits["short"]) == 20
    assert len(measured.waits["short"]) + len(measured.waits["long"]) == len(loop.measured())
    assert loop.measured().start == 8
    assert loop.make(loop.measured()[-1]).kind == SHORT


async def test_a_server_that_refuses_ends_the_loop() -> None:
    async def ask(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        raise AnswerError(f"503 {asked.number}")
        yield 0.0, 0

    with pytest.raises(ExceptionGroup) as caught:
        await ClosedLoop(requests((SHORT, LONG), 0), 2, SHORT, 5).run(ask)
    assert isinstance(caught.value.exceptions[0], AnswerError)


async def serve(answer: bytes) -> asyncio.Server:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


async def events_of(answer: bytes) -> list[dict[str, Any]]:
    async with await serve(answer) as server:
        port = server.sockets[0].getsockname()[1]
        return [event.body async for event in stream(port, "/v1/completions", {"stream": True})]


def chunked(*chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


async def test_events_are_read_whatever_the_chunks() -> None:
    assert await events_of(chunked(b'data: {"a"', b': 1}\n\n: ping\n\ndata: {"b": 2}\n', b"\ndata: [DONE]\n\n")) == [
        {"a": 1},
        {"b": 2},
    ]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\nqueue_full", "503 Busy: queue_full"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "not sent in chunks"),
        (chunked(b'data: {"error": {"message": "gone"}}\n\n'), "gone"),
        (chunked(b"data: {}\n\n")[:-7], "cut short"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes, words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        await events_of(answer)


def test_constants_of_a_step_are_found_again() -> None:
    constants = (0.03, 0.001, 2e-6, 0.0, 4e-7)
    works = [
        (1, rows, rows * context, tokens, tokens**2)
        for rows in (1, 9)
        for context in (5, 700)
        for tokens in (0, 8, 300)
    ]
    steps = [(work, sum(a * b for a, b in zip(constants, work, strict=True))) for work in works]
    assert fit(steps) == pytest.approx(constants, abs=1e-9)


def test_bars_are_judged_by_medians(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(arm: str, *_: object) -> dict[str, float]:
        short, long, tokens = {"first come": (10.0, 10.0, 100.0), "lanes": (4.9, 15.1, 98.5)}.get(arm, (9.0, 9.0, 90.0))
        names = ("short p50", "short p99", "long p50", "long p99", "tokens/s", "requests/s", "seconds")
        return dict(zip(names, (short / 2, short, long / 2, long, tokens, 7.0, 100.0), strict=True))

    monkeypatch.setattr(mixed, "_run_arm", run)
    assert mixed.main(["model.gguf"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[2:5]] == ["first", "lanes", "llama.cpp"]
    assert [line.rpartition(": ")[2] for line in printed[-3:]] == ["met", "missed", "met"]
    assert mixed.main(["model.gguf", "--arms", "lanes", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ratios"], list(report["runs"])) == ({}, ["lanes"])


@pytest.mark.slow
def test_a_full_pool_ends_every_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_llama(tmp_path / "model.gguf", context=1024).path)
    options = ["--seconds", "5", "--clients", "40", "--pool-tokens", "2048", "--threads", "1", "--json"]
    assert full.main([model, *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["met"]
    assert (report["status"], report["open"], report["failures"], report["blocks_used_at_end"]) == (0, 0, {}, 0)
    assert report["ended"] + report["given_up"] == report["requests"]


@pytest.mark.slow
def test_gaps_are_measured_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_gemma3(tmp_path / "model.gguf", seed=1, window=16).path)
    assert gap.main([model, "--tokens", "400", "--streams", "3", "--threads", "1", "--json"]) == 0
    arms = json.loads(capsys.readouterr().out)["arms"]
    assert set(arms) == {"before", "after"}
    assert all(arm["largest"] >= arm["median"] > 0 and arm["count"] > 0 for arm in arms.values())
