"""What runs inside the box, under a real systemd: `test_units.py` starts each of these in a box of its own."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest
from support.box import DEPLOY, Service, folder_of_this_box, journal, run, systemctl
from support.live import alive, descendants, until
from support.tiny_models import tiny_llama

from halogend.obs.exits import Exit

NO_SPARE = 'reload: {spare_worker: "off"}\n'  # an engine that is started is one that loads


@pytest.fixture
def service():
    """Installed, with a document, not started."""
    models = folder_of_this_box() / "models"
    models.mkdir(exist_ok=True)
    tiny_llama(models / "a.gguf", layers=2, context=4096)
    made = Service(models / "a.gguf")
    made.write()
    for path in (models, models.parent):
        path.chmod(0o755)
    return made


@pytest.fixture
def started(service):
    done = service.start()
    assert done.returncode == 0, service.status() + journal()
    return service


# Long enough for a restart that must not come: RestartSec is shortened to a tenth of a second for these.
NO_RESTART = "[Service]\nRestartSec=100ms\n"
LONG_S = 2.0


def _still(service, state):
    """The service is in this state and stays there."""
    service.until(lambda: service.state() == state, f"it is {state}")
    ended = time.monotonic() + LONG_S
    while time.monotonic() < ended:
        assert service.state() == state, service.status() + journal()


def test_short(started):
    """Start, a good edit, a bad one, stop."""
    assert started.state() == "active/running"
    assert started.show("StatusText")["StatusText"] == "serving x"
    assert started.answers()
    started.write(max_batch=7)
    assert started.reload().returncode == 0
    started.write(max_batch="many")
    assert started.reload().returncode != 0
    assert "HCF-" in started.show("StatusText")["StatusText"]
    assert started.state() == "active/running"
    assert started.answers()
    children = descendants(started.pid())
    assert len(children) in (2, 3)  # an engine process may stand by
    for pid in children:
        given = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PATH=" in given
        assert not [name for name in (b"NOTIFY_SOCKET", b"WATCHDOG_", b"LISTEN_") if name in given]
    assert started.stop().returncode == 0
    assert started.show("ActiveState", "Result", "ExecMainStatus") == {
        "ActiveState": "inactive",
        "Result": "success",
        "ExecMainStatus": "0",
    }
    assert not [pid for pid in children if alive(pid)]
    assert not Path("/run/halogend/admin.sock").exists()


# --- reloads ----------------------------------------------------------------------------------------


def test_reloads(started):
    """Good, bad, bad twice, good."""
    daemon = started.pid()
    other = started.model.with_name("b.gguf")
    shutil.copy(started.model, other)
    started.write(model=str(other))
    assert started.reload().returncode == 0, journal()
    assert started.show("StatusText")["StatusText"] == "serving x"
    first = started.pids()
    for _ in range(2):
        started.write(model="/srv/nothing.gguf", max_btach=1)
        refused = started.reload()
        assert refused.returncode != 0
        assert "Job for halogend.service failed" in refused.stderr
        said = started.status()
        assert "Active: active (running)" in said
        reason = "last edit (r"
        assert reason in said, said
        assert "/etc/halogen/config.yaml:" in said
        assert "max_btach" in said
        assert "max_btach" in started.show("StatusText")["StatusText"]
        assert "rejected" in journal()
        assert started.pids() == first
        assert started.answers()
    started.write(model=str(other), max_batch=9)
    assert started.reload().returncode == 0
    assert started.show("StatusText")["StatusText"] == "serving x"
    assert (started.pid(), started.show("NRestarts")["NRestarts"]) == (daemon, "0")
    assert started.pids() == first


def test_hangup(started):
    """RELOADING and READY around a reload that systemd hears of: good, bad, and a failed load."""
    daemon = started.pid()
    other = started.model.with_name("b.gguf")
    shutil.copy(started.model, other)
    started.write(model=str(other))
    os.kill(daemon, signal.SIGHUP)
    started.until(lambda: started.state() == "reloading/reload", "systemd knows of the reload")
    started.until(lambda: started.state() == "active/running", "and of its end")
    assert started.show("StatusText")["StatusText"] == "serving x"
    started.write_text("models: [")
    os.kill(daemon, signal.SIGHUP)
    started.until(lambda: "rejected" in started.show("StatusText")["StatusText"], "its end is told")
    assert started.state() == "active/running"
    template = started.model.with_name("bad.jinja")
    template.write_text("{% for %}")
    started.write(chat_template=str(template))
    os.kill(daemon, signal.SIGHUP)
    started.until(lambda: "HRT-1006" in started.show("StatusText")["StatusText"], "its end is told")
    started.until(lambda: started.state() == "active/running", "systemd knows of the end")
    assert started.pid() == daemon


def test_reload_slow(service):
    """A reload is not timed either while its load is under way: systemd would end the command that waits."""
    service.drop_in("[Service]\nTimeoutStartSec=12s\n")
    service.write_text(NO_SPARE + service.text())
    assert service.start().returncode == 0, journal()
    old, began = set(descendants(service.pid())), time.monotonic()
    other = service.model.with_name("b.gguf")
    shutil.copy(service.model, other)
    service.write_text(NO_SPARE + service.text(model=str(other)))
    waiting = threading.Thread(target=lambda: results.append(service.reload()))
    results = []
    waiting.start()
    engine = service.until(lambda: _loading(service, old), "an engine loads")
    os.kill(engine, signal.SIGSTOP)
    service.until(lambda: time.monotonic() > began + 15, "it takes its time")
    assert service.state() == "reloading/reload", journal()
    os.kill(engine, signal.SIGCONT)
    waiting.join()
    assert results[0].returncode == 0, journal()
    assert service.state() == "active/running"


# --- secrets ----------------------------------------------------------------------------------------


def test_credential(service):
    """A key that only root can read, handed over by systemd."""
    secret = Path("/etc/halogen/team-a")
    secret.write_text("sesame-open-1234567890\n")
    secret.chmod(0o600)
    service.drop_in(f"[Service]\nLoadCredential=team-a:{secret}\n")
    keys = "server: {auth: {keys: [{name: team-a, file: '${CREDENTIALS_DIRECTORY}/team-a', scopes: [infer]}]}}\n"
    service.write_text(service.text().replace("models:", keys + "models:"))
    assert service.start().returncode == 0, journal()
    asked = {"model": "x", "prompt": "a", "max_tokens": 1}
    for headers, status in (({}, 401), ({"Authorization": "Bearer sesame-open-1234567890"}, 200)):
        answer = httpx.post(f"{service.url}/v1/completions", json=asked, headers=headers, timeout=60)
        assert answer.status_code == status


# --- deaths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_engine(started, number):
    """S1, S10: systemd notices nothing: the daemon starts the engine again."""
    daemon, old = started.pid(), started.pids()
    os.kill(old["engine"], number)
    started.until(lambda: started.pids().get("engine", old["engine"]) != old["engine"], "a new engine serves")
    assert started.answers()
    assert (started.pid(), started.show("NRestarts")["NRestarts"]) == (daemon, "0")
    assert started.state() == "active/running"
    assert "engine_died" in journal()
    reason = "is stopped by a signal" if number == signal.SIGSTOP else "was ended by SIGKILL"
    assert reason in journal()
    assert not alive(old["engine"])
    assert started.stop().returncode == 0
    assert started.show("Result")["Result"] == "success"


def test_life(service):
    """One service from its start to its stop: reloads that are good, bad, bad again and good, an engine that is
    killed and one that is stopped; states, exit statuses and the journal as operations.md has them."""
    assert service.start().returncode == 0, journal()
    daemon, other = service.pid(), service.model.with_name("b.gguf")
    shutil.copy(service.model, other)
    assert [_field(each, "trigger", "outcome") for each in _ended()] == [("start", "applied")]

    service.write(model=str(other))
    assert service.reload().returncode == 0, journal()
    assert _is_applied(), _last_reload()
    assert _standing(service) == ("active/running", "success", "0", "serving x")
    serving = service.pids()

    for wrong in ({"max_btach": 1}, {"max_btach": 1}, {"max_batch": "many"}):
        service.write(model=str(other), **wrong)
        assert service.reload().returncode != 0
        assert _field(_ended()[-1], "trigger", "outcome", "level") == ("api", "rejected", "error")
        state, result, restarts, text = _standing(service)
        assert (state, result, restarts) == ("active/running", "success", "0")
        assert text.startswith("serving x; last edit (r")
        assert f"rejected: /etc/halogen/config.yaml:{_line_of(service, *wrong)}:" in text
        assert next(iter(wrong)) in service.status()
        assert service.pids() == serving
        assert service.answers()

    service.write(model=str(other), max_batch=9)
    assert service.reload().returncode == 0
    assert _is_applied(), _last_reload()
    assert _standing(service) == ("active/running", "success", "0", "serving x")
    assert service.pids() == serving

    for number, reason in ((signal.SIGKILL, "was ended by SIGKILL"), (signal.SIGSTOP, "is stopped by a signal")):
        os.kill(serving["engine"], number)
        service.until(
            lambda old=serving["engine"]: service.pids().get("engine") not in (None, old), "another engine serves"
        )
        assert not alive(serving["engine"])
        died = [each for each in _events("engine_died") if reason in each["reason"]]
        assert [_field(each, "model", "level") for each in died] == [("x", "error")]
        assert service.answers()
        service.until(lambda: _standing(service) == ("active/running", "success", "0", "serving x"), "it is told")
        assert service.pid() == daemon
        serving = service.pids()

    children = descendants(daemon)
    assert service.stop().returncode == 0
    found = service.show("ActiveState", "SubState", "Result", "ExecMainStatus", "NRestarts")
    assert found == {
        "ActiveState": "inactive",
        "SubState": "dead",
        "Result": "success",
        "ExecMainStatus": "0",
        "NRestarts": "0",
    }
    assert not [pid for pid in children if alive(pid)]
    assert _events("stopped"), journal()
    assert not [line for line in journal().splitlines() if "Traceback" in line]


def _events(name):
    """Of the daemon's own lines."""
    lines = [line for line in journal().splitlines() if line.startswith("{")]
    return [said for line in lines if (said := json.loads(line)).get("event") == name]


