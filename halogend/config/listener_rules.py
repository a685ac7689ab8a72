"""Contradictions about who may reach a listener, and how. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from halogend.config.access import AuthConfig
from halogend.config.codes import Code
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import Document, ServerConfig
from halogend.config.values import host_and_port, is_loopback

_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104  the addresses that stand for all others


def check_listeners(document: Document, places: Places) -> Iterator[Problem]:
    server = document.server
    if server.auth is None and not is_loopback(server.host):
        message = f"`host` {server.host} can be reached from other machines and nobody is asked for a key"
        hint = "bind 127.0.0.1, list keys under auth, or write auth: none to state that open access is meant"
        yield places.problem(Code.OPEN_LISTENER, "server.host", message, hint)
    if server.auth is not None:
        yield from _keys(server.auth, places)
    yield from _admin(server, places)


def _keys(auth: AuthConfig, places: Places) -> Iterator[Problem]:
    names: dict[str, int] = {}
    files: dict[str, int] = {}
    for index, key in enumerate(auth.keys):
        path = f"server.auth.keys[{index}]"
        if (earlier := names.setdefault(key.name, index)) != index:
            message = f"the name {key.name!r} is already another key's{_line(places, earlier, 'name')}"
            yield places.problem(Code.DUPLICATE_API_KEY, f"{path}.name", message, "rename one of them")
        if (earlier := files.setdefault(key.file, index)) != index:
            message = f"`file` {key.file} is already another key's{_line(places, earlier, 'file')}"
            hint = "one key may have both scopes; else give each a file of its own"
            yield places.problem(Code.DUPLICATE_API_KEY, f"{path}.file", message, hint)
        if len(set(key.scopes)) != len(key.scopes):
            message = f"`scopes` names {key.scopes[0]} twice"
            yield places.problem(Code.DUPLICATE_API_KEY, f"{path}.scopes", message, "name each scope once")
        if auth.lets_all_infer and "infer" in key.scopes:
            message = f"`infer: none` asks nobody for a key, and {key.name!r} has the scope infer"
            hint = "write scopes: [admin] for it, or remove infer: none"
            yield places.problem(Code.OPEN_LISTENER, f"{path}.scopes", message, hint)


def _line(places: Places, index: int, field: str) -> str:
    mark = places.mark(f"server.auth.keys[{index}].{field}")
    return f" ({mark.words})" if mark else ""


def _admin(server: ServerConfig, places: Places) -> Iterator[Problem]:
    address = None if server.admin is None else host_and_port(server.admin)
    if address is None:
        if server.admin_tls is not None:
            message = "`admin_tls` is for an admin listener on TCP, and this one is a unix socket"
            yield places.problem(Code.ADMIN_ACCESS, "server.admin_tls", message, "remove it, or set admin: host:port")
        return
    if server.tls is None and server.admin_tls is None:
        message = f"`admin` {server.admin} is on TCP and has no certificate"
        hint = "add admin_tls: {cert: ..., key: ...} (or tls, for both listeners), or take unix: and a path"
        yield places.problem(Code.ADMIN_ACCESS, "server.admin", message, hint)
    if server.auth is None or not any("admin" in key.scopes for key in server.auth.keys):
        message = f"`admin` {server.admin} is on TCP and no key has the scope admin"
        hint = "add a key with scopes: [admin] under auth, or take unix: and a path"
        yield places.problem(Code.ADMIN_ACCESS, "server.admin", message, hint)
    host, port = address
    if port == server.port and (host == server.host or {host, server.host} & _ANY):
        message = f"`admin` {server.admin} and the inference listener {server.host}:{server.port} are one address"
        yield places.problem(Code.LISTENERS_CLASH, "server.admin", message, "take another port for one of them")
