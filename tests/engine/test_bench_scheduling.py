"""The benchmarks of scheduling: their load, their arithmetic, and a short run of each on a tiny model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.tiny_models import tiny_gemma3, tiny_llama

from halogend.control.machine import probe
from halogend.engine.bench import full, gap, mixed
from halogend.engine.bench.closed_loop import Asked, ClosedLoop, Kind, Measured, requests
from halogend.engine.bench.driven import EngineLostError, kv_bytes, make_spec
from halogend.engine.bench.http_stream import AnswerError, stream
from halogend.engine.bench.judged import judge, parser, patient_limits
from halogend.engine.bench.quantiles import quantile
from halogend.engine.bench.steps import fit
from halogend.wire.policy import EnginePolicy
from halogend.wire.stats import EngineStats

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


def test_benchmarks_compute_as_the_daemon_would(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "tiny.gguf").path
    spec = make_spec(str(model), patient_limits(str(model), 64, 256, (2, 2), EnginePolicy()), 1)
    there = {spec.precision, spec.compute_dtype, spec.kv_cache_dtype}
    assert there == {probe().compute_of("cpu:0")}
    assert spec.limits.pool_bytes == kv_bytes(str(model), 256, *there)


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


async def test_an_answer_without_a_token_waits_for_its_end_and_counts_in_the_lengths() -> None:
    async def ask(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        await asyncio.sleep(0)
        if asked.number % 2:
            yield 1.0, 1
            yield 3.5, 1
        yield 4.0, 0

    loop = ClosedLoop(requests((SHORT,), 0), 2, SHORT, 20)
    measured = await loop.run(ask)
    sent = {number: answer.sent_s for number, answer in loop.answers.items()}
    first = {number: 1.0 if number % 2 else 4.0 for number in loop.measured()}
    assert measured.waits["short"] == [at_s - sent[number] for number, at_s in first.items()]
    figures = measured.figures()
    assert (figures["short answer"], figures["gap"]) == (1.0, 2.5)


async def test_an_answer_of_nothing_is_an_error() -> None:
    async def ask(asked: Asked) -> AsyncIterator[tuple[float, int]]:
        return
        yield 0.0, 0

    with pytest.raises(ExceptionGroup) as caught:
        await ClosedLoop(requests((SHORT,), 0), 2, SHORT, 5).run(ask)
    assert "answered with nothing" in str(caught.value.exceptions[0])


def _measured(waits: dict[str, list[float]], tokens: int = 1000, requests: int = 60) -> Measured:
    return Measured(10.0, waits, tokens, requests, {name: [1] for name in waits}, [0.1])


@pytest.mark.parametrize(("short", "status"), [(4.9, 0), (5.1, 1)])
def test_bars_are_judged_against_first_come_with_the_same_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short: float, status: int
) -> None:
    thought = []

    def run(arm: str, kinds: object, args: object, run: tuple[int, float]) -> Measured:
        thought.append(run[1])
        arms = {mixed.FIRST_COME: (10.0, 10.0, 1000), mixed.LANES: (short, 14.9, 985)}
        short_s, long_s, tokens = arms.get(arm, (99.0, 99.0, 90))
        return _measured({"short": [short_s], "long": [long_s]}, tokens)

    monkeypatch.setattr(mixed, "_run_arm", run)
    assert mixed.main(["model.gguf", "--runs", "1"]) == status
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[3:7]] == ["first", "small", "lanes", "llama.cpp"]
    verdicts = [line.rpartition(": ")[2] for line in printed if ": lanes / first come " in line]
    assert verdicts == ["missed" if status else "met", "met", "met"] * 2
    assert thought == [0.0] * 4 + [pytest.approx(mixed.THINKING * 150 / 6.0)] * 4
    assert mixed.main(["model.gguf", "--arms", "lanes", "--loads", "saturated", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loads"][mixed.SATURATED]["ratios"] == {}


def test_all_runs_of_an_arm_are_judged_together_and_arms_take_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A median of three runs' p99s would not see the slow run; of all answers together, it is the p99."""
    ran = []

    def run(arm: str, kinds: object, args: object, run: tuple[int, float]) -> Measured:
        ran.append((arm, run[0]))
        return _measured({"short": [9.0 if run[0] == 1 else 1.0] * 10, "long": [1.0]}, 100 * (run[0] + 1))

    monkeypatch.setattr(mixed, "_run_arm", run)
    mixed.main(["model.gguf", "--arms", "first come,lanes", "--loads", "saturated", "--json"])
    arm = json.loads(capsys.readouterr().out)["loads"][mixed.SATURATED]["arms"][mixed.LANES]
    assert ran == [(arm, number) for number in range(3) for arm in (mixed.FIRST_COME, mixed.LANES)]
    assert (arm["short p99"], arm["short requests"], arm["tokens/s"]) == (9.0, 30.0, 20.0)


