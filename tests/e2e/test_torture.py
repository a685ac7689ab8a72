"""A minute of everything at once, from outside. `make torture` is the same for twenty."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_minute_of_torture_loses_no_request_and_cuts_no_stream(tmp_path):
    """L7, L10, L13, R1: swaps, bad documents, torn weights, moves, signals and kills under open-loop load.

    L9: gaps in the Load, Switch and Drain windows are in its report; a test asserts no time.
    """
    path = os.pathsep.join([str(ROOT / "tools"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "torture", "--seconds", "60", "--json", str(tmp_path / "report.json")]
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=580)
    print(done.stdout, done.stderr)
    report = json.loads((tmp_path / "report.json").read_text())
    wrong = [line for line in report["lines"] if line["kind"] == "correctness" and line["ok"] is not True]
    assert wrong == []
    lines = {line["name"]: line for line in report["lines"]}
    assert lines["requests"]["answered"] > 100
    assert {f"gap tiny {window}" for window in ("load", "switch", "drain")} <= set(lines)
    assert lines["acts"]["acts"]["kills of what serves"] >= 1