def _ended():
    return _events("reload_ended")


def _last_reload():
    """What the journal has of the newest revision, as (trigger, outcome, level): of the reload, and of the file where
    the edit was seen there as well."""
    ended = _ended()
    newest = [each for each in ended if each["revision"] == ended[-1]["revision"] and each["trigger"] != "start"]
    return {_field(each, "trigger", "outcome", "level") for each in newest}


def _is_applied():
    """By one of them; for the other it is that too, or unchanged by then."""
    outcomes = {outcome for _, outcome, level in _last_reload() if level == "info"}
    return "applied" in outcomes and outcomes <= {"applied", "unchanged"}


def _field(said, *names):
    return tuple(said[name] for name in names)


def _standing(service):
    found = service.show("Result", "NRestarts", "StatusText")
    return service.state(), found["Result"], found["NRestarts"], found["StatusText"]


def _line_of(service, field):
    lines = service.document.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if field in line)


def test_daemon_killed(started):
    """S12: systemd starts it again, and none of its processes is left over."""
    daemon = started.pid()
    children = descendants(daemon)
    os.kill(daemon, signal.SIGKILL)
    started.until(lambda: started.pid() not in (0, daemon), "it is started again")
    started.until(lambda: started.state() == "active/running", "it serves again")
    assert started.show("NRestarts")["NRestarts"] == "1"
    assert not [pid for pid in children if alive(pid)]
    assert started.answers()


