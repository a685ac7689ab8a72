"""When a certificate is valid, read from its DER. The standard library tells that of a peer only.

RFC 5280, section 4.1: Certificate is a sequence whose first part is a sequence of [0] version
(optional), serial number, signature, issuer, validity, ...
"""

from __future__ import annotations

from datetime import UTC, datetime

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_BEFORE_VALIDITY = 3  # serial number, signature, issuer
_CENTURY_SPLIT = 50  # RFC 5280, 4.1.2.5.1: a two-digit year from 50 on is of the 1900s


class CertificateError(Exception):
    """The bytes are no certificate."""


def validity(der: bytes) -> tuple[float, float]:
    """(not before, not after) in epoch seconds. Raises CertificateError."""
    whole, _ = _take(der, _SEQUENCE)
    rest, _ = _take(whole, _SEQUENCE)
    if rest[:1] == bytes([_VERSION]):
        _, rest = _take(rest, _VERSION)
    for _ in range(_BEFORE_VALIDITY):
        _, rest = _take(rest)
    times, _ = _take(rest, _SEQUENCE)
    first, times = _time(times)
    second, _ = _time(times)
    return first, second


def _take(data: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """(content of the first element, what follows it)."""
    if len(data) < 2 or (tag is not None and data[0] != tag):
        raise CertificateError("its structure is not a certificate's")
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data):
        raise CertificateError("it ends early")
    return data[start : start + length], data[start + length :]


def _time(data: bytes) -> tuple[float, bytes]:
    tag = data[0] if data else 0
    if tag not in {_UTC_TIME, _GENERALIZED_TIME}:
        raise CertificateError("its dates are of an unknown kind")
    content, rest = _take(data, tag)
    try:
        text = content.decode("ascii")
        if tag == _UTC_TIME:
            text = ("19" if int(text[:2]) >= _CENTURY_SPLIT else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp(), rest
    except ValueError as error:
        raise CertificateError("its dates cannot be read") from error
