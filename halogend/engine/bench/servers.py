"""The servers that a load is sent to: our daemon as users run it, and llama.cpp's, each a child process."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_START_S = 120.0
_STOP_S = 60.0
_POLL_S = 0.2
_HOST = "127.0.0.1"


class ServerLostError(Exception):
    """A server did not come up; the message holds the end of what it wrote."""


@contextlib.contextmanager
def daemon(model: dict[str, Any]) -> Iterator[int]:
    """`halogend run` with one model, on a port of its own; the port. Raises ServerLostError."""
    port = free_port()
    document = {"apiVersion": "halogen.dev/v1alpha1", "server": {"host": _HOST, "port": port}, "models": [model]}
    with tempfile.TemporaryDirectory(prefix="halogend-bench-") as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps(document))
        command = [sys.executable, "-m", "halogend", "run", "--config", str(config)]
        environ = dict(os.environ) | {"XDG_RUNTIME_DIR": folder, "STATE_DIRECTORY": f"{folder}/state"}
        with _serving([*command, "--admin", f"unix:{folder}/admin.sock"], port, "/readyz", environ):
            yield port


@contextlib.contextmanager
def llama_cpp(model: str, parallel: int, request_tokens: int, threads: int) -> Iterator[int]:
    """llama.cpp's server from the wheel `xllamacpp`, with room for `parallel` requests of `request_tokens`; the
    port. Raises ServerLostError."""
    port = free_port()
    settings = {"model": model, "parallel": parallel, "context": parallel * request_tokens, "threads": threads}
    command = [sys.executable, "-m", "halogend.engine.bench.peer_server", json.dumps(settings | {"port": port})]
    with _serving(command, port, "/health", dict(os.environ)):
        yield port


@contextlib.contextmanager
def _serving(command: list[str], port: int, path: str, environ: dict[str, str]) -> Iterator[None]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environ)
        try:
            deadline = time.monotonic() + _START_S
            while not _is_ready(port, path):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    lines = log.read().decode(errors="replace").splitlines()
                    raise ServerLostError("\n".join([f"{command[2]} does not serve:", *lines[-20:]]))
                time.sleep(_POLL_S)
            yield
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _is_ready(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((_HOST, 0))
        return int(sock.getsockname()[1])
