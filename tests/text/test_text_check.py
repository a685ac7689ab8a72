"""What `halogend verify` asks of the text of a checkpoint, whatever its format."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiny_models import CHAT_TEMPLATE, tiny_llama
from support.v2_files import write_v2

from halogend.text.check import check


@pytest.mark.parametrize("template", [None, CHAT_TEMPLATE, "{{ raise_exception('a system turn is wanted') }}"])
async def test_text_that_can_be_served(tmp_path: Path, template: str | None) -> None:
    assert await check(str(tiny_llama(tmp_path / "m.gguf", chat_template=template).path)) == {}


async def test_a_template_that_no_start_would_take(tmp_path: Path) -> None:
    path = str(tiny_llama(tmp_path / "m.gguf", chat_template="{% if %}").path)
    said = await check(path)
    message = said["failed"].pop("message")
    assert said == {"failed": {"code": "HRT-1006"}}
    assert message.startswith(f"{path}: chat template invalid: line 1")


async def test_a_tokenizer_that_is_none(tmp_path: Path) -> None:
    path = write_v2(tmp_path / "m.hgn2", text={"tokenizer.json": b'{"model": {}}'})
    said = await check(str(path))
    assert said["failed"]["code"] == "HCK-1009"
    assert f"{path}/text/tokenizer.json" in said["failed"]["message"]