def test_daemon_stuck(service):
    """A loop that does not turn starves the watchdog."""
    service.drop_in("[Service]\nWatchdogSec=4s\nTimeoutAbortSec=1s\n")
    assert service.start().returncode == 0
    daemon = service.pid()
    _still(service, "active/running")
    os.kill(daemon, signal.SIGSTOP)
    service.until(lambda: service.pid() not in (0, daemon), "it is started again")
    assert "Watchdog timeout" in journal()
    service.until(lambda: service.state() == "active/running", "it serves again")


# --- starts -----------------------------------------------------------------------------------------


def _fails_for_good(service, status, *reasons):
    service.drop_in(NO_RESTART)
    assert service.start().returncode != 0
    _still(service, "failed/failed")
    found = service.show("Result", "NRestarts", "ExecMainStatus", "StatusText")
    assert (found["Result"], found["NRestarts"], found["ExecMainStatus"]) == ("exit-code", "0", str(int(status)))
    for reason in reasons:
        assert reason in found["StatusText"]
        assert reason in service.status()


def test_start_bad(service):
    service.write(max_btach=1)
    _fails_for_good(service, Exit.BAD_DOCUMENT, "/etc/halogen/config.yaml:", "max_btach")
    service.write()
    assert service.start().returncode == 0, "it starts once the document is right"


