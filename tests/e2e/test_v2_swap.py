"""A v2 checkpoint served by a real daemon, and swapped for another of the same file and of another one."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.live import document, live
from support.ports import free_port
from support.tiny_models import CHAT_TEMPLATE, tiny_llama
from support.v2_models import as_v2

PROMPT = [40, 55, 61, 7, 90]


def text_of(url: str) -> str:
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


@pytest.mark.slow
def test_a_v2_model_is_served_and_swapped_and_the_plan_shows_what_is_mapped(tmp_path: Path) -> None:
    source = tiny_llama(tmp_path / "a.gguf", extra_vocab=4000, chat_template=CHAT_TEMPLATE, seed=8).path
    paths = {kind: as_v2(source, tmp_path / f"{kind}.hgn2", kind) for kind in ("int8", "int4")}
    port = free_port()

    def text(kind: str, **fields: object) -> str:
        model = {"name": "m", "model": str(paths[kind]), "max_model_len": 200, "max_batch": 4, **fields}
        return document(port, model)

    with live(tmp_path, text("int8", load={"verify": "full"}), port) as daemon:
        daemon.until_serving()
        first = text_of(daemon.url)
        wanted = tmp_path / "wanted.yaml"
        wanted.write_text(text("int8", kernels={"compile": "never"}))
        status, plan = daemon.command("plan", str(wanted))
        (device,), (model,) = plan["devices"], plan["models"]
        mapped = device["now"]["mapped_bytes"]
        assert (status, model["action"], model["strategy"]) == (2, "replace", "overlap")
        assert 0 < mapped == device["peak"]["mapped_bytes"] == model["load"]["mapped_bytes"], "once, not twice"
        start = model["at_start"]
        daemon.write(text("int8", kernels={"compile": "never"}))
        receipt = daemon.reload("closed")[1]
        assert receipt["outcome"] == "applied"
        (load,) = [step for each in receipt["models"] for step in each["steps"] if step["name"] == "load"]
        assert load["expected_bytes"] == start["grows_bytes"] == start["total_bytes"] - mapped
        assert text_of(daemon.url) == first
        daemon.write(text("int4"))
        receipt = daemon.reload("closed")[1]
        assert receipt["outcome"] == "applied"
        (load,) = [each["load"] for each in receipt["models"]]
        assert (load["stored"], load["precision"], load["requantised"]) == ("int4", "int4", False)
        (reclaim,) = [step for each in receipt["models"] for step in each["steps"] if step["name"] == "reclaim"]
        short = reclaim["expected_bytes"] - reclaim["returned_bytes"]
        assert abs(short) <= max(16 << 20, 0.02 * reclaim["expected_bytes"]), "pages of files are nobody's to return"
        text_of(daemon.url)
        assert daemon.stop() == 0
