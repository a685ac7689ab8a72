"""Models that converge side by side, in a real daemon: edits that wait for nobody, ways back that load nothing."""

import contextlib
import os
import signal
import threading
import time

import httpx
import pytest
from support.live import document, live, until
from support.ports import free_port
from support.tiny_models import tiny_gemma3, tiny_llama

LONG = {"model": "chat", "prompt": "on and on", "max_tokens": 300, "temperature": 0, "stream": True}


@pytest.fixture
def pair(tmp_path):
    tiny_llama(tmp_path / "a.gguf", layers=8)
    tiny_gemma3(tmp_path / "b.gguf", layers=2)
    return tmp_path


def model(folder, name, file, **more):
    return {"name": name, "model": f"{folder}/{file}.gguf", "precision": "fp32", **more}


class Admin:
    """The admin listener, without a process for each question."""

    def __init__(self, daemon):
        self.daemon = daemon
        path = daemon.admin.removeprefix("unix:")
        self.client = httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://x/admin/v1", timeout=60)

    def edit(self, text, wait="none"):
        self.daemon.write(text)
        return self.client.post("/reload", params={"wait": wait}).json()

    def receipt(self, receipt_id):
        return self.client.get(f"/receipts/{receipt_id}").json()

    def outcomes(self, receipt_id):
        """By model; {} before it was accepted."""
        return {each["model"]: each["outcome"] for each in self.receipt(receipt_id)["models"]}

    def model(self, name):
        """{} where it is not known."""
        return self.client.get("/status").json()["models"].get(name, {})

    def close(self):
        self.client.close()


@contextlib.contextmanager
def requests_on_and_on(url):
    """A long request begins every half second."""
    over, ends = threading.Event(), []

    def ask():
        ends.append(httpx.post(f"{url}/v1/completions", json=LONG, timeout=60).status_code)

    def begin():
        while not over.wait(0.5):
            threads.append(threading.Thread(target=ask))
            threads[-1].start()

    threads = [threading.Thread(target=begin)]
    threads[0].start()
    try:
        yield ends
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.slow
def test_an_edit_while_another_model_loads_and_a_revert_during_a_drain(pair):
    port = free_port()
    one = model(pair, "chat", "a")
    with live(pair, document(port, one), port) as daemon, contextlib.closing(Admin(daemon)) as admin:
        daemon.until_serving()
        first = admin.edit(document(port, one, model(pair, "other", "b")))
        until(lambda: admin.model("other").get("loading"), "the other model loads")
        began = time.monotonic()
        edit = admin.edit(document(port, {**one, "max_batch": 7}, model(pair, "other", "b")))
        until(lambda: admin.outcomes(edit["id"]).get("chat"), "the edit is in force")
        took_s = time.monotonic() - began
        assert admin.outcomes(edit["id"]) == {"chat": "applied", "other": None}
        assert admin.receipt(first["id"])["outcome"] is None
        assert took_s < 1
        with requests_on_and_on(daemon.url) as ends:
            changed = admin.edit(document(port, model(pair, "chat", "b")), "serving")
            assert changed["outcome"] == "applied"
            back = admin.edit(document(port, one), "serving")
            assert back["outcome"] == "applied"
            (chat,) = [each for each in back["models"] if each["model"] == "chat"]
            assert [step["name"] for step in chat["steps"][:2]] == ["take_back", "switch"]
            assert admin.model("chat")["serving"]["generation"] == 1
        assert set(ends) == {200}
        assert daemon.stop() == 0


@pytest.mark.slow
def test_a_kill_on_probation_and_a_change_of_two_models_at_one_moment(pair):
    port = free_port()
    probation = {"probation": {"s": 600}}
    text = document(port, model(pair, "chat", "a"), model(pair, "other", "b"))
    with live(pair, text, port) as daemon, contextlib.closing(Admin(daemon)) as admin:
        daemon.until_serving()
        until(lambda: admin.model("other").get("state") == "serving", "both serve")
        swapped = [model(pair, "chat", "b", **probation), model(pair, "other", "a")]
        changed = admin.edit(document(port, *swapped, reload={"atomic": True}), "serving")
        assert changed["outcome"] == "applied"
        switches = [s["began_at"] for m in changed["models"] for s in m["steps"] if s["name"] == "switch"]
        assert len(switches) == 2
        assert max(switches) - min(switches) < 0.1
        assert admin.model("chat")["parked"]["generation"] == 1
        os.kill(admin.model("chat")["serving"]["pids"]["engine"], signal.SIGKILL)
        until(lambda: admin.receipt(changed["id"])["outcome"] == "partially_applied", "it is rolled back")
        assert admin.outcomes(changed["id"]) == {"chat": "rolled_back", "other": "applied"}
        assert admin.model("chat")["serving"]["generation"] == 1
        answer = httpx.post(f"{daemon.url}/v1/completions", json={"model": "chat", "prompt": "hi", "max_tokens": 2})
        assert answer.status_code == 200
        assert daemon.stop() == 0
