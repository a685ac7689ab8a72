"""One model after another in every format a user brings, swapped under the same daemon."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support import tiny_gguf, tiny_hf, tiny_quantised
from support.live import document, live
from support.ports import free_port

PROMPT = [40, 55, 61, 7, 90]
TOKENS = 12
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def text_of(url: str, **body: object) -> str:
    answer = httpx.post(f"{url}/v1/completions", json={"model": "m", "temperature": 0, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    folder = tmp_path_factory.mktemp("formats")
    qwen = tiny_hf.make("qwen3", folder / "qwen", seed=3)
    (qwen.path / "chat_template.jinja").write_text(TEMPLATE)
    gguf = tiny_gguf.from_hf(qwen, folder / "qwen.gguf")
    wide = tiny_hf.make("llama", folder / "llama", seed=4, hidden_size=128, intermediate_size=256)
    awq = tiny_quantised.awq(wide, folder / "awq", group_size=32)
    return {
        "directory": {"model": str(qwen.path), "precision": "fp32"},
        "gguf": {"model": str(gguf), "precision": "fp32"},
        "awq": {"model": str(awq.path), "precision": "fp32"},
        "awq in int8": {"model": str(awq.path), "precision": "int8"},
    }


@pytest.mark.slow
def test_each_is_swapped_in_and_answers(tmp_path: Path, models: dict[str, dict[str, object]]) -> None:
    port = free_port()
    common = {"name": "m", "max_model_len": 200, "max_batch": 4}

    def text(name: str) -> str:
        return document(port, common | models[name])

    with live(tmp_path, text("directory"), port) as daemon:
        daemon.until_serving()
        answers = {"directory": text_of(daemon.url, prompt=PROMPT, max_tokens=TOKENS)}
        chat = {
            "model": "m",
            "messages": [{"role": "user", "content": "alpha"}],
            "temperature": 0,
            "max_tokens": TOKENS,
        }
        said = httpx.post(f"{daemon.url}/v1/chat/completions", json=chat, timeout=60).json()
        assert said["choices"][0]["message"]["content"] == text_of(daemon.url, prompt="alpha", max_tokens=TOKENS)
        loads = {}
        for name in ("gguf", "awq", "awq in int8"):
            daemon.write(text(name))
            status, receipt = daemon.reload()
            assert (status, receipt["outcome"]) == (0, "applied"), receipt
            (loads[name],) = [model["load"] for model in receipt["models"]]
            answers[name] = text_of(daemon.url, prompt=PROMPT, max_tokens=TOKENS)
        assert answers["gguf"] == answers["directory"]
        assert answers["awq"] != answers["gguf"]
        assert (loads["awq"]["stored"], loads["awq"]["requantised"]) == ("awq int4 g32", False)
        assert (loads["awq in int8"]["precision"], loads["awq in int8"]["requantised"]) == ("int8", True)
        assert loads["awq in int8"]["held_bytes"] < loads["awq"]["held_bytes"]
        daemon.write(text("awq").replace("/awq", "/nowhere"))
        status, receipt = daemon.reload()
        assert (status, receipt["outcome"]) == (1, "rejected")
        assert text_of(daemon.url, prompt=PROMPT, max_tokens=TOKENS) == answers["awq in int8"]
        assert daemon.stop() == 0