def _where(cores: Sequence[int], arm: str, kinds: object, args: object, run: tuple[int, float]) -> Measured:
    return _measured({"short": [float(cores[0])], "long": [1.0]})


def test_arms_beside_each_other_have_cores_of_their_own_and_change_places(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mixed, "ProcessPoolExecutor", lambda count, _: ThreadPoolExecutor(count))
    monkeypatch.setattr(mixed, "_run_on", _where)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {4, 7})
    options = ["model.gguf", "--loads", "saturated", "--runs", "2", "--json"]
    mixed.main([*options, "--beside", "--arms", "first come,lanes"])
    runs = json.loads(capsys.readouterr().out)["loads"][mixed.SATURATED]["runs"]
    assert [each["short p50"] for each in runs[mixed.FIRST_COME]] == [4.0, 7.0]
    assert [each["short p50"] for each in runs[mixed.LANES]] == [7.0, 4.0]
    with pytest.raises(SystemExit):
        mixed.main([*options, "--beside"])
    assert "a core for each" in capsys.readouterr().err


def test_arms_of_ours_differ_in_policy_alone() -> None:
    """What first come is told beside lanes bounds its steps as theirs are."""
    args = mixed._parser().parse_args(["model.gguf", "--max-gap-ms", "700"])
    first_come, small, lanes = (
        mixed._policies(arm, (SHORT, LONG), args) for arm in (mixed.FIRST_COME, mixed.SMALL_STEPS, mixed.LANES)
    )
    assert first_come["max_gap_ms"] == lanes["max_gap_ms"] == 700
    assert small == first_come | {"max_gap_ms": 0}
    assert (first_come["long_prompt"], lanes["long_prompt"]) == ("off", {"threshold": 27, "max_concurrent": 1})


def test_near_capacity_alone_needs_to_be_told_how_long_clients_think(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mixed.main(["model.gguf", "--loads", "near"])
    assert "--think" in capsys.readouterr().err


def test_a_bench_that_misses_what_is_asked_or_loses_its_engine_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    def lost(_: object) -> dict[str, Any]:
        raise EngineLostError("it is gone")

    plain, as_json = (parser("full", "About it.").parse_args(["model", *option]) for option in ([], ["--json"]))
    assert judge("full", plain, lambda _: {"met": True}, lambda report: f"table: {report['met']}") == 0
    assert judge("full", as_json, lambda _: {"met": False}, str) == 1
    assert judge("full", as_json, lost, str) == 1
    printed = capsys.readouterr()
    assert printed.out == 'table: True\n{"met": false}\n'
    assert printed.err == "halogend bench full: it is gone\n"


@pytest.mark.parametrize(("used", "cached", "met"), [(437, 0, True), (436, 76, False), (200, 312, False)])
def test_a_pool_is_full_of_what_is_held_and_not_of_what_is_cached(used: int, cached: int, met: bool) -> None:
    counts = dict.fromkeys(("running", "waiting", "prompt_tokens", "generated_tokens", "steps"), 0)
    stats = EngineStats(
        **counts,
        blocks_total=500,
        blocks_used=used,
        blocks_cached=cached,
        preemptions=1,
        prefill_step_s=0.0,
        decode_step_s=0.0,
    )
    seen = [full.Seen(stats, open_s) for open_s in (0.0, 15.0, 25.0)]
    ended = msgspec.structs.replace(stats, blocks_used=3, blocks_pinned=3)
    load = SimpleNamespace(sent=5, ended=5, given_up=0, open={}, failures={}, tokens=50)
    report = full._report(load, seen, ended, 0)  # type: ignore[arg-type]  # a load that has ended
    assert (report["sound"], report["met"], report["snapshots without watermarks"]) == (True, met, 2)


@pytest.mark.slow
def test_a_full_pool_ends_every_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_llama(tmp_path / "model.gguf", context=1024).path)
    options = ["--seconds", "5", "--clients", "40", "--pool-tokens", "2048", "--threads", "1", "--json"]
    status = full.main([model, *options])
    report = json.loads(capsys.readouterr().out)
    assert report["met"] == (status == 0)
    assert report["sound"]
    assert (report["status"], report["open"], report["failures"]) == (0, 0, {})
    assert report["ended"] + report["given_up"] == report["requests"]


@pytest.mark.slow
def test_gaps_are_measured_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_gemma3(tmp_path / "model.gguf", seed=1, window=16).path)
    options = ["--tokens", "400", "--prompts", "1", "--streams", "3", "--threads", "1", "--json"]
    status = gap.main([model, *options])
    report = json.loads(capsys.readouterr().out)
    assert report["met"] == (status == 0)
    arms = report["arms"]
    assert set(arms) == {"before", "after"}
    assert all(arm["largest"] >= arm["median"] > 0 and arm["count"] > 0 for arm in arms.values())
