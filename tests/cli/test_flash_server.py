"""`halogen-flash-server` as a shell sees it: what it prints, what it serves, how it ends."""

import importlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from support.config_documents import read
from support.live import live
from support.ports import free_port
from support.tiny_models import tiny_llama

from halogend.cli import flash_arguments, flash_server
from halogend.cli.main import main as halogend
from halogend.config.canonical import canonical
from halogend.config.flash_flags import FLAGS, FlagDocument

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/flash-server.md"
PROGRAM = ("-c", "import sys; from halogend.cli.flash_server import main; sys.exit(main())")


@pytest.fixture
def tiny(tmp_path):
    return str(tiny_llama(tmp_path / "tiny.gguf").path)


def ended(tmp_path, *words, timeout=60):
    """A run that is expected to end by itself."""
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state")}
    command = [sys.executable, *PROGRAM, *words, "--admin", f"unix:{tmp_path}/halogend/admin.sock"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout, env=environ)


def test_the_program_is_installed_under_its_name():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["halogen-flash-server"].partition(":")
    assert getattr(importlib.import_module(module), name) is flash_server.main


def test_it_serves_answers_and_stops_with_0(tmp_path, tiny):
    port = free_port()
    flags = ["--model-path", tiny, "--port", str(port), "--max-concurrent-requests=4", "--engine_version", "0.15.2"]
    with live(tmp_path, "", port, (*PROGRAM, *flags, "--max-model-len", "256")) as server:
        server.until_serving()
        body = {"model": "tiny", "prompt": "alpha", "max_tokens": 4, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] <= 4
        too_long = httpx.post(f"{server.url}/v1/completions", json={**body, "max_tokens": 300}, timeout=60)
        assert too_long.status_code == 400
        status = server.status()
        assert status["source"] == "the command line"
        assert status["settled"]
        code, receipt = server.reload()
        assert (code, receipt["outcome"]) == (0, "unchanged")
        server.process.send_signal(signal.SIGHUP)
        assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200
        assert server.stop() == 0


def test_a_bad_flag_ends_it_with_78_and_all_problems(tmp_path, tiny):
    done = ended(tmp_path, "--model-path", tiny, "--top-p", "2", "--max-model-len", "99999999", "--mmap-threshold=1.5")
    assert done.returncode == 78
    said = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in said if line.startswith("--")] == [
        "--max-model-len",
        "--mmap-threshold",
        "--top-p",
    ]


def test_a_missing_file_and_a_limit_of_the_model_name_their_flags(tmp_path, tiny):
    gone = ended(tmp_path, "--model-path", f"{tmp_path}/gone.gguf")
    assert gone.returncode == 78
    assert "--model-path: HCK-1010: " in gone.stderr
    over = ended(tmp_path, "--model-path", tiny, "--max-model-len", "513")
    assert over.returncode == 78
    assert "--max-model-len: HCF-1202: `max_model_len` 513 is over the model's own limit of 512" in over.stderr


def test_a_busy_port_names_its_flag(tmp_path, tiny):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = ended(tmp_path, "--model-path", tiny, "--port", str(other.getsockname()[1]))
    assert done.returncode == 78
    assert "--port: HRT-1008: " in done.stderr


def test_print_shows_a_document_that_check_takes(tmp_path, tiny, capsys):
    assert flash_server.main(["--model-path", tiny, "--temperature", "0.2", "--port", "9000", "--print"]) == 0
    text = capsys.readouterr().out
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert halogend(["check", "--print", str(file)]) == 0
    assert capsys.readouterr().out == text
    assert "    temperature: 0.2\n" in text
    assert "  port: 9000\n" in text


def test_print_tells_every_problem_and_exits_with_1(tmp_path, capsys):
    words = ["--model-path", f"{tmp_path}/gone.gguf", "--port", "0", "--load-thread-num", "x", "--print"]
    assert flash_server.main(words) == 1
    captured = capsys.readouterr()
    assert [line.partition(":")[0] for line in captured.out.splitlines()] == ["--load-thread-num", "--port"]
    assert flash_server.main([*words[:2], "--print"]) == 1
    assert capsys.readouterr().out.startswith("--model-path: HCK-1010: ")


def test_a_file_is_served_as_by_run_and_its_faults_have_lines(tmp_path, tiny, capsys):
    file = tmp_path / "config.yaml"
    file.write_text(f"model: {tiny}\nmax_bach: 4\n")
    done = ended(tmp_path, "--config", str(file))
    assert done.returncode == 78
    assert f"{file}:2:1: HCF-1007: " in done.stderr
    assert flash_server.main(["--config", str(file), "--print"]) == 1
    capsys.readouterr()
    file.write_text(f"model: {tiny}\n")
    assert flash_server.main(["--config", str(file), "--print"]) == 0
    assert "max_batch: 64\n" in capsys.readouterr().out


def test_help_names_every_flag_that_is_suggested(capsys):
    with pytest.raises(SystemExit) as raised:
        flash_server.main(["--help"])
    assert raised.value.code == 0
    text = capsys.readouterr().out
    for word in set(flash_arguments.MEANT.values()):
        assert f"{word} " in text or f"{word}\n" in text


def test_the_page_has_every_flag_with_its_field():
    text = PAGE.read_text()
    for flag in FLAGS:
        assert f"| `{flag.spelled}` | `{flag.field}`" in text


def test_the_example_of_the_page_is_what_print_shows():
    """The page leaves lines out, written `# ...`; the others stand in the document in this order."""
    command, _, rest = PAGE.read_text().partition(" --print > ")
    words = shlex.split(command.splitlines()[-1])
    document = FlagDocument(flash_arguments.arguments(words[1:]).values)
    made = read(document.data).document
    assert made is not None
    shown = rest.partition("```yaml\n")[2].partition("```")[0].splitlines()
    wanted = [line for line in shown if line.strip() != "# ..."]
    assert len(wanted) > 8
    lines = iter(canonical(made).splitlines())
    assert [line for line in wanted if line not in lines] == []
