"""check, schema and explain, as a shell sees them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.config_documents import HEAD, MODEL, read

from halogend.cli.main import main
from halogend.config import reference
from halogend.config.canonical import canonical

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return str(path)

    return written


def test_a_valid_document(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(HEAD + MODEL)
    assert main(["check", "--offline", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: valid, revision ")
    assert out.endswith(", models: chat\n")


def test_problems_one_a_line_and_exit_1(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("model: /a.gguf\nmax_bach: 1\nport: x\n")
    assert main(["check", "--offline", path]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{path}:2:1: HCF-1007: unknown key 'max_bach' (did you mean `max_batch`?)"
    assert second.startswith(f"{path}:3:7: HCF-1008: ")


def test_a_directory_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "20-chat.yaml").write_text("models: [{name: chat, model: /a.gguf}]\n")
    (tmp_path / "10-server.yaml").write_text(f"{HEAD}server: {{port: 8001}}\n")
    assert main(["check", "--offline", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(", models: chat\n")
    (tmp_path / "30-more.yaml").write_text("server:\n  port: 8002\n")
    assert main(["check", "--offline", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path}/30-more.yaml:2:3: HCF-1006: the key 'port' stands in two files; ")
    assert f"first at {tmp_path}/10-server.yaml:" in out


def test_print_shows_the_canonical_form_alone(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--offline", "--print", write("model: /a.gguf\n")]) == 0
    document = read("model: /a.gguf\n").document
    assert document is not None
    assert capsys.readouterr().out == canonical(document)


def test_a_file_the_document_names_is_looked_at_unless_offline(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(f"model: {tmp_path}/missing.gguf\n")
    assert main(["check", path]) == 1
    assert f"{path}:1:8: HCK-1010: " in capsys.readouterr().out
    assert main(["check", "--offline", path]) == 0


def test_the_environment_fills_paths(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("model: ${HALOGEN_TEST_FOLDER}/a.gguf\n")
    monkeypatch.delenv("HALOGEN_TEST_FOLDER", raising=False)
    assert main(["check", "--offline", path]) == 1
    assert "HCF-1014" in capsys.readouterr().out
    monkeypatch.setenv("HALOGEN_TEST_FOLDER", "/srv")
    assert main(["check", "--offline", "--print", path]) == 0
    assert "model: /srv/a.gguf\n" in capsys.readouterr().out


def test_target_stands_in_for_the_machines_devices(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("model: /a.gguf\ndevice: ai_max_395:1\n")
    both = ["--target", "ai_max_395:0", "--target", "ai_max_395:1"]
    assert main(["check", "--offline", *both, path]) == 0
    assert main(["check", "--offline", "--target", "h100", path]) == 1
    assert "this machine has cuda:0 = h100:0, cpu:0 = cpu" in capsys.readouterr().out


def test_what_auto_is_cannot_be_told_offline(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("model: /a.gguf\nprecision: fp8\n")
    assert main(["check", "--offline", path]) == 0
    told = capsys.readouterr().err
    assert told.startswith(f"warning: {path}:2:12: HCF-1135: `precision` fp8 needs an accelerator, and no machine was")
    assert "(assume one with --target DEVICE, or name the device)" in told
    assert main(["check", "--offline", "--target", "h100", path]) == 0
    assert main(["check", "--offline", "--target", "cpu", path]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "`device` auto is a processor here" in captured.out


@pytest.mark.parametrize("words", [["--offline"], []])
def test_a_target_has_a_processor_beside_it(write: Write, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is no problem of devices is one of files, where those are looked at."""
    path = write(
        f"{HEAD}devices: [{{id: cpu:0, cores: '0'}}, {{id: cpu:1, cores: '1'}}]\nmodels:\n"
        "  - {name: a, model: /a.gguf, device: h100}\n  - {name: b, model: /b.gguf, device: cpu:1}\n"
    )
    for target in (["h100"], ["h100", "cpu"], ["h100", "cpu=64GiB"]):
        main(["check", *words, *(word for each in target for word in ("--target", each)), path])
        out = capsys.readouterr().out
        assert ": valid, " in out if words else {line.split(": ")[1] for line in out.splitlines()} == {"HCK-1010"}
    assert main(["check", *words, "--target", "cpu", path]) == 1
    assert "the device h100:0 is not there; this machine has cpu:0, cpu:1" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["/no/such"], ["/dev/null/file.yaml"], ["--target", "abacus", __file__]])
def test_what_cannot_be_checked_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--offline", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("halogend check: ")


def test_unknown_commands_and_flags_are_usage_errors() -> None:
    for arguments in ([], ["chekc"], ["check"], ["check", "--ofline", "x"]):
        with pytest.raises(SystemExit) as raised:
            main(arguments)
        assert raised.value.code == 2


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "halogend document"
    assert main(["schema", "--markdown"]) == 0
    assert capsys.readouterr().out == reference.config_markdown()


def test_explain_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "hcf-1007"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("HCF-1007: ")
    assert "Cause:" in out
    assert "Remedy:" in out


def test_explain_an_unknown_code_lists_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "HCF-107"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "HCF-1007" in captured.err


def test_explain_lists_all_codes_and_writes_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    assert "HRT-1102  kernel not found for op\n" in capsys.readouterr().out
    assert main(["explain", "--markdown"]) == 0
    assert capsys.readouterr().out == reference.errors_markdown()


def run_cli(command: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["/bin/sh", "-c", command], input=text, capture_output=True, timeout=60, check=False)


CLI = f"{sys.executable} -c 'from halogend.cli.main import main; raise SystemExit(main())'"


def test_standard_input_and_a_reader_that_leaves() -> None:
    done = run_cli(f"{CLI} check --offline -", b"model: /a.gguf\nx: 1\n")
    assert done.returncode == 1
    assert done.stdout.startswith(b"<stdin>:2:1: HCF-1007: ")
    left = run_cli(f"{CLI} explain --markdown | head -1")
    assert left.stdout == b"# Error codes\n"
    assert left.stderr == b""


def test_explain_starts_without_the_heavy_imports() -> None:
    probe = (
        f'{sys.executable} -c \'import sys; from halogend.cli.main import main; main(["explain", "HCF-1007"]); '
        'print(sorted(set(sys.modules) & {"torch", "pydantic", "starlette", "uvicorn", "yaml", "tokenizers"}))\''
    )
    assert run_cli(probe).stdout.decode().splitlines()[-1] == "[]"
