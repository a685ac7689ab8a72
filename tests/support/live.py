"""A real daemon in a process of its own, for tests that look at it from outside."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from halogend.cli.main import main

API_VERSION = "halogen.dev/v1alpha1"
PATIENCE_S = 60.0


def document(port: int, *models: dict[str, Any], **top: Any) -> str:
    """Without a spare worker, where nothing is said of one: importing torch takes a core from what is looked at."""
    server = {"port": port, **top.pop("server", {})}
    reload = {"spare_worker": "off", **top.pop("reload", {})}
    whole = {"apiVersion": API_VERSION, "server": server, "reload": reload, "models": list(models), **top}
    return yaml.safe_dump(whole, sort_keys=False)


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Looks until the condition gives something true, and returns that."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise TimeoutError(f"{what}: not within {patience_s:g} s")


def alive(pid: int) -> bool:
    """A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def pss_bytes(pid: int) -> int:
    """Proportional share of memory of a process and all that came from it."""
    total = 0
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total


def _run(*arguments: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of `halogend`, run here: to start a Python for it takes longer
    than what it does, and slows down what is waited for."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


class Live:
    """`write` edits the document; `reload` asks and returns (exit status, receipt). `words` is another
    command line than `halogend run`, without `--admin`."""

    def __init__(self, folder: Path, text: str, port: int, words: Sequence[str] = ()) -> None:
        self.folder = folder
        self.config = folder / "config.yaml"
        self.config.write_text(text)
        self.url = f"http://127.0.0.1:{port}"
        self.admin = f"unix:{folder}/halogend/admin.sock"
        self.log = folder / "daemon.log"
        environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "STATE_DIRECTORY": str(folder / "state")}
        words = words or ("-m", "halogend", "run", "--config", str(self.config))
        command = [sys.executable, *words, "--admin", self.admin]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        self.pid = self.process.pid

    def until_serving(self, patience_s: float = PATIENCE_S) -> Live:
        def ready() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log.read_text()}")
            try:
                return httpx.get(f"{self.url}/readyz").status_code == 200
            except httpx.TransportError:
                return False

        try:
            until(ready, "serving", patience_s)
        except TimeoutError as error:
            raise AssertionError(self.log.read_text()) from error
        return self

    def write(self, text: str) -> None:
        """As an editor does: beside, then renamed over."""
        beside = self.folder / ".config.new"
        beside.write_text(text)
        beside.rename(self.config)

    def command(self, *arguments: str) -> tuple[int, Any]:
        """A `halogend` command against this daemon; JSON output, parsed."""
        status, said, complained = _run(*arguments, "--json", "--admin", self.admin)
        if not said:
            raise AssertionError(f"{arguments} said nothing: {complained}\n{self.log.read_text()}")
        return status, json.loads(said)

    def reload(self, wait: str = "serving") -> tuple[int, dict[str, Any]]:
        return self.command("reload", "--wait", wait)

    def check(self) -> tuple[int, str]:
        """(exit status, output) of `halogend check` on this daemon's document."""
        return _run("check", str(self.config))[:2]

    def status(self) -> dict[str, Any]:
        return dict(self.command("status")[1])

    def receipts(self) -> list[dict[str, Any]]:
        """Newest first."""
        return list(self.command("receipts")[1]["receipts"])

    def pids(self, model: str, role: str = "serving") -> dict[str, int]:
        return dict(self.status()["models"][model][role]["pids"])

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)


@contextlib.contextmanager
def live(folder: Path, text: str, port: int, words: Sequence[str] = ()) -> Iterator[Live]:
    daemon = Live(folder, text, port, words)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.terminate()
            try:
                daemon.process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                daemon.process.wait()
