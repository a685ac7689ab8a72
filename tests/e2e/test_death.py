"""Every part is killed in turn: typed errors, nobody else notices, nothing is left behind."""

import asyncio
import contextlib
import json
import os
import signal
import time

import httpx
import pytest
from support.live import alive, descendants, document, live, until
from support.ports import free_port
from support.tiny_models import tiny_llama


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Gives the daemon that serves models x and y, and starts one where none does, or one `anew`: some of these tests
    end it, or leave it with deaths that it counts."""
    started = []

    def daemon(*, anew=False):
        if not started or anew or not serves(started[-1]):
            if started:
                started[-1].stop()
            folder, port = tmp_path_factory.mktemp("two"), free_port()
            tiny_llama(folder / "a.gguf", layers=2, context=4096)
            models = [{"name": name, "model": f"{folder}/a.gguf", "precision": "fp32"} for name in "xy"]
            text = document(port, *models, server={"ready": "all"})
            started.append(stack.enter_context(live(folder, text, port)))
        return started[-1].until_serving()

    with contextlib.ExitStack() as stack:
        yield daemon


@pytest.fixture
def two(running):
    """A daemon whose models x and y serve."""
    return running()


def serves(daemon):
    try:
        return httpx.get(f"{daemon.url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


LONG_TOKENS = 600


async def endless_prompt(client, url):
    """A prompt that this random model answers greedily without ever choosing to stop."""
    for prompt in (f"alpha {number}" for number in range(50)):
        payload = {"model": "x", "prompt": prompt, "max_tokens": LONG_TOKENS, "temperature": 0}
        answer = (await client.post(f"{url}/v1/completions", json=payload)).json()
        if answer["choices"][0]["finish_reason"] == "length":
            return prompt
    pytest.fail("every prompt stops")


class Stream:
    """One long stream; `lines` come in as they are sent."""

    def __init__(self, client, url, model, prompt):
        payload = {"model": model, "prompt": prompt, "max_tokens": LONG_TOKENS, "temperature": 0, "stream": True}
        self.events = []
        self.ended_at = None
        self.began = asyncio.Event()
        self.task = asyncio.create_task(self._run(client, url, payload))

    async def _run(self, client, url, payload):
        async with client.stream("POST", f"{url}/v1/completions", json=payload) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    self.events.append(json.loads(line[6:]))
                    self.began.set()
        self.ended_at = time.monotonic()


async def test_an_engine_killed_under_eight_streams(two):
    numbers = generations(two)
    engine = two.pids("x")["engine"]
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=20)) as client:
        prompt = await endless_prompt(client, two.url)
        doomed = [Stream(client, two.url, "x", prompt) for _ in range(8)]
        safe = [Stream(client, two.url, "y", prompt) for _ in range(2)]
        await asyncio.gather(*(each.began.wait() for each in (*doomed, *safe)))
        killed_at = time.monotonic()
        os.kill(engine, signal.SIGKILL)
        await asyncio.gather(*(each.task for each in doomed))
        for each in doomed:
            assert each.ended_at - killed_at < 1.0
            assert each.events[-1]["error"]["code"] == "engine_died"
        seen = [len(each.events) for each in safe]
        answer = await client.post(
            f"{two.url}/v1/completions", json={"model": "x", "prompt": "beta", "max_tokens": 4, "temperature": 0}
        )
        assert answer.status_code == 200
        await asyncio.gather(*(each.task for each in safe))
        for each, before in zip(safe, seen, strict=True):
            assert len(each.events) > before
            assert not any("error" in event for event in each.events)
            assert each.events[-1]["choices"][0]["finish_reason"] == "length"
    assert generations(two) == {"x": numbers["x"] + 1, "y": numbers["y"]}


def generations(daemon):
    return {name: model["serving"]["generation"] for name, model in daemon.status()["models"].items()}


@pytest.mark.parametrize("role", [pytest.param("text", marks=pytest.mark.slow), "engine"])
def test_s10_either_process_of_a_generation_may_die(two, role):
    pids = two.pids("y")
    os.kill(pids[role], signal.SIGKILL)
    until(lambda: is_another(two, "y", pids), "it is started again")
    until(lambda: not any(alive(pid) for pid in pids.values()), "the other half is ended too")
    answer = httpx.post(f"{two.url}/v1/completions", json={"model": "y", "prompt": "b", "max_tokens": 1}, timeout=60)
    assert answer.status_code == 200


def is_another(daemon, model, pids):
    serving = daemon.status()["models"][model]["serving"]
    return serving and serving["pids"] != pids


@pytest.mark.parametrize(
    "state", ["first load", *(pytest.param(each, marks=pytest.mark.slow) for each in ("load", "restart"))]
)
def test_s12_a_daemon_killed_in_any_state_leaves_no_process(tmp_path, state):
    """Its engines load or come back at that moment; the one that serves is stopped, and cannot end itself."""
    models = [tiny_llama(tmp_path / f"{name}.gguf", layers=2, context=4096).path for name in "ab"]
    port = free_port()
    text = [document(port, {"name": "x", "model": str(path), "precision": "fp32"}) for path in models]
    with live(tmp_path, text[0], port) as daemon:
        if state != "first load":
            daemon.until_serving()
        serving = daemon.pids("x") if state != "first load" else {}
        if state == "restart":
            os.kill(serving["engine"], signal.SIGKILL)
        if state == "load":
            daemon.write(text[1])
        until(lambda: set(descendants(daemon.pid)) - set(serving.values()), "another process")
        if state == "load":
            os.kill(serving["engine"], signal.SIGSTOP)
        children = descendants(daemon.pid)
        daemon.process.kill()
        daemon.process.wait()
        until(lambda: not any(alive(pid) for pid in children), "all children are gone", patience_s=10.0)


@pytest.mark.slow
def test_s12_a_killed_daemon_leaves_no_process(two):
    children = descendants(two.pid)
    assert len(children) >= 4
    two.process.kill()
    two.process.wait()
    until(lambda: not any(alive(pid) for pid in children), "all children are gone", patience_s=1.0)


@pytest.mark.slow
def test_a_crash_loop_ends_in_a_stated_failure_and_the_other_model_serves_on(running):
    two = running(anew=True)
    killed = set()
    while (pid := until(lambda: next_engine(two, killed), "x serves again or was given up")) != "failed":
        assert len(killed) < 6
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
    model = two.status()["models"]["x"]
    assert model["state"] == "failed"
    assert "HRT-1002" in model["trouble"]
    refused = httpx.post(f"{two.url}/v1/completions", json={"model": "x", "prompt": "b", "max_tokens": 1})
    assert refused.status_code == 503
    fine = httpx.post(f"{two.url}/v1/completions", json={"model": "y", "prompt": "b", "max_tokens": 1}, timeout=60)
    assert fine.status_code == 200
    assert two.reload()[1]["outcome"] == "applied"
    assert two.status()["models"]["x"]["state"] == "serving"


def next_engine(daemon, killed):
    """The process of one of x that was not killed, or `failed`."""
    model = daemon.status()["models"]["x"]
    if model["state"] == "failed" and "HRT-1002" in (model["trouble"] or ""):
        return "failed"
    pid = model["serving"] and model["serving"]["pids"].get("engine")
    return None if pid in killed else pid


@pytest.mark.slow
def test_s1_a_stopped_engine_makes_health_fail(two):
    pids = two.pids("x")
    assert httpx.get(f"{two.url}/healthz").status_code == 200
    os.kill(pids["engine"], signal.SIGSTOP)
    try:
        until(lambda: httpx.get(f"{two.url}/healthz").status_code != 200, "health fails", patience_s=8)
        assert httpx.get(f"{two.url}/livez").status_code == 200
    finally:
        os.kill(pids["engine"], signal.SIGKILL)
    until(lambda: is_another(two, "x", pids), "another serves")


def test_s4_sigterm_lets_a_stream_end_and_exits_zero(two):
    with httpx.stream(
        "POST",
        f"{two.url}/v1/completions",
        json={"model": "x", "prompt": "alpha", "max_tokens": 200, "temperature": 0, "stream": True},
        timeout=60,
    ) as response:
        lines = response.iter_lines()
        next(lines)
        two.process.send_signal(signal.SIGTERM)
        assert list(lines)[-2:] == ["data: [DONE]", ""]
    assert two.process.wait(timeout=60) == 0
    assert "shutting_down" not in two.log.read_text()
