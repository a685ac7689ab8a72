"""inspect and verify, as a shell sees them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from support.gguf_files import write_gguf
from support.tiny_models import CHAT_TEMPLATE, tiny_llama
from support.v2_files import SOURCE, TEXT, edited, flipped, write_v2
from support.v2_models import as_v2

from halogend.checkpoint.v2.reader import open_v2
from halogend.cli import verify
from halogend.cli.byte_progress import ByteProgress
from halogend.cli.main import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_v2(tmp_path / "m.hgn2", quantisation="int4")


def test_inspect_shows_the_model_its_source_its_text_and_each_entry(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    for words in ("llama: 2 layers (1 with a window)", "model.safetensors", SOURCE.files[0].sha256, "optimizer.step"):
        assert words in said
    assert "sizes 1, 2, 3, 6" in said
    assert "chat_template.jinja" in said
    (row,) = (line for line in said.splitlines() if line.startswith("blk.1.ffn_down "))
    assert row.split()[1:5] == ["96x192", "U8", "g32-a4.v1", "columns/32"]
    assert row.split()[6:] == [str(open_v2(path).entries["blk.1.ffn_down"].offset), "11520"]


def test_what_a_file_says_does_not_move_the_terminal(path: Path, capsys: pytest.CaptureFixture[str]):
    edited(path, metadata=lambda document: document.update(producer="x\x1b[2J\n\u202ey"))
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "version 1 by x?[2J??y, 1 file(s)\n" in out
    assert all(line.isprintable() for line in out.splitlines())


def test_inspect_as_json_has_all_of_the_index(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    file = open_v2(path)
    assert [each["name"] for each in found["entries"]] == list(file.entries)
    assert found["entries"][0]["sha256"] == file.metadata.entries[0].sha256
    assert found["model"]["hidden"] == 96
    assert found["tensor_parallel_sizes"] == [1, 2, 3, 6]
    assert found["weights"]["output_norm"] == {
        "shape": [96, 1],
        "dtype": "F32",
        "stored": "plain",
        "bytes": 384,
        "file": 0,
        "offset": file.entries["output_norm"].offset,
    }


def test_inspect_prints_a_text_file_as_it_lies(path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    assert main(["inspect", str(path), "--text", "chat_template.jinja"]) == 0
    assert capfdbinary.readouterr().out == TEXT["chat_template.jinja"]
    assert main(["inspect", str(path), "--text", "none"]) == 1
    assert b"it has tokenizer.json, config.json, chat_template.jinja" in capfdbinary.readouterr().err


def test_inspect_prints_the_chat_template_wherever_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    gguf = tiny_llama(tmp_path / "model.gguf", chat_template="{{ 'gguf' }}").path
    files = write_v2(tmp_path / "files.hgn2", text={"tokenizer.json": b"{}", "chat_template.jinja": b"{{ 'jinja' }}"})
    section = write_gguf(tmp_path / "keys.gguf", {"tokenizer.chat_template": "{{ 'gguf' }}"}, {}).read_bytes()
    keys = write_v2(tmp_path / "keys.hgn2", text={"gguf": section})
    for path, template in ((gguf, "{{ 'gguf' }}"), (files, "{{ 'jinja' }}"), (keys, "{{ 'gguf' }}")):
        assert main(["inspect", str(path), "--template"]) == 0
        assert capsys.readouterr().out == f"{template}\n"
        assert main(["inspect", str(path)]) == 0
        assert f"template   {len(template)} characters" in capsys.readouterr().out
    bare = write_v2(tmp_path / "bare.hgn2", text={"tokenizer.json": b"{}"})
    assert main(["inspect", str(bare), "--template"]) == 1
    assert "has no chat template" in capsys.readouterr().err


def test_inspect_takes_other_formats_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tiny_llama(tmp_path / "model.gguf", kind="Q8_0").path
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    assert "format     gguf, 1 file(s)" in said
    (row,) = (line for line in said.splitlines() if line.startswith("blk.0.attn_q "))
    assert row.split()[1:4] == ["64x64", "Q8_0", "plain"]
    assert main(["inspect", str(path), "--text", "gguf"]) == 1


def test_inspect_of_what_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("halogend inspect: HCK-1010: ")


def test_verify_finds_a_sound_file_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = tiny_llama(tmp_path / "m.gguf", chat_template=CHAT_TEMPLATE).path
    path = as_v2(source, tmp_path / "m.hgn2")
    assert main(["verify", str(path), "--threads", "2"]) == 0
    captured = capsys.readouterr()
    assert f"{path}: sound: " in captured.out
    assert captured.err == ""


def test_verify_says_what_a_start_would_be_refused_for(path: Path, capsys: pytest.CaptureFixture[str]):
    """Every byte is what was written, and no tokenizer can be made of them."""
    assert main(["verify", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], [fault["code"] for fault in found["faults"]]) == (False, ["HCK-1009"])
    assert "m.hgn2/text/tokenizer.json" in found["faults"][0]["message"]


def test_verify_says_where_it_could_not_try_the_text(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(verify, "_try_text", lambda _: {"untried": "No module named 'tokenizers'"})
    assert main(["verify", str(path)]) == 0
    captured = capsys.readouterr()
    assert f"{path}: sound: " in captured.out
    assert "its tokenizer was not tried: No module named" in captured.err


def test_verify_tells_each_fault(path: Path, capsys: pytest.CaptureFixture[str]):
    flipped(path, open_v2(path).entries["blk.0.attn_q"].offset)
    assert main(["verify", str(path)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.rsplit(" ", 1)[1] for line in said] == ["(V2-39)", "(V2-40)"]
    assert all("'blk.0.attn_q'" in line for line in said)
    assert main(["verify", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], [fault["code"] for fault in found["faults"]]) == (False, ["HCK-1015"] * 2)


def test_verify_of_a_file_that_does_not_open_and_of_another_format(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["verify", str(flipped(path, 10))]) == 1
    assert "HCK-1015" in capsys.readouterr().err
    assert main(["verify", str(tiny_llama(tmp_path / "model.gguf").path)]) == 1
    assert "HCK-1002" in capsys.readouterr().err
    for count in ("0", "x"):
        with pytest.raises(SystemExit):
            main(["verify", str(path), "--threads", count])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "told"), [(Terminal(), 4), (io.StringIO(), 1)])
def test_progress_is_drawn_on_a_terminal_and_written_now_and_then_elsewhere(out: io.StringIO, told: int):
    times = iter([0.0, 0.1, 1.0, 2.0, 2.1, 3.0, 12.0])
    with ByteProgress("verifying", 100 << 20, out, lambda: next(times)) as progress:
        for _ in range(6):
            progress.advance(10 << 20)
    said = out.getvalue()
    assert said.count("verifying") == told
    assert "60 MiB of 100 MiB, 5 MiB/s, 8 s left" in said
    assert said.endswith("\n") != out.isatty()