def test_start_oversize(service):
    """S7: read from the checkpoint, refused before anything is loaded, and not tried again for ever."""
    service.write_text(
        service.text().replace("models:", "devices:\n- {id: 'cpu:0', memory: 64MiB, reserve: 63MiB}\nmodels:")
    )
    _fails_for_good(service, Exit.BAD_DOCUMENT, "HCF-1203")


def test_start_unloadable(service):
    template = service.model.with_name("bad.jinja")
    template.write_text("{% for %}")
    service.write(chat_template=str(template))
    _fails_for_good(service, Exit.NOTHING_SERVES, "HRT-1006")


def test_start_slow(service):
    """S6: a load is not timed: it may take longer than TimeoutStartSec."""
    service.drop_in("[Service]\nTimeoutStartSec=12s\n")
    systemctl("start", "--no-block", service.name)
    began = time.monotonic()
    engine = service.until(lambda: _loading(service), "an engine loads")
    service.until(lambda: "loading x" in service.show("StatusText")["StatusText"], "the status says so")
    os.kill(engine, signal.SIGSTOP)
    service.until(lambda: time.monotonic() > began + 15, "it takes its time")
    assert service.state() == "activating/start", journal()
    os.kill(engine, signal.SIGCONT)
    service.until(lambda: service.state() == "active/running", "it serves")
    assert service.show("NRestarts")["NRestarts"] == "0"


def test_start_stopped(service):
    """S4: a stop during the first load is no failure."""
    systemctl("start", "--no-block", service.name)
    service.until(lambda: _loading(service), "an engine loads")
    assert service.stop().returncode == 0
    found = service.show("ActiveState", "Result", "ExecMainStatus")
    assert found == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}


def _loading(service, old=()):
    """The pid of an engine, once one was started that is not among the old ones."""
    for pid in set(descendants(service.pid() or os.getpid())).difference(old):
        with contextlib.suppress(OSError):
            if b"halogend.engine" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return 0


# --- socket activation --------------------------------------------------------------------------------


