"""What the files of a document's keys and certificates hold now, and what differs from before.

Blocking: run `look` in a thread.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halogend.config.access import OPEN, AuthConfig, KeyConfig, TlsConfig
from halogend.config.codes import Code
from halogend.config.facts import Fault, FileFact
from halogend.config.fields import Apply
from halogend.config.schema import ServerConfig
from halogend.config.values import host_and_port
from halogend.control.certificates import Certificate, TlsFileError, day, read_certificate
from halogend.control.input_files import InputFile, Signature
from halogend.control.keys import WEAK_BYTES, Key, KeyFileError, read_key


@dataclass(frozen=True, slots=True)
class Access:
    """Keys, certificates, and the files they came from. `keys` None: everybody may; `lets_all_infer`: they are for an
    admin listener alone; `is_unstated`: nobody wrote that everybody may. `admin_tls` is what an admin listener on TCP
    takes; `prints` are fingerprints by path."""

    keys: tuple[Key, ...] | None = None
    overlap_s: float = 0.0
    lets_all_infer: bool = False
    tls: Certificate | None = None
    admin_tls: Certificate | None = None
    prints: Mapping[str, str] = field(default_factory=dict)
    signatures: Mapping[Path, Signature] = field(default_factory=dict)
    is_unstated: bool = False

    def certificates(self) -> tuple[str, ...]:
        """Their fingerprints."""
        return tuple(each.fingerprint for each in (self.tls, self.admin_tls) if each is not None)


@dataclass(slots=True)
class _Looking:
    """What one look gathers on its way. Files that are `silent` are taken as they were when they came `in_force`."""

    now: float
    in_force: Access
    silent: Collection[Path]
    facts: list[FileFact] = field(default_factory=list)
    prints: dict[str, str] = field(default_factory=dict)
    signatures: dict[Path, Signature] = field(default_factory=dict)

    def fault(self, path: str, code: Code, text: str) -> None:
        self.facts.append(FileFact(path, Fault(code, text, _hint(code))))

    def stays(self, *files: str) -> bool:
        """Takes these files as they were; False where they were not in force."""
        was = self.in_force
        if not all(each in was.prints and Path(each) in was.signatures for each in files):
            return False
        self.prints |= {each: was.prints[each] for each in files}
        self.signatures |= {Path(each): was.signatures[Path(each)] for each in files}
        return True

    def took(self, path: str, file: InputFile, name: str, code: Code, *, secret: bool) -> None:
        self.signatures[file.path] = file.signature
        if secret and file.exposure:
            fault = Fault(code, f"{name} {file.exposure}", "chmod 640, owned by the daemon's user or group")
            self.facts.append(FileFact(path, fault, warning=True))


def look(
    server: ServerConfig,
    now: float | None = None,
    in_force: Access | None = None,
    silent: Collection[Path] = (),
) -> tuple[Access, tuple[FileFact, ...]]:
    """What can be used, and what is wrong. `now` is epoch seconds. With a fault among the facts the
    Access is incomplete and must not be applied. A certificate that ended while it was `in_force` is a
    warning: it must not keep other edits out. Files that are `silent` are not touched: their file system does not
    answer, and what came `in_force` with them stays so."""
    into = _Looking(time.time() if now is None else now, in_force or Access(), silent)
    auth = server.auth
    keys = None if auth is None or auth.is_open else tuple(_keys(auth, into))
    tls = _certificate(server.tls, "server.tls", into)
    on_tcp = server.admin is not None and host_and_port(server.admin) is not None
    own = _certificate(server.admin_tls, "server.admin_tls", into)
    admin_tls = (own if server.admin_tls is not None else tls) if on_tcp else None
    overlap_s = 0.0 if auth is None else auth.overlap_s
    lets_all = auth is not None and auth.lets_all_infer
    access = Access(keys, overlap_s, lets_all, tls, admin_tls, into.prints, into.signatures, auth is None)
    return access, tuple(into.facts)


def _keys(auth: AuthConfig, into: _Looking) -> Iterator[Key]:
    seen: dict[bytes, str] = {}
    for index, config in enumerate(auth.keys):
        path = f"server.auth.keys[{index}].file"
        key = _key(config, path, into)
        if key is None:
            continue
        earlier = seen.setdefault(key.digest, key.name)
        if earlier != key.name:
            text = f"the key in `file` {config.file} is also that of {earlier!r}"
            into.fault(path, Code.DUPLICATE_API_KEY, text)
        yield key


def _key(config: KeyConfig, path: str, into: _Looking) -> Key | None:
    kept = next((each for each in into.in_force.keys or () if each.name == config.name), None)
    if kept is not None and Path(config.file) in into.silent and into.stays(config.file):
        return _made(config, kept.digest)
    try:
        value, file = read_key(config.file)
    except KeyFileError as error:
        into.fault(path, Code.KEY_FILE, f"`file` {config.file} {error}")
        return None
    into.took(path, file, f"`file` {config.file}", Code.KEY_FILE, secret=True)
    if len(value) < WEAK_BYTES:
        text = f"the key in `file` {config.file} has {len(value)} characters and could be guessed"
        into.facts.append(FileFact(path, Fault(Code.KEY_FILE, text, "openssl rand -hex 32 makes a good one"), True))
    key = _made(config, hashlib.sha256(value).digest())
    into.prints[config.file] = key.fingerprint
    return key


def _made(config: KeyConfig, digest: bytes) -> Key:
    return Key(
        config.name,
        frozenset(config.scopes),
        digest,
        classes=frozenset(config.classes),
        weight=config.weight,
        rpm=_limit(config.rpm),
        max_concurrent=_limit(config.max_concurrent),
    )


def _limit(value: int | str) -> int | None:
    """`off` is none."""
    return value if isinstance(value, int) else None


def _certificate(config: TlsConfig | None, path: str, into: _Looking) -> Certificate | None:
    if config is None:
        return None
    if {Path(config.cert), Path(config.key)} & set(into.silent) and into.stays(config.cert, config.key):
        return into.in_force.tls if path == "server.tls" else into.in_force.admin_tls
    try:
        found, cert, key = read_certificate(config, into.now, into.in_force.certificates())
    except TlsFileError as error:
        name = config.cert if error.field == "cert" else config.key
        into.fault(f"{path}.{error.field}", Code.TLS_FILE, f"`{error.field}` {name} {error}")
        return None
    into.took(f"{path}.cert", cert, f"`cert` {config.cert}", Code.TLS_FILE, secret=False)
    into.took(f"{path}.key", key, f"`key` {config.key}", Code.TLS_FILE, secret=True)
    if found.is_expired(into.now):
        text = f"`cert` {config.cert} expired on {day(found.not_after)} and is still in force"
        into.facts.append(FileFact(f"{path}.cert", Fault(Code.TLS_FILE, text, "renew it"), warning=True))
    into.prints[config.cert] = hashlib.sha256(cert.data).hexdigest()
    into.prints[config.key] = hashlib.sha256(key.data).hexdigest()
    return found


def _hint(code: Code) -> str:
    if code is Code.DUPLICATE_API_KEY:
        return "give each key a value of its own; one key may have both scopes"
    return "put the file right; the daemon looks again by itself" if code is Code.TLS_FILE else "write one key into it"


# --- what differs -----------------------------------------------------------------------------------


def changes(old: tuple[ServerConfig, Access], new: tuple[ServerConfig, Access]) -> tuple[dict[str, Any], ...]:
    """JSON-ready lines (field, old, new, class): keys that came, went or have other scopes, and files of the
    same path that hold something else. The fields of the document itself are the plan's."""
    return (*_key_changes(old[0], new[0]), *_file_changes(old[1].prints, new[1].prints))


