"""What the operator is told at its start.

Owns the command line and its defaults. Reads no environment (`__main__` hands it over) and opens nothing.
"""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from halogen_operator.names import ADMIN_PORT

DEFAULT_IMAGE: Final = "halogend:latest"
_PORT: Final = 8080


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run of the operator. Times are seconds.

    `server` is an API server that wants no credentials (a proxy, a test); without it `kubeconfig`, and without that
    the pod's own service account. `namespaces` empty: all of them. `peering` names a KopfPeering (with all
    namespaces: ClusterKopfPeering) by which two operators agree on one; without it the operator stands alone.
    `namespace`, `labels`, `image` and `version` are the operator's own place, the labels of its pods, the image that
    models run by default and its version. `identity` is its name among its peers, its pod's name.
    """

    server: str | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    peering: str | None = None
    priority: int = 0
    identity: str = "halogen-operator"
    namespace: str = "halogen-system"
    labels: Mapping[str, str] = field(default_factory=lambda: {"app.kubernetes.io/name": "halogen-operator"})
    image: str = DEFAULT_IMAGE
    version: str = "0"
    workers: int = 8
    host: str = "0.0.0.0"  # noqa: S104  a pod's probes and scrapes come from outside it
    port: int = _PORT
    bind: str = "0.0.0.0"  # noqa: S104  inside a pod: who may come is the NetworkPolicy's and the keys' business
    """Where pods listen; `::` in a cluster of IPv6 alone."""
    admin_port: int = ADMIN_PORT
    look_again_s: float = 30.0
    """A settled model's pods are asked how they are this often: what happens inside them is no event."""
    follow_s: float = 1.0
    """During a change, this often."""
    heed_peers_s: float = 5.0
    """With a peering, it is looked up this often whether another operator goes first."""
    shortest_back_off_s: float = 1.0
    longest_back_off_s: float = 300.0
    oldest_event_s: float = 300.0
    """A watch that said nothing, not even a bookmark, for longer is dead, and so is the operator (`/livez`)."""
    log_level: str = "info"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="halogen-operator", description="Keeps HalogenModels running.")
    where = made.add_mutually_exclusive_group(required=True)
    where.add_argument("--namespace", nargs="+", metavar="NAME", default=[], help="namespaces to look after")
    where.add_argument("--all-namespaces", action="store_true", help="look after every namespace")
    made.add_argument("--kubeconfig", type=Path, metavar="FILE", help="instead of the pod's service account")
    made.add_argument("--context", metavar="NAME", help="of the kubeconfig; its current one by default")
    made.add_argument(
        "--server", type=_url, metavar="URL", help="an API server that wants no credentials (kubectl proxy)"
    )
    made.add_argument("--peering", metavar="NAME", help="agree with other operators by this peering object")
    made.add_argument("--priority", type=int, default=0, help="the peer of the highest priority acts (default 0)")
    made.add_argument("--image", default=DEFAULT_IMAGE, help=f"what models run by default ({DEFAULT_IMAGE})")
    made.add_argument("--bind", type=_address, default=Settings.bind, help="where pods listen; :: where all is IPv6")
    made.add_argument("--workers", type=_positive, default=8, help="models looked at side by side (default 8)")
    made.add_argument("--host", default=Settings.host, help="of /livez, /readyz and /metrics")
    made.add_argument("--port", type=int, default=_PORT, help=f"of /livez, /readyz and /metrics ({_PORT}; 0: any)")
    made.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return made


def parse(arguments: Sequence[str], environment: Mapping[str, str], version: str) -> Settings:
    """Settings of a command line; `POD_NAME` and `POD_NAMESPACE` say where the operator itself runs.

    Raises `SystemExit` as argparse does.
    """
    told = parser().parse_args(arguments)
    return Settings(
        server=told.server,
        kubeconfig=told.kubeconfig,
        context=told.context,
        namespaces=tuple(dict.fromkeys(told.namespace)),
        peering=told.peering,
        priority=told.priority,
        image=told.image,
        bind=told.bind,
        version=version,
        workers=told.workers,
        host=told.host,
        port=told.port,
        log_level=told.log_level,
        identity=environment.get("POD_NAME") or Settings.identity,
        namespace=environment.get("POD_NAMESPACE") or Settings.namespace,
    )


def _address(text: str) -> str:
    """Raises ValueError, as argparse wants it."""
    return str(ipaddress.ip_address(text))


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text} does not begin with http:// or https://")
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number