def test_socket(service):
    """The first connection starts it, a restart refuses none, and another port is a named problem."""
    assert systemctl("start", "halogend.socket").returncode == 0
    assert service.state() == "inactive/dead"
    assert service.answers()
    service.until(lambda: service.state() == "active/running", "systemd knows that it serves")
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller()) for _ in range(8)]
        for _ in range(3):
            for caller in callers:
                caller.until_answered(caller.answered + 5)
            assert systemctl("restart", service.name).returncode == 0
        for caller in callers:
            caller.until_answered(caller.answered + 5)
    assert [failed for caller in callers for failed in caller.failed] == []
    assert service.show("NRestarts")["NRestarts"] == "0"
    text = service.text()
    service.write_text(text.replace("models:", "server: {port: 8001}\nmodels:"))
    assert service.reload().returncode != 0
    assert "127.0.0.1:8001: the service manager listens at 127.0.0.1:8000" in service.status(), service.status()
    assert service.answers()
    service.write()
    assert systemctl("stop", "halogend.socket", service.name).returncode == 0
    assert not service.answers()


def test_socket_bad(service):
    """A document that is refused does not make waiting connections start the daemon for ever."""
    service.write(max_btach=1)
    service.drop_in(NO_RESTART)
    assert systemctl("start", "halogend.socket").returncode == 0
    assert not service.answers()
    service.until(lambda: socket_state() == "failed", "systemd gives up")
    _still(service, "failed/failed")
    assert "max_btach" in service.show("StatusText")["StatusText"]
    assert 1 <= journal().count('"event": "reload_ended"') <= 5
    service.write()
    assert systemctl("reset-failed", service.name).returncode == 0
    assert systemctl("start", "halogend.socket").returncode == 0
    assert service.answers()


def socket_state():
    return systemctl("show", "halogend.socket", "--property=ActiveState").stdout.strip().partition("=")[2]


class Caller:
    """Asks for a completion over a connection of its own, one after the other, in a thread."""

    def __init__(self):
        self.answered = 0
        self.failed = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def until_answered(self, count):
        until(lambda: self.answered >= count or self.failed, f"{count} answers")

    def _call(self):
        body = json.dumps({"model": "x", "prompt": "a", "max_tokens": 1})
        while not self._ends.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
            try:
                connection.request("POST", "/v1/completions", body)
                answer = connection.getresponse()
                said = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                return
            finally:
                connection.close()
            if answer.status == 200:
                self.answered += 1
            else:
                self.failed.append(said)


# --- what systemd says of the files -------------------------------------------------------------------


def test_files():
    """As shipped, without what the box adds; the drop-ins too, where this systemd knows what they ask for."""
    shipped = folder_of_this_box() / "shipped"
    drop_ins = shipped / "halogend.service.d"
    drop_ins.mkdir(parents=True)
    units = [shutil.copy(DEPLOY / name, shipped) for name in ("halogend.service", "halogend.socket")]
    _verify(*units)
    for name in ("gpu", *(("notify-reload",) if _systemd() >= 253 else ())):
        shutil.copy(DEPLOY / f"halogend-{name}.conf", drop_ins)
        _verify(*units)
    shutil.rmtree(drop_ins)
    judged = run("systemd-analyze", "security", "--offline=true", "--threshold=20", units[0])
    assert judged.returncode == 0, judged.stdout
    assert " OK " in judged.stdout.splitlines()[-1]


def _verify(*units):
    verified = run("systemd-analyze", "verify", "--man=no", *(str(unit) for unit in units))
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def _systemd():
    """Its version, as a number."""
    return int(run("systemctl", "--version").stdout.split()[1])


def test_notify_reload(service):
    """With the drop-in a reload is a signal: over when the daemon says so, and 0 even where it was refused."""
    if _systemd() < 253:
        pytest.skip("this systemd does not know Type=notify-reload")
    service.drop_in((DEPLOY / "halogend-notify-reload.conf").read_text())
    assert service.start().returncode == 0
    service.write(max_batch=7)
    assert service.reload().returncode == 0
    assert service.show("StatusText")["StatusText"] == "serving x"
    service.write(max_btach=7)
    assert service.reload().returncode == 0
    assert "max_btach" in service.show("StatusText")["StatusText"]
