"""How the operator gets to an API server and what it shows there.

Owns the service account of a pod, a kubeconfig, and HTTP sessions made of either. A token is read again while the
operator runs: the kubelet replaces it every hour. Must never know what is asked of the server.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REREAD_S: Final = 60.0
_CONNECTIONS: Final = 0  # no limit: every watch holds one


class LoginError(Exception):
    """There is no way to the server, and why: a sentence for the person who starts the operator."""


@dataclass(frozen=True)
class Access:
    """An API server: its address, the TLS to use (None: plain HTTP) and where a bearer token stands, if any is used."""

    server: str
    tls: ssl.SSLContext | None = None
    token: Callable[[], str] | None = None


class TokenFile:
    """A token in a file, read again once a minute. `clock` counts seconds. One writer: the event loop."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        """Raises `OSError` if the file was never readable; later the token read last is used on."""
        if self._clock() - self._read_at >= _REREAD_S:
            try:
                self._token = self._path.read_text().strip()
            except OSError:
                if not self._token:
                    raise
            self._read_at = self._clock()
        return self._token


def in_cluster(environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Access:
    """By the service account of the pod. Raises `LoginError` outside of a cluster."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").exists():
        raise LoginError("this is no pod with a service account; say --kubeconfig FILE or --server URL")
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", tls, TokenFile(account / "token"))


def from_kubeconfig(path: Path, context: str | None = None) -> Access:
    """By a kubeconfig's context, by default its current one: client certificate, token or token file.

    Raises `LoginError` for a file that cannot be read, names that are not in it, and users who log in by a program.
    """
    try:
        held = yaml.safe_load(path.read_text())
        chosen = _named(held, "contexts", "context", context or held.get("current-context"))
        cluster = _named(held, "clusters", "cluster", chosen.get("cluster"))
        user = _named(held, "users", "user", chosen["user"]) if chosen.get("user") else {}
    except (OSError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise LoginError(f"{path} is not a kubeconfig that can be read: {error}") from error
    if "exec" in user or "auth-provider" in user:
        raise LoginError(f"{path} logs in by a program; run `kubectl proxy` and say --server http://127.0.0.1:8001")
    server = str(cluster.get("server", ""))
    tls = _tls(cluster, user, path.parent) if server.startswith("https:") else None
    return Access(server, tls, _token(user, path.parent))


def chosen(
    server: str | None, kubeconfig: Path | None, context: str | None, environment: Mapping[str, str] | None = None
) -> Access:
    """By an address that wants no credentials, else by a kubeconfig, else by the pod. Raises `LoginError`."""
    if server is not None:
        return Access(server)
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig, context)
    return in_cluster(environment or {})


def session(access: Access, connector: aiohttp.TCPConnector, **options: Any) -> aiohttp.ClientSession:
    """A session that shows the token of now with every request. The connector stays its maker's, who closes it."""

    async def authorize(request: aiohttp.ClientRequest, answer: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if access.token is not None:
            request.headers["Authorization"] = f"Bearer {access.token()}"
        return await answer(request)

    agent = {"User-Agent": "halogen-operator"}
    return aiohttp.ClientSession(
        connector=connector, connector_owner=False, middlewares=(authorize,), headers=agent, **options
    )


def connector(access: Access) -> aiohttp.TCPConnector:
    """The connections of one operator: its watches and its calls share them."""
    return aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=access.tls if access.tls is not None else True)


def _named(held: Mapping[str, Any], section: str, key: str, name: str | None) -> Mapping[str, Any]:
    for row in held.get(section) or ():
        if row.get("name") == name:
            found: Mapping[str, Any] = row.get(key) or {}
            return found
    raise LoginError(f"the kubeconfig has no {key} named {name!r}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], base: Path) -> ssl.SSLContext:
    authority = _pem(cluster, "certificate-authority", base)
    try:
        made = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise LoginError(f"certificate-authority of the kubeconfig holds no certificate: {error}") from error
    if cluster.get("insecure-skip-tls-verify"):
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    certificate, key = _pem(user, "client-certificate", base), _pem(user, "client-key", base)
    if certificate and key:
        # Python loads a client certificate from a file alone: one that is gone when this line is done.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate}\n{key}")
            file.flush()
            made.load_cert_chain(file.name)
    return made


def _pem(row: Mapping[str, Any], name: str, base: Path) -> str | None:
    """The text of `name-data` (base64) or of the file `name`, which may be relative to the kubeconfig."""
    try:
        if row.get(f"{name}-data"):
            return base64.b64decode(row[f"{name}-data"]).decode()
        return (base / row[name]).read_text() if row.get(name) else None
    except (OSError, ValueError) as error:
        raise LoginError(f"{name} of the kubeconfig cannot be read: {error}") from error


def _token(user: Mapping[str, Any], base: Path) -> Callable[[], str] | None:
    if user.get("token"):
        token = str(user["token"])
        return lambda: token
    return TokenFile(base / user["tokenFile"]) if user.get("tokenFile") else None
