"""Measurements that run in a process of their own, with the environment that the daemon gives an engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from halogend.wire.environment import WORKER_ENVIRONMENT

_LIMIT_S = 1800.0


class ChildFailedError(Exception):
    """The message is the last line of the child's standard error."""


def run_child(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What `python -m module arguments` printed, as JSON. Raises ChildFailedError."""
    command = [sys.executable, "-m", module, *arguments]
    environ = {**os.environ, **WORKER_ENVIRONMENT}
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=environ)
    except subprocess.TimeoutExpired as error:
        raise ChildFailedError(f"{module}: not done after {_LIMIT_S:.0f} s") from error
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"{module}: exit status {child.returncode}"]
        raise ChildFailedError(last[0])
    figures: dict[str, Any] = json.loads(child.stdout)
    return figures
