"""A certificate and its key, read once from their files and made into what a listener takes.

The bytes that were checked are the bytes that are used: OpenSSL gets them through files in memory.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halogend.config.access import TlsConfig
from halogend.control.input_files import InputFile, read_input
from halogend.control.x509 import CertificateError, validity

_MAX_PEM_BYTES = 1 << 20


class TlsFileError(Exception):
    """`field` is `cert` or `key`, whichever is at fault; the text completes "`cert` PATH ..."."""

    def __init__(self, field_name: str, text: str) -> None:
        super().__init__(text)
        self.field = field_name


@dataclass(frozen=True, slots=True)
class Certificate:
    """`fingerprint` is of certificate and key together; `not_after` epoch seconds."""

    path: str
    fingerprint: str
    not_after: float
    context: ssl.SSLContext = field(compare=False, repr=False)

    def is_expired(self, now: float) -> bool:
        return now >= self.not_after

    def view(self, now: float) -> dict[str, Any]:
        """JSON-ready; `now` epoch seconds."""
        return {
            "cert": self.path,
            "fingerprint": self.fingerprint[:12],
            "not_after": datetime.fromtimestamp(self.not_after, UTC).isoformat(),
            "expires_in_s": round(self.not_after - now),
        }


def read_certificate(
    config: TlsConfig, now: float, in_force: Collection[str] = ()
) -> tuple[Certificate, InputFile, InputFile]:
    """(both made ready, the certificate's file, the key's). `now` is epoch seconds: what is not valid then
    is refused, unless its fingerprint is among those `in_force`. Raises TlsFileError."""
    cert, key = _read(config.cert, "cert"), _read(config.key, "key")
    context = _context(cert, key)
    try:
        text = cert.data.decode("ascii", "ignore")
        begin = text.index(ssl.PEM_HEADER)
        first = text[begin : text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)]
        not_before, not_after = validity(ssl.PEM_cert_to_DER_cert(first))
    except (ValueError, CertificateError) as error:
        raise TlsFileError("cert", f"holds no certificate that can be read: {error}") from error
    digest = hashlib.sha256(hashlib.sha256(cert.data).digest() + hashlib.sha256(key.data).digest())
    found = Certificate(config.cert, digest.hexdigest(), not_after, context)
    if found.is_expired(now) and found.fingerprint not in in_force:
        raise TlsFileError("cert", f"expired on {day(not_after)}")
    if now < not_before:
        raise TlsFileError("cert", f"is not valid before {day(not_before)}")
    return found, cert, key


def _read(path: str, field_name: str) -> InputFile:
    try:
        file = read_input(Path(path), _MAX_PEM_BYTES + 1)
    except OSError as error:
        raise TlsFileError(field_name, f"cannot be read: {error.strerror or error}") from error
    if len(file.data) > _MAX_PEM_BYTES:
        raise TlsFileError(field_name, f"is larger than {_MAX_PEM_BYTES >> 20} MiB")
    if not file.data.strip():
        raise TlsFileError(field_name, "is empty" if not file.data else "holds white space only")
    return file


def _context(cert: InputFile, key: InputFile) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if b"PRIVATE KEY-----" not in key.data:
        raise TlsFileError("key", "holds no private key in PEM")
    if b"ENCRYPTED" in key.data:
        raise TlsFileError("key", "has a pass phrase; nobody is there to type it")
    with _InMemory(cert.data) as cert_path, _InMemory(key.data) as key_path:
        try:
            context.load_cert_chain(cert_path, key_path, password=_no_pass_phrase)
        except ssl.SSLError as error:
            raise _refusal(error) from error
    return context


def _no_pass_phrase() -> str:
    """Instead of OpenSSL's question on the terminal."""
    return ""


def _refusal(error: ssl.SSLError) -> TlsFileError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return TlsFileError("key", "is not the key of the certificate")
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return TlsFileError("cert", f"and its key are refused by OpenSSL: {reason}")


def day(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class _InMemory:
    """Bytes under a path that only this process has."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._descriptor = -1

    def __enter__(self) -> str:
        self._descriptor = os.memfd_create("halogend-tls", os.MFD_CLOEXEC)
        os.write(self._descriptor, self._data)
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_exception: object) -> None:
        os.close(self._descriptor)
