"""Every row of the table of exit statuses comes about, and the page for operators shows the table."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.live import document, live, until
from support.ports import free_port
from support.tiny_models import tiny_llama

from halogend import daemon
from halogend.api.addresses import UnixAddress
from halogend.api.admin import admin_app
from halogend.api.listener import Listener
from halogend.cli.main import main, to_the_end
from halogend.control.receipts import Milestone, Outcome, Receipts
from halogend.control.requests import RequestError
from halogend.control.source import StatedSource
from halogend.obs.exits import ROWS, Exit, table

ROOT = Path(__file__).parents[2]


class PlayedAdmin:
    """A daemon's side of the admin socket: every change ends so, whatever it was."""

    def __init__(self, outcome=Outcome.APPLIED, plan="unchanged", settled=True):
        self.receipts_held = Receipts()
        self.outcome = outcome
        self.plan_outcome = plan
        self.settled = settled

    def reload(self, trigger, actor, *, force=False):
        receipt = self.receipts_held.open(trigger, actor)
        receipt.outcome = self.outcome
        receipt.reach(Milestone.CLOSED, 0.0)
        return receipt

    def receipts(self):
        return self.receipts_held.all()

    def receipt(self, receipt_id):
        return self.receipts_held.get(receipt_id)

    async def plan(self, given):
        return {"outcome": self.plan_outcome}

    def hold(self, actor):
        return {"hold": {"by": actor, "since": 0.0}}

    def status(self):
        return {"settled": self.settled}

    def draining(self, model):
        if model != "chat":
            raise RequestError("nothing_drains", "Nothing drains.")
        return Drained()


class Drained:
    """What drained is gone."""

    async def closed(self):
        return None

    def view(self):
        return {"model": "chat", "generations": []}


@contextlib.asynccontextmanager
async def answering(folder, **how):
    """The address of an admin socket at which a PlayedAdmin answers."""
    listener = Listener(admin_app(PlayedAdmin(**how)), UnixAddress(folder / "admin.sock"))
    listener.bind()
    await listener.serve()
    try:
        yield f"unix:{folder}/admin.sock"
    finally:
        await listener.close(0)


ASKED = {
    ("reload", Exit.DONE): (["reload"], {"outcome": Outcome.UNCHANGED}),
    ("reload", Exit.REFUSED): (["reload"], {"outcome": Outcome.REJECTED}),
    ("reload", Exit.IN_PART): (["reload"], {"outcome": Outcome.PARTIALLY_APPLIED}),
    ("plan", Exit.DONE): (["plan", "--json"], {"plan": "unchanged"}),
    ("plan", Exit.REFUSED): (["plan", "--json"], {"plan": "rejected"}),
    ("plan", Exit.USAGE): (["plan", "--json"], {"plan": "changes"}),
    ("status", Exit.DONE): (["status", "--json"], {"settled": True}),
    ("status", Exit.REFUSED): (["status", "--json"], {"settled": False}),
    ("receipts", Exit.DONE): (["receipts"], {}),
    ("receipts", Exit.REFUSED): (["receipts", "r99"], {}),
    ("hold", Exit.DONE): (["hold", "--json"], {}),
    ("drain", Exit.DONE): (["drain", "chat"], {}),
    ("drain", Exit.REFUSED): (["drain", "other"], {}),
}


@pytest.mark.parametrize(("command", "status"), ASKED)
async def test_what_a_daemon_answers(command, status, tmp_path, capsys):
    words, how = ASKED[command, status]
    async with answering(tmp_path, **how) as address:
        assert await asyncio.to_thread(main, [*words, "--admin", address]) == status


async def test_l12_a_reload_tells_its_receipt_before_it_waits(tmp_path, capsys):
    async with answering(tmp_path, outcome=Outcome.APPLIED) as address:
        assert await asyncio.to_thread(main, ["reload", "--json", "--admin", address]) == Exit.DONE
    said = capsys.readouterr()
    assert said.err == "receipt r1: waiting until it is serving\n"
    assert '"id": "r1"' in said.out


@pytest.mark.parametrize("command", ["reload", "plan", "hold", "status", "receipts"])
def test_where_no_daemon_answers(command, tmp_path, capsys):
    assert main([command, "--admin", f"unix:{tmp_path}/nobody.sock"]) == Exit.REFUSED
    assert "no daemon answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "text"), [(Exit.DONE, "model: /a.gguf\n"), (Exit.REFUSED, "model: 1\n"), (Exit.USAGE, None)]
)
def test_check(status, text, tmp_path, capsys):
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text)
    assert main(["check", "--offline", str(path)]) == status


