"""A real daemon with its spare worker: a swap takes the process, and it goes when the daemon does."""

from pathlib import Path

import httpx
import pytest
from support.live import alive, descendants, document, live, until
from support.ports import free_port
from support.tiny_models import tiny_llama

from halogend.control.held import held_bytes
from halogend.control.working import ENGINE_BYTES

AUTO = {"spare_worker": "auto"}


@pytest.fixture
def daemon(tmp_path):
    """It serves a tiny model, and a spare worker is ready."""
    path = tiny_llama(tmp_path / "tiny.gguf", seed=3).path
    port = free_port()

    def text(**fields):
        return document(port, {"name": "m", "model": str(path), "max_model_len": 200, **fields}, reload=AUTO)

    with live(tmp_path, text(), port) as running:
        running.text = text
        running.until_serving()
        _ready(running)
        yield running


def _ready(running):
    def view():
        found = running.status()["spare_worker"]
        return found if found["state"] == "ready" else None

    return until(view, "a spare worker is ready")


def _answer(running):
    body = {"model": "m", "prompt": [40, 55, 61, 7, 90], "max_tokens": 12, "temperature": 0}
    return httpx.post(f"{running.url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]


def _started_ahead(pid):
    """Of all that a process has mapped, what only the import of torch brings."""
    return "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text()


def _load(receipt):
    (load,) = [step for each in receipt["models"] for step in each["steps"] if step["name"] == "load"]
    return load


@pytest.mark.slow
def test_a_swap_takes_it_and_nothing_of_it_is_left_at_the_end(daemon):
    first, spare = _answer(daemon), _ready(daemon)
    assert _started_ahead(spare["pid"])
    assert sum(held_bytes([spare["pid"]]).values()) <= spare["counted_bytes"] == ENGINE_BYTES
    assert daemon.status()["memory"]["spare worker"]["working"] == ENGINE_BYTES
    daemon.write(daemon.text(kernels={"compile": "never"}))
    receipt = daemon.reload("closed")[1]
    assert receipt["outcome"] == "applied"
    assert _load(receipt)["spare_worker"] == "m#2"
    assert _load(daemon.receipts()[-1])["spare_worker"] == "m#1", "it imported while the first document was checked"
    assert daemon.pids("m")["engine"] == spare["pid"]
    assert _answer(daemon) == first
    assert _ready(daemon)["pid"] != spare["pid"]
    processes = descendants(daemon.pid)
    assert daemon.stop() == 0
    assert not [pid for pid in processes if alive(pid)]


@pytest.mark.slow
def test_s12_a_daemon_that_is_killed_leaves_no_spare_worker(daemon):
    processes = descendants(daemon.pid)
    assert daemon.status()["spare_worker"]["pid"] in processes
    daemon.process.kill()
    daemon.process.wait()
    until(lambda: not [pid for pid in processes if alive(pid)], "no process is left")
