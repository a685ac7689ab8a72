"""The command line of the torture, from outside."""

import os
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"


def test_a_run_that_ends_before_the_daemon_is_there_tells_its_own_cause(tmp_path):
    """What writes the tiny models is not on the path, so no daemon ever starts and there is no log to keep."""
    kept = tmp_path / "kept.log"
    command = [sys.executable, "-m", "torture", "--seconds", "1", "--log", str(kept)]
    environ = {**os.environ, "PYTHONPATH": str(TOOLS)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert "CalledProcessError" in last
    assert "the daemon's log is not kept" in done.stderr
    assert not kept.exists()
