"""A real systemd in a box (tools/systemd-box.sh): the way in from a test, and what a test sees inside.

`run_in_box` starts pytest under that systemd with this repository's units; a `Service` is what the
scenarios there handle.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml
from support.live import API_VERSION, PATIENCE_S, until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BOX = ROOT / "tools/systemd-box.sh"
CANNOT = 125  # the box's own exit status where a machine cannot have one
_VENV = Path(sys.prefix)
_HOMES = (Path("/root"), Path("/home"))


class CannotError(Exception):
    """This machine can have no box; says why."""


def run_in_box(folder: Path, scenario: str, limit_s: int) -> str:
    """Runs the function `scenario` of `scenarios.py`; returns what pytest said, raises AssertionError with it
    where it failed, and CannotError where there is no box."""
    units = folder / "units"
    units.mkdir()
    for unit in DEPLOY.glob("halogend.*"):
        shutil.copy(unit, units)
    (units / "halogend.service.d").mkdir()
    (units / "halogend.service.d/here.conf").write_text(_drop_in(folder))
    script = folder / "script"
    tests = ROOT / "tests/systemd/scenarios.py"
    pytest = f"{sys.executable} -m pytest -q -rs -p no:randomly -p no:cacheprovider -m '' {tests}::{scenario}"
    script.write_text(f"#!/bin/sh\nln -s {_VENV} /opt/halogend\nexport BOX_FOLDER={folder}\nexec {pytest}\n")
    script.chmod(0o755)
    words = [BOX, units, script, str(limit_s)]
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True, timeout=limit_s + 30)
    if done.returncode == CANNOT:
        raise CannotError(done.stderr.strip())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _drop_in(folder: Path) -> str:
    """What an installation needs whose files lie where the service's user or its sandbox cannot look: the
    checkout, its environment, Python itself, and the models."""
    shown = {ROOT, _VENV, Path(sys.base_prefix), folder}
    closed = {parent for path in shown for parent in path.parents if not parent.stat().st_mode & 0o001}
    hidden = [path for path in closed if path not in _HOMES and not closed.intersection(path.parents)]
    lines = ["[Service]", "ProtectHome=tmpfs"]
    lines += [f"TemporaryFileSystem={path}:mode=0755,ro" for path in sorted(hidden)]
    lines += [f"BindReadOnlyPaths={path}" for path in sorted(shown)]
    return "\n".join(lines) + "\n"


# --- inside -----------------------------------------------------------------------------------------


def systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return run("systemctl", "--no-pager", *words)


def journal(unit: str = "halogend.service") -> str:
    run("journalctl", "--sync")
    return run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout


class Service:
    """halogend.service, its document and its listener. `model` is a path that the service can read."""

    name = "halogend.service"
    url = "http://127.0.0.1:8000"
    document = Path("/etc/halogen/config.yaml")

    def __init__(self, model: Path) -> None:
        self.model = model
        self.document.parent.mkdir(exist_ok=True)

    def write(self, **fields: Any) -> None:
        """One model, `x`; `fields` beside its path."""
        self.write_text(self.text(**fields))

    def text(self, **fields: Any) -> str:
        model = {"name": "x", "model": str(self.model), "precision": "fp32", **fields}
        return yaml.safe_dump({"apiVersion": API_VERSION, "models": [model]}, sort_keys=False)

    def write_text(self, text: str) -> None:
        beside = self.document.with_name(".new")
        beside.write_text(text)
        beside.chmod(0o644)
        beside.rename(self.document)

    def fragment(self) -> Path:
        """Where systemd has the unit from."""
        return Path(self.show("FragmentPath")["FragmentPath"])

    def drop_in(self, text: str) -> None:
        (self.fragment().parent / "halogend.service.d/test.conf").write_text(text)
        systemctl("daemon-reload")

    def start(self) -> subprocess.CompletedProcess[str]:
        return systemctl("start", self.name)

    def reload(self) -> subprocess.CompletedProcess[str]:
        return systemctl("reload", self.name)

    def stop(self) -> subprocess.CompletedProcess[str]:
        return systemctl("stop", self.name)

    def show(self, *properties: str) -> dict[str, str]:
        wanted = properties or ("ActiveState", "SubState", "Result", "NRestarts", "StatusText", "ExecMainStatus")
        lines = systemctl("show", self.name, f"--property={','.join(wanted)}").stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def state(self) -> str:
        """Such as `active/running`."""
        found = self.show("ActiveState", "SubState")
        return f"{found['ActiveState']}/{found['SubState']}"

    def status(self) -> str:
        """What a person sees."""
        return systemctl("status", "--full", "--lines=20", self.name).stdout

    def pid(self) -> int:
        return int(self.show("MainPID")["MainPID"])

    def pids(self) -> dict[str, int]:
        """Of the serving generation, by role."""
        with httpx.Client(transport=httpx.HTTPTransport(uds="/run/halogend/admin.sock")) as client:
            serving = client.get("http://admin/admin/v1/status").json()["models"]["x"]["serving"]
        return dict(serving["pids"]) if serving else {}

    def answers(self) -> bool:
        """Does a completion come?"""
        asked = {"model": "x", "prompt": "a", "max_tokens": 1}
        try:
            return httpx.post(f"{self.url}/v1/completions", json=asked, timeout=60).status_code == 200
        except httpx.TransportError:
            return False

    def until(self, condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
        """Waits; where it never comes, the status and the journal say how far it was."""
        try:
            return until(condition, what, patience_s)
        except TimeoutError as error:
            raise AssertionError(f"{what}\n{self.status()}\n{journal()}") from error


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)


def folder_of_this_box() -> Path:
    """Which both sides can see."""
    return Path(os.environ["BOX_FOLDER"])