def _key_changes(old: ServerConfig, new: ServerConfig) -> Iterator[dict[str, Any]]:
    before, after = _by_name(old.auth), _by_name(new.auth)
    if _stated(old.auth) != _stated(new.auth):
        yield _line("server.auth", _stated(old.auth), _stated(new.auth))
    for name in dict.fromkeys((*before, *after)):
        was, is_ = before.get(name), after.get(name)
        path = f"server.auth.keys.{name}"
        if was is None or is_ is None:
            yield _line(path, was and list(was.scopes), is_ and list(is_.scopes))
            continue
        for field_name in ("scopes", "classes"):
            before_, after_ = getattr(was, field_name), getattr(is_, field_name)
            if set(before_) != set(after_):
                yield _line(f"{path}.{field_name}", list(before_), list(after_))
        for field_name in ("weight", "rpm", "max_concurrent"):
            if getattr(was, field_name) != getattr(is_, field_name):
                yield _line(f"{path}.{field_name}", getattr(was, field_name), getattr(is_, field_name))
        if was.file != is_.file:
            yield _line(f"{path}.file", was.file, is_.file)


def _stated(auth: AuthConfig | None) -> str | None:
    if auth is None:
        return None
    return OPEN if auth.is_open else "keys"


def _by_name(auth: AuthConfig | None) -> dict[str, KeyConfig]:
    return {} if auth is None else {key.name: key for key in auth.keys}


def _file_changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for path in [path for path in new if path in old and old[path] != new[path]]:
        yield _line(f"input {path}", old[path][:12], new[path][:12])


def _line(field_name: str, old: Any, new: Any) -> dict[str, Any]:
    return {"field": field_name, "old": old, "new": new, "class": Apply.LIVE}
