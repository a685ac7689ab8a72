"""By which names a machine is called by those who are on it. Pure.

A page in a browser may have the name it came from stand for 127.0.0.1 a moment later (DNS rebinding), and is then
taken for a page of whoever listens there. Its requests still carry that name. An address, `localhost` and what ends in
`.localhost` can be nobody's name in the DNS (RFC 6761, section 6.3).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection

_HOST = re.compile(r"(?:\[(?P<v6>[^\s\]]+)\]|(?P<name>[^\s:\[\]]*))(?::[0-9]*)?", re.ASCII)


def is_own(host: str, names: Collection[str] = ()) -> bool:
    """Could somebody on this machine mean it by this Host header, which may have a port? `names` are its other names,
    in lower case. No browser leaves the header empty."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    if found["v6"] is not None:
        return _is_v6(found["v6"])
    name = found["name"].lower().removesuffix(".")
    return name in ("", "localhost", *names) or name.endswith(".localhost") or _is_v4(name)


def _is_v6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _is_v4(text: str) -> bool:
    """Also as `127.1`, which curl sends as it was typed."""
    try:
        socket.inet_aton(text)
    except (OSError, UnicodeError):
        return False
    return True
