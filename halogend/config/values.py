"""Spellings of values that are more than a number or a word: sizes, devices, addresses, names.

Each function takes what the document holds and returns the one canonical value, or raises
ValueError whose text completes the sentence "`field` ...".
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

SIZE_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
OFF = "off"
MAX_BYTES = 1 << 53
DAY_S = 86_400

PRODUCTS = {
    "ai_max_395": "rocm",
    "mi300x": "rocm",
    "rtx_4090": "cuda",
    "a100": "cuda",
    "h100": "cuda",
    "h200": "cuda",
    "b200": "cuda",
}
# Products whose memory is the host's: what a model takes there it takes of the host.
UNIFIED = frozenset({"ai_max_395"})
DEVICE_KINDS = ("cpu", "cuda", "rocm", *PRODUCTS)
BUILT_IN_TEMPLATES = ("chatml",)

LONGEST_SHOWN = 60

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[A-Za-z]*)", re.ASCII)
_DEVICE = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)(?::(?P<index>0|[1-9]\d{0,3}))?", re.ASCII)
_CORES = re.compile(r"\d{1,4}(-\d{1,4})?( ?, ?\d{1,4}(-\d{1,4})?)*", re.ASCII)
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}"
_NAME = re.compile(NAME_PATTERN)
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:/@\s]+)):(?P<port>[1-9]\d{0,4})", re.ASCII)
MAX_PORT = 65_535
_SOCKET_PATH_BYTES = 107  # sun_path holds 108 with the closing NUL


def shown(value: Any) -> str:
    """A value on one line, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def size_bytes(value: Any) -> Any:
    """`70GiB`, `1.5 MiB` or a plain count of bytes -> bytes."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    unit = found["unit"] if found else ""
    if not found or unit not in SIZE_UNITS:
        like = difflib.get_close_matches(unit, SIZE_UNITS, n=1, cutoff=0.3) or ["GiB"]
        raise ValueError(f"must be a size such as 70{like[0]}, found {shown(value)}; units are {', '.join(SIZE_UNITS)}")
    whole, _, fraction = found["number"].partition(".")
    scale = 10 ** len(fraction)
    if len(whole) + len(fraction) > 20:
        raise ValueError(f"must be a size below 8 PiB, found {shown(value)}")
    return int(whole + fraction) * SIZE_UNITS[unit] // scale


def size_text(size: int) -> str | int:
    """The shortest exact spelling: `70GiB`, or plain bytes where no unit divides it."""
    for unit, factor in reversed(SIZE_UNITS.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return size


def mib_text(size: int) -> str:
    """About how much, for people."""
    return f"{size / (1 << 20):.1f} MiB" if size < 10 << 30 else f"{size / (1 << 30):.1f} GiB"


def device_id(value: Any, *, auto: bool) -> Any:
    """`cpu` -> `cpu:0`; `auto` passes where it is allowed."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if auto and text == "auto":
        return text
    found = _DEVICE.fullmatch(text)
    if found and found["kind"] in DEVICE_KINDS:
        return f"{found['kind']}:{found['index'] or 0}"
    known = (*(("auto",) if auto else ()), *DEVICE_KINDS)
    close = difflib.get_close_matches(text.partition(":")[0].lower(), known, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"names no known device: {shown(value)}{meant} Kinds are {', '.join(known)}, with :N for the N-th")


def core_list(value: Any) -> Any:
    """`3,0-1` -> `0-1,3`: numbers and ranges of processor cores, each once and in order."""
    if not isinstance(value, str) or not _CORES.fullmatch(value):
        raise ValueError(f'must be numbers of cores such as "0-3,8", in quotes, found {shown(value)}')
    parts = [part.strip().partition("-") for part in value.split(",")]
    ranges = [(int(first), int(last or first)) for first, _, last in parts]
    for first, last in ranges:
        if last < first:
            raise ValueError(f"must have ranges from the lower number to the higher, found {first}-{last}")
    return cores_text(core for first, last in ranges for core in range(first, last + 1))


def cores_of(text: str) -> tuple[int, ...]:
    """`0-1,3` -> 0, 1, 3."""
    parts = [part.partition("-") for part in text.split(",")]
    return tuple(core for first, _, last in parts for core in range(int(first), int(last or first) + 1))


def cores_text(cores: Iterable[int]) -> str:
    """The shortest spelling: `0-1,3`."""
    runs: list[tuple[int, int]] = []
    for core in sorted(set(cores)):
        if runs and runs[-1][1] == core - 1:
            runs[-1] = runs[-1][0], core
        else:
            runs.append((core, core))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def device_entries(value: Any) -> Any:
    """Every spelling of `device` -> a tuple of {id, weight}."""
    if isinstance(value, str):
        parts: list[Any] = [part.strip() for part in value.split(",")]
    elif isinstance(value, dict):
        parts = [value]
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    else:
        return value
    if not parts:
        raise ValueError("must name a device; an empty list names none")
    return tuple({"id": part} if isinstance(part, str) else part for part in parts)


def admin_address(value: Any) -> Any:
    """`unix:/absolute/path` or `host:port`, an IPv6 address in brackets."""
    if not isinstance(value, str):
        return value
    path = value.removeprefix("unix:")
    if not value.startswith("unix:"):
        if host_and_port(value) is None:
            raise ValueError(f"must be unix: and an absolute path, or host:port, found {shown(value)}")
        return value
    if not path.startswith("/"):
        raise ValueError(f"must be an absolute path after unix:, found {shown(path)}")
    if len(path.encode()) > _SOCKET_PATH_BYTES:
        raise ValueError(f"is {len(path.encode())} bytes long; a socket's path may have {_SOCKET_PATH_BYTES}")
    return value


def host_and_port(text: str) -> tuple[str, int] | None:
    """`127.0.0.1:9443`, `[::1]:9443` or `name:9443` -> host without brackets, port; None for anything else."""
    found = _HOST_PORT.fullmatch(text)
    if found is None or not 1 <= int(found["port"]) <= MAX_PORT:
        return None
    host = found["v6"] or found["host"]
    try:
        host_address(host)
    except ValueError:
        return None
    return (host, int(found["port"])) if (":" in host) == bool(found["v6"]) else None


def off_is_none(value: Any) -> Any:
    """`off` is None; anything else passes."""
    return None if value == OFF else value


def or_off(value: Any) -> Any:
    """`off` is None; None and a mapping pass."""
    if value == OFF:
        return None
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"must be {OFF} or a mapping, found {shown(value)}")
    return value


def model_name(value: Any) -> Any:
    """Names and aliases: what clients put in `model`, also a metric's label and part of a URL."""
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise ValueError(
            f"must be 1 to 128 letters, digits or ._:/@+- and start with a letter or digit, found {shown(value)}"
        )
    return value


def host_address(value: Any) -> Any:
    """An address to bind or a host name; ports and brackets do not belong here."""
    if not isinstance(value, str):
        return value
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if not re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*", value) or re.fullmatch(r"[\d.]+", value):
            raise ValueError(f"must be an IP address or a host name without a port, found {shown(value)}") from None
    return value


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
