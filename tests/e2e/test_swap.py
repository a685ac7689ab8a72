"""An edit replaces the model under load: nobody fails, nobody is cut, nothing is mixed up."""

import asyncio
import json
import signal
import socket
from pathlib import Path

import httpx
import pytest
from support.live import alive, document, live, pss_bytes, until
from support.ports import free_port
from support.tiny_models import tiny_gemma3, tiny_llama

PROMPTS = [f"{word} {number}" for number, word in enumerate(["alpha", "beta", "gamma", "delta"] * 4)]
TOKENS = 48
LOOPING_TEMPLATE = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def body(prompt, model="chat"):
    return {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "stream": True}


async def stream(client, url, payload):
    """(text, finish reason); raises on anything but a whole answer."""
    text, reason, done = "", None, False
    async with client.stream("POST", f"{url}/v1/completions", json=payload) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        async for line in response.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                done = True
                break
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                text += choice["text"]
                reason = choice["finish_reason"] or reason
    assert done
    return text, reason


async def answers(url, model="chat"):
    """Each prompt's answer, asked alone."""
    async with httpx.AsyncClient(timeout=60) as client:
        return {prompt: await stream(client, url, body(prompt, model)) for prompt in PROMPTS}


class Load:
    """Clients that ask one prompt after the other until told to stop."""

    def __init__(self, url):
        self.url = url
        self.got = []
        self.failures = []
        self._stop = False

    async def run(self, clients=16):
        async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=clients)) as client:
            await asyncio.gather(*(self._client(client, number) for number in range(clients)))

    def stop(self):
        self._stop = True

    async def _client(self, client, number):
        turn = number
        while not self._stop:
            prompt = PROMPTS[turn % len(PROMPTS)]
            try:
                self.got.append((prompt, await stream(client, self.url, body(prompt))))
            except (httpx.HTTPError, AssertionError, ValueError) as error:
                self.failures.append((prompt, repr(error)))
            turn += 1


@pytest.fixture
def pair(tmp_path):
    """Two models that answer differently."""
    tiny_llama(tmp_path / "a.gguf", layers=2)
    tiny_gemma3(tmp_path / "b.gguf", layers=2)
    return tmp_path


def text_of(folder, port, name, **more):
    return document(port, {"name": "chat", "model": f"{folder}/{name}.gguf", "precision": "fp32", **more})


@pytest.fixture
def real_pair(tmp_path, smollm2, gemma):
    (tmp_path / "a.gguf").symlink_to(smollm2)
    (tmp_path / "b.gguf").symlink_to(gemma)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("models", ["pair", pytest.param("real_pair", marks=pytest.mark.models)])
async def test_swaps_and_bad_edits_under_load_lose_nothing(models, request):
    """Five swaps back and forth and three bad edits under 16 streaming clients."""
    folder, port = request.getfixturevalue(models), free_port()
    with live(folder, text_of(folder, port, "a"), port) as daemon:
        await asyncio.to_thread(daemon.until_serving)
        expected = {"a": await answers(daemon.url)}
        daemon.write(text_of(folder, port, "b"))
        await asyncio.to_thread(daemon.reload, "closed")
        expected["b"] = await answers(daemon.url)
        assert expected["a"] != expected["b"]
        load = Load(daemon.url)
        running = asyncio.create_task(load.run())
        sizes, old_pids, outcomes = [], [], []
        for number in range(5):
            old_pids += (await asyncio.to_thread(daemon.pids, "chat")).values()
            outcomes.append(await edit(daemon, text_of(folder, port, "ab"[number % 2]), "closed"))
            if number < 3:
                bad = ["models: [", text_of(folder, port, "missing"), "model: x\nmodel: y\n"][number]
                outcomes.append(await edit(daemon, bad))
            await asyncio.sleep(10)
            sizes.append(pss_bytes(daemon.pid))
        load.stop()
        await running
        wrong = [got for got in load.got if got[1] not in (expected["a"][got[0]], expected["b"][got[0]])]
        print(
            f"{models}: {len(load.got)} answers, {len(load.failures)} failed or cut, {len(wrong)} mixed up; "
            f"PSS in MiB after each reclaim {[size >> 20 for size in sizes]}, outcomes {outcomes}"
        )
        assert load.failures == []
        assert wrong == []
        assert len(load.got) > 100
        assert outcomes.count((0, "applied")) == 5
        assert outcomes.count((1, "rejected")) == 3
        assert not any(alive(pid) for pid in old_pids)
        assert abs(sizes[-1] / sizes[0] - 1) < 0.05
        assert daemon.stop() == 0


