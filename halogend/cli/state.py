"""Where a daemon keeps its state: `--state`, what the service manager made, or the usual places."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from halogend.cli import arguments

SYSTEM_STATE = Path("/var/lib/halogend")


def add_state(parser: argparse.ArgumentParser) -> None:
    text = (
        f"folder for receipts and the documents that were active; else STATE_DIRECTORY, else {SYSTEM_STATE} where it"
        " can be written, else $XDG_STATE_HOME/halogend; it must be this user's alone"
    )
    parser.add_argument("--state", type=arguments.path, metavar="DIR", help=text)
    text = "start from the document that was active last if the one of --config is bad"
    parser.add_argument("--resume", action="store_true", help=text)


def state_directory(stated: Path | None, environ: Mapping[str, str], system: Path = SYSTEM_STATE) -> Path | None:
    """STATE_DIRECTORY may name several, divided by colons: the first is ours (systemd.exec(5)). None where
    there is no place that is this user's alone."""
    if stated is not None:
        return stated
    if made := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(made)
    if os.access(system if system.exists() else system.parent, os.W_OK):
        return system
    if home := environ.get("XDG_STATE_HOME"):
        return Path(home) / "halogend"
    if home := environ.get("HOME"):
        return Path(home) / ".local/state/halogend"
    import structlog

    structlog.get_logger().warning("state_not_kept", error="there is no HOME: name a folder with --state")
    return None