@pytest.mark.parametrize(("status", "code"), [(Exit.DONE, "HCF-1007"), (Exit.REFUSED, "HCF-9999")])
def test_explain(status, code, capsys):
    assert main(["explain", code]) == status


@pytest.mark.parametrize("words", [["status", "--wrong"], ["run", "--wrong"], ["nonsense"], []])
def test_a_wrong_command_line(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == Exit.USAGE


def test_an_interrupt():
    def interrupted():
        raise KeyboardInterrupt

    assert to_the_end(interrupted) == Exit.INTERRUPTED


def test_l12_whoever_stops_waiting_is_told_that_the_change_goes_on(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("halogend.cli.admin.ask", interrupted)
    assert to_the_end(lambda: main(["reload", "--admin", f"unix:{tmp_path}/admin.sock"])) == Exit.INTERRUPTED
    assert "`halogend receipts` says how it ends" in capsys.readouterr().err


def test_a_reader_that_left():
    command = [sys.executable, "-m", "halogend", "explain"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.close()
    assert process.wait(60) == Exit.BROKEN_PIPE


# --- the daemon ---------------------------------------------------------------------------------------


def _empty(port):
    return yaml.safe_dump({"apiVersion": "halogen.dev/v1alpha1", "server": {"port": port}, "allow_empty": True})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_order(number, tmp_path):
    with live(tmp_path, _empty(free_port()), 0) as running:
        socket_file = Path(running.admin.removeprefix("unix:"))
        until(socket_file.exists, "it runs")
        running.process.send_signal(number)
        assert running.process.wait(60) == Exit.DONE


def test_a_refused_document(tmp_path):
    with live(tmp_path, "models: [", 0) as running:
        assert running.process.wait(60) == Exit.BAD_DOCUMENT
        assert "config.yaml:1:" in running.log.read_text()


def test_an_address_that_cannot_be_had(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as busy, live(tmp_path, _empty(busy.getsockname()[1]), 0) as running:
        assert running.process.wait(60) == Exit.BAD_DOCUMENT
        assert "HRT-1008" in running.log.read_text()


def test_a_door_for_pushed_documents_that_cannot_be_had(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as busy,
        socket.socket(socket.AF_UNIX) as admin,
    ):
        (tmp_path / "halogend").mkdir()
        admin.bind(str(tmp_path / "halogend/admin.sock"))
        admin.listen()
        words = ["-m", "halogend", "run", "--config", f"{tmp_path}/config.yaml", "--source", "push"]
        with live(tmp_path, _empty(busy.getsockname()[1]), 0, words) as running:
            assert running.process.wait(60) == Exit.NOTHING_SERVES
            assert "there is no listener" in running.log.read_text()


def test_nothing_that_can_be_loaded(tmp_path):
    tiny_llama(tmp_path / "a.gguf")
    template = tmp_path / "bad.jinja"
    template.write_text("{% for %}")
    port = free_port()
    model = {"name": "x", "model": f"{tmp_path}/a.gguf", "chat_template": str(template)}
    with live(tmp_path, document(port, model), port) as running:
        assert running.process.wait(60) == Exit.NOTHING_SERVES
        assert "HRT-1006" in running.log.read_text()


async def test_a_fault_of_its_own(tmp_path, capfd):
    def parse(*_):
        raise RuntimeError("a bug")

    options = daemon.Options(StatedSource("stated", b"", parse), f"unix:{tmp_path}/admin.sock", os.environ)
    assert await daemon.run(options) == Exit.FAULT
    assert "a bug" in capfd.readouterr().err


# --- the page -----------------------------------------------------------------------------------------


def test_the_page_for_operators_shows_the_table():
    assert "\n".join(table()) in (ROOT / "docs/operations.md").read_text(), "\n".join(table())


def test_every_row_has_its_test_above():
    """A row that is added to the table fails here until it is brought about."""
    brought = {*ASKED, ("hold", Exit.REFUSED), ("check", Exit.DONE), ("check", Exit.REFUSED), ("check", Exit.USAGE)}
    brought |= {("explain", Exit.DONE), ("explain", Exit.REFUSED)}
    brought |= {("ui", Exit.DONE), ("ui", Exit.REFUSED)}  # in test_ui.py
    brought |= {("any", status) for status in (Exit.USAGE, Exit.INTERRUPTED, Exit.BROKEN_PIPE)}
    daemons = (Exit.DONE, Exit.USAGE, Exit.NOTHING_SERVES, Exit.FAULT, Exit.BAD_DOCUMENT)
    brought |= {("daemon", status) for status in daemons}
    assert {(row.command, row.status) for row in ROWS} == brought