async def edit(daemon, text, wait="serving"):
    """(exit status, outcome) of a reload right after the edit, whichever trigger came first."""
    daemon.write(text)
    status, receipt = await asyncio.to_thread(daemon.reload, wait)
    return status, receipt["outcome"]


def completion(url, prompt="alpha 0", model="chat"):
    payload = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0}
    return httpx.post(f"{url}/v1/completions", json=payload, timeout=60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A daemon for all of these, each of which begins with a document of its own; `port` is its first one. Its two
    models answer differently."""
    folder, port = tmp_path_factory.mktemp("swap"), free_port()
    tiny_llama(folder / "a.gguf", layers=2)
    tiny_gemma3(folder / "b.gguf", layers=2)
    with live(folder, text_of(folder, port, "a"), port) as daemon:
        daemon.port = port
        yield daemon.until_serving()
        assert daemon.stop() == 0
        assert not Path(daemon.admin.removeprefix("unix:")).exists()


def begun(daemon, *models, **more):
    """It serves what is asked for."""
    daemon.write(text_of(daemon.folder, daemon.port, "a", **more) if not models else document(daemon.port, *models))
    assert daemon.reload("closed")[1]["outcome"] in ("applied", "unchanged")
    return daemon


def generation(daemon):
    return daemon.status()["models"]["chat"]["serving"]["generation"]


def test_every_trigger_applies_an_edit_and_a_bad_one_changes_nothing(shared):
    """A rename over the file, SIGHUP, `halogend reload`; then problems with their place."""
    folder, port = shared.folder, shared.port
    before = generation(begun(shared))
    first = completion(shared.url).json()["choices"][0]["text"]

    shared.write(text_of(folder, port, "b"))
    until(lambda: generation(shared) == before + 1, "the edit is applied by the file watch")
    assert completion(shared.url).json()["choices"][0]["text"] != first

    status, receipt = shared.reload()
    assert (status, receipt["outcome"]) == (0, "unchanged")

    shared.write(text_of(folder, port, "b") + "# a comment\n")
    shared.process.send_signal(signal.SIGHUP)
    until(lambda: shared.receipts()[0]["trigger"] in ("signal", "file"), "a receipt of the signal")
    until(lambda: shared.receipts()[0]["outcome"] == "unchanged", "a comment changes nothing")

    shared.write(text_of(folder, port, "a", max_batchh=3))
    status, receipt = shared.reload()
    assert (status, receipt["outcome"]) == (1, "rejected")
    (problem,) = receipt["problems"]
    assert problem["line"]
    assert "max_batch" in problem["hint"] + problem["message"]
    assert generation(shared) == before + 1
    assert completion(shared.url).status_code == 200

    status, receipt = shared.reload()
    assert receipt["outcome"] == "rejected"
    shared.write(text_of(folder, port, "b", max_batch=3, max_prompt_len=40))
    status, receipt = shared.reload()
    assert (status, receipt["outcome"], generation(shared)) == (0, "applied", before + 1)
    assert {change["class"] for change in receipt["models"][0]["changes"]} == {"live"}
    long = completion(shared.url, "alpha " * 200)
    assert long.status_code == 400
    assert "40" in long.json()["error"]["message"]


@pytest.mark.slow
def test_several_models_come_and_go_and_the_short_forms_names_follow_the_path(shared):
    a, b = ({"name": name, "model": f"{shared.folder}/{name}.gguf"} for name in "ab")
    begun(shared, a, b)
    assert [completion(shared.url, model=name).status_code for name in "ab"] == [200, 200]
    shared.write(document(shared.port, b))
    assert shared.reload("closed")[1]["outcome"] == "applied"
    gone = completion(shared.url, model="a")
    assert gone.status_code == 404
    assert "known: b" in gone.json()["error"]["message"]
    assert 'model="a"' not in httpx.get(f"{shared.url}/metrics").text
    shared.write(f"model: {shared.folder}/a.gguf\nport: {shared.port}\n")
    assert shared.reload("closed")[1]["outcome"] == "applied"
    assert [completion(shared.url, model=name).status_code for name in ("default", "a", "b")] == [200, 200, 404]


@pytest.mark.slow
def test_replace_holds_requests_until_the_new_model_serves_and_undoes_itself(shared):
    folder, port = shared.folder, shared.port
    replace = {"reload": {"strategy": "replace", "drain_timeout_s": 5}}
    begun(shared, **replace)
    first = completion(shared.url).json()["choices"][0]["text"]
    shared.write(text_of(folder, port, "b", **replace))
    status, receipt = shared.reload("none")
    during = completion(shared.url)
    assert during.status_code == 200
    assert shared.reload("closed")[0] == 0
    steps = [step["name"] for step in shared.command("receipts", receipt["id"])[1]["models"][0]["steps"]]
    assert steps.index("reclaim") < steps.index("load")
    (folder / "loop.jinja").write_text(LOOPING_TEMPLATE)
    shared.write(text_of(folder, port, "a", chat_template=f"{folder}/loop.jinja", **replace))
    status, receipt = shared.reload("closed")
    assert (status, receipt["outcome"]) == (1, "failed")
    assert "template" in receipt["models"][0]["error"]
    assert completion(shared.url).json()["choices"][0]["text"] != first


def test_the_listener_moves_and_a_busy_port_changes_nothing(shared):
    folder, port, second = shared.folder, shared.port, free_port()
    begun(shared)
    with httpx.Client() as busy:
        shared.write(text_of(folder, second, "a"))
        assert shared.reload()[1]["outcome"] == "applied"
        assert completion(f"http://127.0.0.1:{second}").status_code == 200
        with pytest.raises(httpx.ConnectError):
            completion(shared.url)
        with socket.create_server(("127.0.0.1", port)):
            shared.write(text_of(folder, port, "a"))
            status, receipt = shared.reload()
        assert (status, receipt["outcome"]) == (1, "rejected")
        assert str(port) in receipt["problems"][0]["message"]
        assert receipt["problems"][0]["line"]
        assert completion(f"http://127.0.0.1:{second}").status_code == 200
        assert busy.get(f"http://127.0.0.1:{second}/readyz").status_code == 200
        for host, others in (("0.0.0.0", [200]), ("127.0.0.1", [])):  # noqa: S104  every address is what is asked for
            model = {"name": "chat", "model": f"{folder}/a.gguf", "precision": "fp32"}
            text = document(second, model, server={"host": host, "auth": "none"})
            (folder / "next.yaml").write_text(text)
            assert shared.command("plan", str(folder / "next.yaml"))[0] == 2
            shared.write(text)
            assert shared.reload()[1]["outcome"] in ("applied", "unchanged")
            assert busy.get(f"http://127.0.0.1:{second}/readyz").status_code == 200
            assert statuses(f"http://127.0.0.2:{second}/readyz") == others


def statuses(url):
    """The status, if there is an answer."""
    try:
        return [httpx.get(url).status_code]
    except httpx.ConnectError:
        return []


def test_an_admin_socket_that_was_removed_comes_back(shared):
    path = Path(shared.admin.removeprefix("unix:"))
    path.unlink()
    until(lambda: is_open(path), "the socket is put back")
    assert shared.status()["version"]


def is_open(path):
    """Does somebody listen there?"""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0
