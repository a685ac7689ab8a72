"""`halogend run`: the daemon, in the foreground."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from halogend.cli import arguments
from halogend.cli.admin import add_socket, own_socket
from halogend.cli.documents import as_far_as_known
from halogend.cli.kernel_cache import kernel_cache
from halogend.cli.state import add_state, state_directory
from halogend.cli.warmup_kernel import add_warmup, warm_up_for
from halogend.config.values import DAY_S

DEFAULT_CONFIG = "/etc/halogen/config.yaml"
STOP_DRAIN_S = 30.0


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("run", help="the daemon, in the foreground")
    parser.add_argument(
        "--config", type=arguments.path, default=Path(DEFAULT_CONFIG), metavar="FILE_OR_DIR", help=DEFAULT_CONFIG
    )
    parser.add_argument(
        "--source",
        choices=("file", "push"),
        default="file",
        help="push: read the document once, watch nothing, stay up whatever it is, and take documents by PUT",
    )
    add_socket(parser)
    add_state(parser)
    parser.add_argument(
        "--stop-drain",
        type=_stop_drain,
        default=STOP_DRAIN_S,
        metavar="SECONDS",
        help="how long running requests may go on at a stop (30); document: as long as reload.drain_timeout_s says",
    )
    add_log_level(parser)
    add_warmup(parser)
    parser.set_defaults(run=run)


def add_log_level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


def _stop_drain(text: str) -> float | None:
    """Seconds; `document` is None. Raises ArgumentTypeError."""
    if text == "document":
        return None
    if not text.isascii() or not text.isdigit() or int(text) > DAY_S:
        raise argparse.ArgumentTypeError(f"whole seconds up to {DAY_S} are wanted, or the word document")
    return float(text)


def run(args: argparse.Namespace) -> int:
    import asyncio

    from halogend import daemon
    from halogend.obs.log import configure_daemon

    if args.warmup_kernel:  # what it could not compile, the models that need it say too
        warm_up_for(as_far_as_known(args.config, os.environ), os.environ)
    configure_daemon(level=args.log_level)
    options = daemon.Options(
        config=args.config,
        admin=own_socket(args),
        environ=dict(os.environ),
        state=state_directory(args.state, os.environ),
        resume=args.resume,
        is_pushed=args.source == "push",
        kernel_cache=kernel_cache(os.environ),
        stop_drain_s=args.stop_drain,
    )
    return asyncio.run(daemon.run(options))
