"""A real daemon that is watched: what its events say, that a watcher keeps no end up, and how it hears of it."""

import json
import signal
import subprocess
import sys

import httpx
import pytest
from support.live import document, live, until
from support.ports import free_port
from support.tiny_models import tiny_llama

ADMIN = "http://admin/admin/v1"


class Watch:
    """`halogend status --watch --json` in a process of its own."""

    def __init__(self, daemon):
        self.path = daemon.folder / "watched"
        words = [sys.executable, "-m", "halogend", "status", "--watch", "--json", "--admin", daemon.admin]
        with self.path.open("wb") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)

    def lines(self):
        whole = self.path.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def until(self, what, **fields):
        def found():
            return [each for each in self.lines() if all(each.get(key) == value for key, value in fields.items())]

        return until(found, what)[0]


@pytest.mark.slow
def test_whoever_watches_hears_of_an_edit_and_of_the_end(tmp_path):
    tiny_llama(tmp_path / "a.gguf", layers=2)
    model = {"name": "chat", "model": f"{tmp_path}/a.gguf", "precision": "fp32"}
    port = free_port()
    with live(tmp_path, document(port, model), port) as daemon:
        daemon.until_serving()
        watch = Watch(daemon)
        status = watch.until("the status", event="status")
        assert status["status"]["models"]["chat"]["state"] == "serving"
        assert status["status"]["devices"]
        daemon.write(document(port, {**model, "max_batch": 7}))
        closed = watch.until("the edit", event="receipt", phase="closed", outcome="applied")
        watch.until("its step", event="step", name="update", phase="ended", receipt=closed["receipt"])
        with httpx.Client(transport=httpx.HTTPTransport(uds=daemon.admin.removeprefix("unix:"))) as client:
            (pool,) = until(
                lambda: client.get(f"{ADMIN}/cache").json()["models"]["chat"], "the engine tells of its pool"
            )
            assert (pool["generation"], pool["role"]) == (1, "serving")
            assert pool["blocks_total"] > 0
            assert client.post(f"{ADMIN}/models/chat/drain").status_code == 409
            assert "halogend" in client.get(f"{ADMIN}/ui").text
        assert daemon.stop() == 0
        assert watch.until("the end", event="end")["reason"] == "shutting_down"
        watch.until("nobody", event="lost")
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(20) == 0
