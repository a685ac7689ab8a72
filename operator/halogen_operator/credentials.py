"""How the operator and the pods of one HalogenModel know each other: a key, and a certificate of an authority of
their own.

Owns what stands in the Secret; must never know who applies or mounts it. Pure but for randomness. The admin key
lives as long as the Secret does; the certificate is renewed when a third of its life is left, the authority
likewise, and then both are vouched for until the next renewal.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from halogen_operator.names import ADMIN_KEY, CA_CERT, CA_KEY, TLS_CERT, TLS_KEY, server_name
from halogen_operator.wanted import Ref

AUTHORITY_LIFE = dt.timedelta(days=3650)
LEAF_LIFE = dt.timedelta(days=90)
_SKEW = dt.timedelta(hours=1)
_KEY_BYTES = 32
_LEAST_KEY_BYTES = 16
_MOST_NAME = 64  # X.520: ub-common-name

_PEM_END = b"-----END CERTIFICATE-----"


class BrokenSecretError(ValueError):
    """What is wrong with it, as the end of "the Secret NAME ..."."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A certificate and its key."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.cert.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def issue(ref: Ref, now: dt.datetime) -> dict[str, bytes]:
    """A whole new Secret: `admin.key`, `ca.crt`, `ca.key`, `tls.crt`, `tls.key`. `now` has a time zone."""
    authority = _authority(ref, now)
    return _secret(secrets.token_hex(_KEY_BYTES).encode(), authority, _leaf(ref, authority, now))


def fault(secret: Mapping[str, bytes], ref: Ref) -> str | None:
    """What is broken, as the end of "the Secret NAME ..."; None where it is sound. Age is no fault."""
    try:
        _admin_key(secret)
        _checked(secret, ref)
    except BrokenSecretError as error:
        return str(error)
    return None


def renewed(secret: Mapping[str, bytes], ref: Ref, now: dt.datetime) -> dict[str, bytes] | None:
    """What the Secret should hold instead; None where it may stay. What is sound of it stays: the admin key, and the
    authority as long as it lives."""
    try:
        admin_key = _admin_key(secret)
    except BrokenSecretError:
        admin_key = None
    try:
        authority, leaf = _checked(secret, ref)
    except BrokenSecretError:
        anew = issue(ref, now)
        return anew if admin_key is None else anew | {ADMIN_KEY: admin_key}
    if _is_old(authority.cert, now):
        followed = _authority(ref, now)
        return _secret(admin_key or _fresh(), followed, _leaf(ref, followed, now), authority.cert_pem)
    if admin_key is None or _is_old(leaf.cert, now):
        bundle = secret[CA_CERT]
        leaf = _leaf(ref, authority, now) if _is_old(leaf.cert, now) else leaf
        return _secret(admin_key or _fresh(), authority, leaf) | {CA_CERT: bundle}
    return None


def _fresh() -> bytes:
    return secrets.token_hex(_KEY_BYTES).encode()


def _secret(admin_key: bytes, authority: _Pair, leaf: _Pair, before: bytes = b"") -> dict[str, bytes]:
    """`before` is the certificate of the authority before: pods that have not read the new one yet are known by it."""
    return {
        ADMIN_KEY: admin_key,
        CA_CERT: authority.cert_pem + before,
        CA_KEY: authority.key_pem,
        TLS_CERT: leaf.cert_pem,
        TLS_KEY: leaf.key_pem,
    }


# --- reading ----------------------------------------------------------------------------------------


def _admin_key(secret: Mapping[str, bytes]) -> bytes:
    key = secret.get(ADMIN_KEY, b"").strip()
    if len(key) < _LEAST_KEY_BYTES or not all(0x21 <= byte <= 0x7E for byte in key):
        raise BrokenSecretError(f"has no usable {ADMIN_KEY}")
    return key


def _checked(secret: Mapping[str, bytes], ref: Ref) -> tuple[_Pair, _Pair]:
    """(authority, leaf), each with its key, the leaf signed by the authority and made for this HalogenModel."""
    authority, leaf = _pair(secret, CA_CERT, CA_KEY), _pair(secret, TLS_CERT, TLS_KEY)
    try:
        leaf.cert.verify_directly_issued_by(authority.cert)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise BrokenSecretError(f"holds a {TLS_CERT} that is not signed by its {CA_CERT}") from error
    try:
        names = leaf.cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_ours = server_name(ref.name, ref.namespace) in names.get_values_for_type(x509.DNSName)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        is_ours = False
    if not is_ours:
        raise BrokenSecretError(f"holds a {TLS_CERT} for another server name")
    return authority, leaf


def _pair(secret: Mapping[str, bytes], cert_name: str, key_name: str) -> _Pair:
    """The first certificate of a file, and the key that must be its own."""
    first = secret.get(cert_name, b"").partition(_PEM_END)[0] + _PEM_END + b"\n"
    try:
        cert = x509.load_pem_x509_certificate(first)
        certified = cert.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BrokenSecretError(f"has no usable {cert_name}") from error
    try:
        key = serialization.load_pem_private_key(secret.get(key_name, b""), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BrokenSecretError(f"has no usable {key_name}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certified:
        raise BrokenSecretError(f"holds a {key_name} that is not that of its {cert_name}")
    return _Pair(cert, key)


def _is_old(cert: x509.Certificate, now: dt.datetime) -> bool:
    """Is a third of its life or less left, or has it not begun?"""
    begin, end = cert.not_valid_before_utc, cert.not_valid_after_utc
    return now < begin or end - now <= (end - begin) / 3


# --- making -----------------------------------------------------------------------------------------


def _authority(ref: Ref, now: dt.datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"halogend {ref.uid}")
    builder = _builder(name, name, key, now, AUTHORITY_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(is_authority=True), critical=True)
    return _Pair(builder.sign(key, hashes.SHA256()), key)


def _leaf(ref: Ref, authority: _Pair, now: dt.datetime) -> _Pair:
    """For the server name, and for who asks from inside the pod."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name("halogend"), authority.cert.subject, key, now, LEAF_LIFE)
    names: list[x509.GeneralName] = [x509.DNSName(server_name(ref.name, ref.namespace)), x509.DNSName("localhost")]
    names += [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(is_authority=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(signer, critical=False)
    return _Pair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    life: dt.timedelta,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _SKEW).not_valid_after(now + life)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MOST_NAME])])


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
