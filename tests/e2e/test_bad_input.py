"""Every kind of bad input has its own message and status, and nothing that runs notices it."""

import json
import threading

import gguf
import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file
from support.live import document, live
from support.ports import free_port
from support.tiny_models import CHAT_TEMPLATE, tiny_llama

LOOPS = "a word at which it loops"
LOOPS_ON_IT = (
    f"{{% if messages[0].content == '{LOOPS}' %}}"
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}" + CHAT_TEMPLATE
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A daemon that serves `plain` (no template) and `chat` (one that loops at a word), for all of this module."""
    folder = tmp_path_factory.mktemp("bad")
    tiny_llama(folder / "plain.gguf")
    tiny_llama(folder / "chat.gguf", chat_template=LOOPS_ON_IT)
    (folder / "cut.gguf").write_bytes((folder / "plain.gguf").read_bytes()[:-5000])
    save_file({"w": np.zeros(4, np.float32)}, folder / "named-wrongly.gguf")
    (folder / "text.gguf").write_text("no model at all")
    writer = gguf.GGUFWriter(folder / "mamba.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    port = free_port()
    models = [
        {"name": "plain", "model": f"{folder}/plain.gguf"},
        {"name": "chat", "model": f"{folder}/chat.gguf", "max_prompt_len": 100},
    ]
    good = document(port, *models, server={"ready": "all"})
    with live(folder, good, port) as daemon:
        daemon.good, daemon.port = good, port
        yield daemon.until_serving()


def with_model(world, **fields):
    return document(world.port, {"name": "plain", "model": f"{world.folder}/plain.gguf", **fields})


DOCUMENTS = {
    "YAML syntax": (lambda w: "models: [", "HCF-1005", ""),
    "duplicate key": (lambda w: w.good + "models: []\n", "HCF-1006", "models"),
    "unknown key": (lambda w: with_model(w, max_batchh=3), "HCF-1007", "max_batch"),
    "wrong type": (lambda w: with_model(w, max_batch="three"), "HCF-1008", "max_batch"),
    "missing file": (lambda w: with_model(w, model=f"{w.folder}/gone.gguf"), "HCK-1010", "gone.gguf"),
    "truncated GGUF": (lambda w: with_model(w, model=f"{w.folder}/cut.gguf"), "HCK-1003", "cut.gguf"),
    "unsupported architecture": (lambda w: with_model(w, model=f"{w.folder}/mamba.gguf"), "HCK-1005", "mamba"),
    "no model": (lambda w: with_model(w, model=f"{w.folder}/text.gguf"), "HCK-1001", "text.gguf"),
    "wrong magic for load_format": (
        lambda w: with_model(w, model=f"{w.folder}/named-wrongly.gguf", load_format="gguf"),
        "HCK-1002",
        "safetensors",
    ),
    "not available yet": (lambda w: with_model(w, priority=3), "HCF-1017", "priority"),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_bad_document_is_refused_with_its_place_and_the_daemon_serves_on(world, kind):
    make, code, named = DOCUMENTS[kind]
    world.write(make(world))
    status, receipt = world.reload()
    assert (status, receipt["outcome"]) == (1, "rejected")
    problem = next(each for each in receipt["problems"] if each["code"] == code)
    assert problem["line"]
    assert named in problem["message"] + problem["hint"]
    checked, _ = world.check()
    assert checked == 1
    assert httpx.get(f"{world.url}/readyz").status_code == 200
    world.write(world.good)
    assert world.reload()[1]["outcome"] == "unchanged"


def chat(text, **more):
    return {"model": "chat", "messages": [{"role": "user", "content": text}], "max_tokens": 2, **more}


REQUESTS = {
    "unknown model": (chat("Hi", model="gpt-9"), 404, "model_not_found", "gpt-9"),
    "prompt too long": (chat("alpha " * 500), 400, "context_length_exceeded", "100"),
    "unknown field": (chat("Hi", temprature=1), 400, "unknown_field", "temperature"),
    "chat on a model without template": (chat("Hi", model="plain"), 400, "no_chat_template", "chat_template"),
    "a template that loops": (chat(LOOPS), 422, "template_timeout", "template"),
    "bad JSON": ('{"model": "chat", ', 400, "bad_json", ""),
    "body too large": (chat("x" * (10 << 20)), 413, "body_too_large", "10"),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_bad_request_is_refused_by_name(world, kind):
    body, status, code, named = REQUESTS[kind]
    content = body if isinstance(body, str) else json.dumps(body)
    answer = httpx.post(f"{world.url}/v1/chat/completions", content=content, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert named in error["message"]
    good = httpx.post(f"{world.url}/v1/chat/completions", json=chat("Hi"), timeout=60)
    assert good.status_code == 200


def test_a_looping_template_does_not_hold_up_another_stream_of_its_model(world):
    other = {"model": "chat", "prompt": "alpha", "max_tokens": 20, "temperature": 0}
    with httpx.Client(timeout=60) as client, httpx.Client(timeout=60) as slow:
        request = slow.build_request("POST", f"{world.url}/v1/chat/completions", json=chat(LOOPS))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(slow.send(request)))
        thread.start()
        assert client.post(f"{world.url}/v1/completions", json=other).status_code == 200
        assert not answers
        thread.join()
        assert answers[0].status_code == 422
