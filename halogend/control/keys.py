"""API keys as they are accepted now: read from files, compared in constant time, changed with an overlap.

Keeps digests, never a key. A Keyring is one immutable value; who holds it puts another in its place.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halogend.control.input_files import InputFile, read_input

MAX_KEY_BYTES = 4096
WEAK_BYTES = 16


class KeyFileError(Exception):
    """A key's file cannot be used; the text completes "`file` PATH ..."."""


@dataclass(frozen=True, slots=True)
class Key:
    """`digest` is the sha256 of the key's bytes. `classes` are those that its requests may name, `weight` is its
    share beside other keys; `rpm` and `max_concurrent` None: no limit."""

    name: str
    scopes: frozenset[str]
    digest: bytes
    classes: frozenset[str] = frozenset()
    weight: float = 1.0
    rpm: int | None = None
    max_concurrent: int | None = None

    @property
    def fingerprint(self) -> str:
        """Tells two values apart and gives none away."""
        return hashlib.sha256(self.digest).hexdigest()


@dataclass(frozen=True, slots=True)
class Retired:
    """A value a key had before; `at` is when that changed, monotonic seconds."""

    name: str
    digest: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of one document and the values they had before. `keys` None: everybody may; `lets_all_infer`: they are
    for an admin listener alone; `is_unstated`: nobody wrote that everybody may, it is so for who is on the machine."""

    keys: tuple[Key, ...] | None = None
    overlap_s: float = 0.0
    retired: tuple[Retired, ...] = ()
    lets_all_infer: bool = False
    is_unstated: bool = False

    @property
    def is_open(self) -> bool:
        return self.keys is None or self.lets_all_infer

    def find(self, token: bytes, now: float) -> Key | None:
        """The key of this value, or one whose previous value this was a moment ago.

        Every known value is compared, each in constant time: how long it takes says nothing.
        """
        digest = hashlib.sha256(token).digest()
        by_name = {key.name: key for key in self.keys or ()}
        found: Key | None = None
        for old in self.retired:
            if hmac.compare_digest(old.digest, digest) and self._counts(old, now):
                found = by_name.get(old.name)
        for key in self.keys or ():
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def followed_by(
        self,
        keys: tuple[Key, ...] | None,
        overlap_s: float,
        now: float,
        *,
        lets_all_infer: bool = False,
        is_unstated: bool = False,
    ) -> Keyring:
        """What is accepted once `keys` are read: a value that changed under its name stays for `overlap_s`,
        a name that is gone is gone."""
        if keys is None:
            return Keyring(is_unstated=is_unstated)
        values = {key.name: key.digest for key in keys}
        gone = (Retired(k.name, k.digest, now) for k in self.keys or () if values.get(k.name) not in {None, k.digest})
        held = Keyring(keys, overlap_s)
        kept = (
            old
            for old in (*self.retired, *gone)
            if held._counts(old, now) and old.name in values and old.digest != values[old.name]
        )
        return Keyring(keys, overlap_s, tuple(kept), lets_all_infer)

    def view(self, now: float) -> list[dict[str, Any]]:
        """JSON-ready, without any value."""
        return [
            {
                "name": key.name,
                "scopes": sorted(key.scopes),
                "classes": sorted(key.classes),
                "weight": key.weight,
                "rpm": key.rpm,
                "max_concurrent": key.max_concurrent,
                "fingerprint": key.fingerprint[:12],
                "previous_valid_s": max(self._left_s(key.name, now), default=0.0),
            }
            for key in self.keys or ()
        ]

    def _counts(self, old: Retired, now: float) -> bool:
        return now < old.at + self.overlap_s

    def _left_s(self, name: str, now: float) -> Iterable[float]:
        for old in self.retired:
            if old.name == name and self._counts(old, now):
                yield round(old.at + self.overlap_s - now, 1)


def read_key(path: str) -> tuple[bytes, InputFile]:
    """(the key, the file as it was read). Raises KeyFileError."""
    try:
        file = read_input(Path(path), MAX_KEY_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"cannot be read: {error.strerror or error}") from error
    if len(file.data) > MAX_KEY_BYTES:
        raise KeyFileError(f"is larger than {MAX_KEY_BYTES} bytes; it must hold one key and nothing else")
    key = file.data.strip()
    if not key:
        raise KeyFileError("is empty" if not file.data else "holds white space only")
    if not all(0x21 <= byte <= 0x7E for byte in key):
        raise KeyFileError("must hold one key on one line: visible ASCII characters, no space between")
    return key, file
