"""The units under a real systemd, and what systemd itself says of them.

Each scenario runs in a box of its own (tools/systemd-box.sh). Where a machine can have none, the
short one is skipped and says why; the slow ones, and all of them in CI, fail.
"""

import os
import re

import pytest
from support.box import DEPLOY, ROOT, CannotError, run_in_box

from halogend.config.schema import ServerConfig
from halogend.daemon import STOP_LIMIT_S
from halogend.obs.exits import final_statuses

SCENARIOS = [
    "test_reloads",
    "test_hangup",
    "test_reload_slow",
    "test_credential",
    "test_engine",
    "test_life",
    "test_daemon_killed",
    "test_daemon_stuck",
    "test_start_bad",
    "test_start_oversize",
    "test_start_unloadable",
    "test_start_slow",
    "test_start_stopped",
    "test_socket",
    "test_socket_bad",
    "test_files",
    "test_notify_reload",
]


def _run(folder, scenario, limit_s, *, must):
    try:
        said = run_in_box(folder, scenario, limit_s)
    except CannotError as error:
        if must or os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    if " passed" not in said:
        pytest.skip(said.strip())


def test_start_reload_and_stop(tmp_path):
    _run(tmp_path, "test_short", 110, must=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_under_systemd(tmp_path, scenario):
    _run(tmp_path, scenario, 200, must=True)


def test_every_scenario_is_run():
    names = re.findall(r"^def (test_\w+)", (ROOT / "tests/systemd/scenarios.py").read_text(), re.MULTILINE)
    assert {"test_short", *SCENARIOS} == set(names)


def test_s7_the_unit_knows_the_statuses_after_which_a_restart_is_of_no_use():
    unit = (DEPLOY / "halogend.service").read_text()
    (line,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert tuple(int(word) for word in line.split()) == final_statuses()


def test_s11_the_unit_waits_longer_for_the_stop_than_the_daemon_takes():
    unit = (DEPLOY / "halogend.service").read_text()
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)
    assert int(seconds) > STOP_LIMIT_S


def test_the_socket_is_where_the_daemon_listens_by_default():
    (where,) = re.findall(r"^ListenStream=(.*)$", (DEPLOY / "halogend.socket").read_text(), re.MULTILINE)
    default = ServerConfig()
    assert where == f"{default.host}:{default.port}"
