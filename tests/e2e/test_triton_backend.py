"""A real daemon whose engine computes with Triton's kernels, in the interpreter, beside the one for processors."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.live import document, live
from support.ports import free_port
from support.tiny_models import CHAT_TEMPLATE, tiny_llama


@pytest.mark.slow
def test_a_swap_to_triton_s_kernels_changes_no_token(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "a.gguf", chat_template=CHAT_TEMPLATE, seed=8, layers=1).path
    port = free_port()

    def text(backend: str) -> str:
        limits = {"max_model_len": 128, "max_batch": 4, "precision": "fp32", "sampling": {"temperature": 0}}
        return document(port, {"name": "m", "model": str(path), "kernels": {"backend": backend}, **limits})

    def answer(url: str) -> str:
        body = {"model": "m", "prompt": [40, 55, 61, 7, 90], "max_tokens": 8}
        got = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert got.status_code == 200, got.text
        return str(got.json()["choices"][0]["text"])

    with live(tmp_path, text("cpu"), port) as daemon:
        daemon.until_serving()
        expected = answer(daemon.url)
        daemon.write(text("triton"))
        assert daemon.reload("closed")[1]["outcome"] == "applied"
        assert answer(daemon.url) == expected
        kernels = daemon.status()["models"]["m"]["serving"]["kernels"]
        assert kernels["attention_decode"] == "triton.paged_decode"
        assert daemon.stop() == 0
