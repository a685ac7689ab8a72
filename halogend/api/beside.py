"""A new address on a port where listeners of ours listen: one takes the other's place, and nobody is refused.

What the new address covers changes hands together with its queue. What is wider or narrower is bound beside
it: the kernel lets two sockets listen on one port if one user owns both and both carry SO_REUSEPORT, so ours
carry it for the length of one call. The same permission would hide a busy port, so strangers are looked for
in the kernel's table of sockets afterwards. Owns that permission and that look, and the last moment of an
address that is left; must never close a socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ANY_HOSTS = frozenset({"0.0.0.0", "::"})  # noqa: S104  the addresses that stand for all others
_TABLES = {socket.AF_INET: "tcp", socket.AF_INET6: "tcp6"}
_LISTENS = "0A"
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
_DROP = (0x06, 0, 0, 0)  # BPF_RET | BPF_K: keep 0 bytes of the packet
# Addresses that no machine has (RFC 5737, RFC 3849), and the options that let one be bound all the same.
_NOWHERE: dict[int, tuple[str, int, int]] = {
    socket.AF_INET: ("192.0.2.1", socket.IPPROTO_IP, 15),  # IP_FREEBIND
    socket.AF_INET6: ("2001:db8::1", socket.IPPROTO_IPV6, 78),  # IPV6_FREEBIND
}


def covered(ours: Iterable[socket.socket], wanted: Iterable[tuple[int, tuple[Any, ...]]]) -> list[socket.socket]:
    """Those of ours whose every connection is meant for one of the wanted addresses (family, socket address)."""
    places = {(family, *where[:2]) for family, where in wanted}
    return [sock for sock in ours if places & _homes(sock)]


def is_one_of(place: tuple[int, tuple[Any, ...]], sockets: Iterable[socket.socket]) -> bool:
    """Does one of the sockets stand at this very address?"""
    return any((sock.family, *sock.getsockname()[:2]) == (place[0], *place[1][:2]) for sock in sockets)


def together(call: Callable[[], None], sock: socket.socket, ours: Sequence[socket.socket], proc: Path) -> None:
    """`call` binds `sock`, or makes it listen, as though none of `ours` were on its port. Raises OSError with
    EADDRINUSE where a stranger is."""
    try:
        call()
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not ours:
            raise
        _share(call, sock, [sock, *ours], proc)


def _share(call: Callable[[], None], sock: socket.socket, all_ours: list[socket.socket], proc: Path) -> None:
    _allow(all_ours, 1)
    try:
        call()
    finally:
        _allow(all_ours, 0)
    _forget(sock)
    if strangers(sock, all_ours, proc):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def strangers(sock: socket.socket, ours: Iterable[socket.socket], proc: Path) -> list[str]:
    """Addresses where a socket that is not ours listens on the port of `sock` and takes what could be meant for
    it. Raises OSError where the kernel's table cannot be read."""
    host, port = sock.getsockname()[:2]
    known = inodes(ours)
    return [
        there
        for there, number in _listening(proc / "net" / _TABLES[sock.family], port)
        if number not in known and (there == host or {there, host} & ANY_HOSTS)
    ]


def deafen(sock: socket.socket) -> None:
    """A TCP socket that listens hears nothing more: no connection can join its queue between the last look and its
    end, where it would be reset. A peer's kernel asks again a second later, and is refused. Source: socket(7)."""
    if sock.family == socket.AF_UNIX:
        return
    program = ctypes.create_string_buffer(struct.pack("HBBI", *_DROP))
    with contextlib.suppress(OSError):  # then that moment stays
        sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def inode(sock: socket.socket) -> int:
    """What a socket and its duplicates have in common, and no other."""
    return os.fstat(sock.fileno()).st_ino


def inodes(sockets: Iterable[socket.socket]) -> frozenset[int]:
    return frozenset(inode(sock) for sock in sockets)


def _homes(sock: socket.socket) -> set[tuple[int, str, int]]:
    """The addresses that cover it."""
    host, port = sock.getsockname()[:2]
    anywhere = "::" if sock.family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104  nothing is bound here
    return {(sock.family, host, port), (sock.family, anywhere, port)}


def _allow(sockets: Iterable[socket.socket], value: int) -> None:
    for sock in sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, value)


def _forget(sock: socket.socket) -> None:
    """The kernel keeps the permission with the port, for whoever of the same user asks for it next, until a
    socket without it is bound there. Where nothing of the other family can be, it stays."""
    other = socket.AF_INET6 if sock.family == socket.AF_INET else socket.AF_INET
    host, level, free = _NOWHERE[other]
    with contextlib.suppress(OSError), socket.socket(other, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.setsockopt(level, free, 1)
        if other == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind((host, sock.getsockname()[1]))


def _listening(table: Path, port: int) -> list[tuple[str, int]]:
    """Address and inode of each socket that listens on `port`, from a table as proc(5) has it."""
    found = []
    for line in table.read_text().splitlines()[1:]:
        columns = line.split()
        host, _, number = columns[1].partition(":")
        if columns[3] == _LISTENS and int(number, 16) == port:
            found.append((_host(host), int(columns[9])))
    return found


def _host(digits: str) -> str:
    """Each group of eight digits is a word in the machine's order of bytes."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))
