"""Talking to the daemon's admin listener, for the commands that do.

The address is `--admin`, else HALOGEN_ADMIN, else the default socket. On TCP it is TLS, with a key
from `--admin-key-file` (HALOGEN_ADMIN_KEY_FILE); `--admin-ca` (HALOGEN_ADMIN_CA) names the certificate
that vouches for the daemon's where the system's do not.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.cli import arguments
from halogend.config.values import admin_address, host_and_port, shown

SYSTEM_SOCKET = "/run/halogend/admin.sock"
_PATIENCE_S = 10.0  # for a connection; an answer may take as long as a change does
_LOOK_S = 15.0  # for an answer that only tells what the daemon knows anyhow


class AdminError(Exception):
    """The daemon cannot be reached; says where it was looked for and what to do. Or it was, and refused: `status`."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An admin listener and how to prove oneself there. The two files count on TCP only."""

    address: str
    key_file: str | None = None
    ca_file: str | None = None

    def __str__(self) -> str:
        return self.address


def default_socket(environ: Mapping[str, str]) -> str:
    """In the directory that the service manager made (RUNTIME_DIRECTORY, the first of several: systemd.exec(5)), else
    /run/halogend for who may write there, else the user's runtime or state directory."""
    if (made := environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]).startswith("/"):
        return f"unix:{made}/admin.sock"
    folder = Path(SYSTEM_SOCKET).parent
    if os.access(folder if folder.exists() else folder.parent, os.W_OK):
        return f"unix:{SYSTEM_SOCKET}"
    home = environ.get("XDG_RUNTIME_DIR") or Path(environ.get("HOME", "/tmp")) / ".local/state"  # noqa: S108  no home at all
    return f"unix:{home}/halogend/admin.sock"


def add_address(parser: argparse.ArgumentParser) -> None:
    text = "admin listener: unix:/run/halogend/admin.sock, or host:port with TLS (HALOGEN_ADMIN)"
    parser.add_argument("--admin", metavar="ADDRESS", type=_address, default=_from_environment(), help=text)
    text = "file of an API key with the scope admin, for host:port (HALOGEN_ADMIN_KEY_FILE)"
    parser.add_argument("--admin-key-file", type=arguments.file_name, metavar="FILE", help=text)
    text = "PEM certificate that vouches for the daemon's, for host:port (HALOGEN_ADMIN_CA)"
    parser.add_argument("--admin-ca", type=arguments.file_name, metavar="FILE", help=text)


def address(args: argparse.Namespace) -> Endpoint:
    where = args.admin or default_socket(os.environ)
    key_file = args.admin_key_file or os.environ.get("HALOGEN_ADMIN_KEY_FILE")
    return Endpoint(where, key_file or None, args.admin_ca or os.environ.get("HALOGEN_ADMIN_CA") or None)


def add_socket(parser: argparse.ArgumentParser) -> None:
    """For the commands that are the daemon."""
    text = "where the admin listener is, if the document does not say; a document may also name host:port"
    parser.add_argument("--admin", metavar="unix:PATH", type=_socket, default=_from_environment(), help=text)


def own_socket(args: argparse.Namespace) -> str:
    return str(args.admin or default_socket(os.environ))


class _FromEnvironment(str):
    """The value of HALOGEN_ADMIN, so that a message can say where it stands."""

    __slots__ = ()


def _from_environment() -> str | None:
    """argparse judges a default that is text as it does the flag's value. Empty is not set."""
    named = os.environ.get("HALOGEN_ADMIN")
    return _FromEnvironment(named) if named else None


def _address(text: str) -> str:
    try:
        admin_address(text.removeprefix("https://"))
    except ValueError as error:
        raise _wrong(text, f"{error}; the forms are unix:/absolute/path and host:port") from error
    return text


def _socket(text: str) -> str | None:
    """A TCP address in HALOGEN_ADMIN is where commands look, never where a daemon listens without being
    told so, with its certificate and keys, by its document."""
    _address(text)
    if text.startswith("unix:"):
        return text
    if isinstance(text, _FromEnvironment):
        return None
    raise _wrong(text, f"must be unix:/absolute/path, found {shown(text)}; host:port stands in the document's `admin`")


def _wrong(text: str, message: str) -> argparse.ArgumentTypeError:
    place = "HALOGEN_ADMIN " if isinstance(text, _FromEnvironment) else ""
    return argparse.ArgumentTypeError(f"{place}{message}")


def look(where: Endpoint, path: str) -> Any:
    """The JSON body of a GET that waits for nothing: a daemon that does not answer is told of. Raises AdminError."""
    return ask(where, "GET", path, silence_s=_LOOK_S)[1]


def ask(
    where: Endpoint, method: str, path: str, body: bytes | None = None, silence_s: float | None = None
) -> tuple[int, Any]:
    """(status, JSON body). Raises AdminError."""
    with asked(where, method, path, body, silence_s=silence_s) as response:
        try:
            status, answer = response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _no_answer(where, error) from error
    if "error" in answer and "outcome" not in answer:
        raise AdminError(answer["error"]["message"], status)
    return status, answer


@contextlib.contextmanager
def asked(
    where: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    silence_s: float | None = None,
) -> Iterator[http.client.HTTPResponse]:
    """The response whose body the caller reads, with a limit between two pieces of it. Raises AdminError."""
    connection, own = _connection(where)
    try:
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(silence_s)
        except OSError as error:
            raise AdminError(_unreachable(where, error)) from error
        try:
            connection.request(method, f"/admin/v1{path}", body, {**(headers or {}), **own})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise _no_answer(where, error) from error
        yield response
    finally:
        connection.close()


def _no_answer(where: Endpoint, error: Exception) -> AdminError:
    if isinstance(error, TimeoutError):
        text = "is there and does not answer: it is stopped, or its loop is stuck; its log may know more"
        return AdminError(f"the daemon at {where} {text}")
    return AdminError(f"the daemon at {where} hung up before it answered; `halogend receipts` may know more")


def _connection(where: Endpoint) -> tuple[http.client.HTTPConnection, dict[str, str]]:
    found = host_and_port(where.address.removeprefix("https://"))
    if found is None:
        path = where.address.removeprefix("unix:")
        if not path.startswith("/"):
            raise AdminError(f"{where}: an admin listener is unix: and an absolute path, or host:port")
        return _UnixConnection(path), {}
    if where.key_file is None:
        raise AdminError(f"{where} wants a key: --admin-key-file FILE or HALOGEN_ADMIN_KEY_FILE")
    try:
        key = Path(where.key_file).read_text("ascii").strip()
        context = ssl.create_default_context(cafile=where.ca_file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise AdminError(f"--admin-key-file {where.key_file}, --admin-ca {where.ca_file}: {reason}") from error
    if not key or not key.isprintable():
        raise AdminError(f"--admin-key-file {where.key_file}: it holds no key")
    host, port = found
    connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_S, context=context)
    return connection, {"authorization": f"Bearer {key}"}


def _unreachable(where: Endpoint, error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the certificate of {where} is not trusted: {error.verify_message}"
        return f"{text}. Name its authority: --admin-ca or HALOGEN_ADMIN_CA"
    if isinstance(error, ssl.SSLError):
        return f"{where} does not speak TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    reason = error.strerror or str(error)
    return f"no daemon answers at {where}: {reason}. Is it running? Another address: --admin or HALOGEN_ADMIN"


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)
