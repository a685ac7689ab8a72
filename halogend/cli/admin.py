"""Talking to the daemon's admin listener, for the commands that do.

The address is `--admin`, else HALOGEN_ADMIN, else the default socket.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SYSTEM_SOCKET = "/run/halogend/admin.sock"


class AdminError(Exception):
    """The daemon cannot be reached; says where it was looked for and what to do."""


def default_socket(environ: Mapping[str, str]) -> str:
    """/run/halogend for who may write there, else the user's runtime or state directory."""
    folder = Path(SYSTEM_SOCKET).parent
    if os.access(folder if folder.exists() else folder.parent, os.W_OK):
        return f"unix:{SYSTEM_SOCKET}"
    home = environ.get("XDG_RUNTIME_DIR") or Path(environ.get("HOME", "/tmp")) / ".local/state"  # noqa: S108  no home at all
    return f"unix:{home}/halogend/admin.sock"


def add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--admin", metavar="ADDRESS", help="admin listener, such as unix:/run/halogend/admin.sock")


def address(args: argparse.Namespace) -> str:
    return str(args.admin or os.environ.get("HALOGEN_ADMIN") or default_socket(os.environ))


def ask(where: str, method: str, path: str) -> tuple[int, Any]:
    """(status, JSON body). Raises AdminError."""
    connection = _UnixConnection(where.removeprefix("unix:"))
    try:
        connection.connect()
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"no daemon answers at {where}: {reason}. Is it running? Another address: --admin or HALOGEN_ADMIN"
        raise AdminError(message) from error
    try:
        connection.request(method, f"/admin/v1{path}")
        response = connection.getresponse()
        status, body = response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AdminError(
            f"the daemon at {where} hung up before it answered; `halogend receipts` may know more"
        ) from error
    finally:
        connection.close()
    if "error" in body and "outcome" not in body:
        raise AdminError(body["error"]["message"])
    return status, body


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)
