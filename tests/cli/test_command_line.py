"""What no command line may say, whichever command it is for, and a daemon that is told to end while it starts."""

import os
import signal
import subprocess
import sys

import pytest

from halogend.cli.admin import address, own_socket
from halogend.cli.flash_arguments import arguments
from halogend.cli.main import main, parser

FORMS = "unix:/absolute/path"
CLIENTS = (["status"], ["receipts"], ["reload"], ["rollback"], ["hold"], ["resume"], ["drain", "chat"], ["ui"])
# A program whose second word is the module at whose import it gets SIGTERM; the other words are its own.
TOLD_AT = """
import os, signal, sys

class Trigger:
    def find_spec(self, name, *where):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGTERM)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Trigger())
from halogend.cli.{module} import main
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No daemon is found, and a file made in the working directory is seen."""
    monkeypatch.delenv("HALOGEN_ADMIN", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def refused(capsys, call, words):
    """The exit status and what was said of a usage error."""
    with pytest.raises(SystemExit) as raised:
        call(words)
    captured = capsys.readouterr()
    assert captured.out == ""
    return raised.value.code, captured.err.splitlines()[-1]


@pytest.mark.parametrize(
    "given", ["", "nonsense", "unix:relative", "unix:", "relative/admin.sock", "host:0", "/a.sock"]
)
@pytest.mark.parametrize("command", [["run"], *CLIENTS], ids=" ".join)
def test_an_admin_address_that_is_none_is_refused_with_the_forms(command, given, capsys):
    status, said = refused(capsys, main, [*command, "--admin", given])
    assert status == 2
    assert "argument --admin: must be " in said
    assert FORMS in said


@pytest.mark.parametrize("given", ["nonsense", "unix:relative"])
@pytest.mark.parametrize("command", [["run"], *CLIENTS], ids=" ".join)
def test_an_address_in_the_environment_is_judged_alike(command, given, capsys, monkeypatch):
    monkeypatch.setenv("HALOGEN_ADMIN", given)
    status, said = refused(capsys, main, command)
    assert status == 2
    assert "argument --admin: HALOGEN_ADMIN must be " in said
    assert FORMS in said


def test_plan_keeps_its_own_status_for_a_wrong_address(capsys):
    assert refused(capsys, main, ["plan", "--admin", "nonsense"])[0] == 1


@pytest.mark.parametrize("given", ["", "nonsense", "unix:relative"])
def test_the_flash_server_refuses_the_same_addresses(given, capsys):
    status, said = refused(capsys, arguments, ["--model-path", "/a.gguf", "--admin", given])
    assert status == 2
    assert FORMS in said


def test_a_daemon_is_not_told_by_a_flag_to_listen_on_tcp(capsys):
    status, said = refused(capsys, main, ["run", "--admin", "127.0.0.1:9443"])
    assert status == 2
    assert "host:port stands in the document" in said


@pytest.mark.parametrize("named", ["", "127.0.0.1:9443", "[::1]:9443"])
def test_where_commands_look_on_tcp_a_daemon_keeps_its_own_socket(named, monkeypatch):
    monkeypatch.setenv("HALOGEN_ADMIN", named)
    assert parser().parse_args(["run"]).admin is None
    assert parser().parse_args(["status"]).admin == (named or None)


@pytest.mark.parametrize(
    ("made", "expected"),
    [("/run/o", "unix:/run/o/admin.sock"), ("/run/a:/run/b", "unix:/run/a/admin.sock"), ("", None), ("a", None)],
)
def test_a_daemon_and_its_commands_meet_in_the_directory_of_the_service(made, expected, monkeypatch):
    usual = own_socket(parser().parse_args(["run"]))
    monkeypatch.setenv("RUNTIME_DIRECTORY", made)
    assert own_socket(parser().parse_args(["run"])) == (expected or usual)
    assert address(parser().parse_args(["reload"])).address == (expected or usual)
    monkeypatch.setenv("HALOGEN_ADMIN", "unix:/a.sock")
    assert own_socket(parser().parse_args(["run"])) == "unix:/a.sock"


def test_a_flag_wins_over_the_environment_however_wrong_that_is(monkeypatch):
    monkeypatch.setenv("HALOGEN_ADMIN", "nonsense")
    assert parser().parse_args(["run", "--admin", "unix:/a.sock"]).admin == "unix:/a.sock"


@pytest.mark.parametrize(("words", "seconds"), [([], 30), (["90"], 90), (["0"], 0), (["document"], None)])
def test_how_long_a_stop_may_take(words, seconds):
    assert parser().parse_args(["run", *(["--stop-drain", *words] if words else [])]).stop_drain == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", "86401", "²", ""])
def test_no_other_word_says_how_long_a_stop_may_take(text, capsys):
    status, said = refused(capsys, main, ["run", f"--stop-drain={text}"])
    assert status == 2
    assert "the word document" in said


@pytest.mark.parametrize(
    ("call", "words", "status"),
    [
        (main, ["run", "--config", ""], 2),
        (main, ["run", "--config="], 2),
        (main, ["run", "--state", ""], 2),
        (main, ["check", ""], 2),
        (main, ["plan", ""], 1),
        (main, ["reload", "--admin-key-file", ""], 2),
        (main, ["reload", "--admin-ca", ""], 2),
        (arguments, ["--config", ""], 2),
        (arguments, ["--model-path", "/a", "--state", ""], 2),
    ],
)
def test_an_empty_name_is_not_the_working_directory(call, words, status, capsys):
    assert refused(capsys, call, words)[0] == status


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config", "/a", "--config", "/b"], "--config stands 2 times"),
        (["--config=/a", "--config", "/a"], "--config stands 2 times"),
        (["--config", "/a", "--admin", "unix:/a", "--admin=unix:/b", "--admin=unix:/c"], "--admin stands 3 times"),
        (["--config", "/a", "--print", "--print"], "--print stands 2 times"),
        (["--config", "/a", "--state", "/s", "--state", "/t"], "--state stands 2 times"),
        (["--config", "/a", "--log-level", "info", "--log_level=debug"], "--log-level stands 2 times"),
        (["--config", "/a", "--resume", "--resume"], "--resume stands 2 times"),
        (["--selftest", "--selftest"], "--selftest stands 2 times"),
    ],
)
def test_every_flag_of_the_flash_server_stands_once(words, said, capsys):
    status, error = refused(capsys, arguments, words)
    assert status == 2
    assert said in error


def ended(module, at, *words):
    """The exit status of a program that gets SIGTERM at the import of `at`."""
    command = [sys.executable, "-c", TOLD_AT.format(module=module), at, *words]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60, env=dict(os.environ))
    assert done.stdout == b""
    return done.returncode, done.stderr


@pytest.mark.parametrize("at", ["halogend.cli.run", "halogend.daemon", "halogend.control.reconciler", "structlog"])
def test_run_ends_with_0_when_it_is_told_so_while_it_starts(at):
    assert ended("main", at, "run", "--config", "/no/such.yaml") == (0, b"")


@pytest.mark.parametrize("at", ["halogend.cli.flash_arguments", "halogend.config.schema", "halogend.daemon"])
def test_the_flash_server_ends_with_0_when_it_is_told_so_while_it_starts(at):
    assert ended("flash_server", at, "--config", "/no/such.yaml") == (0, b"")


def test_a_command_that_was_killed_does_not_say_that_it_is_done():
    told = -signal.SIGTERM, b""
    assert ended("main", "halogend.config.parse", "check", "--offline", "/no/such.yaml") == told
    assert ended("flash_server", "halogend.config.schema", "--config", "/no/such.yaml", "--print") == told
